"""What Slurm still has of a sweep, by the folders that submitit keeps of its jobs."""

import logging
import shutil
import subprocess
import time
from pathlib import Path

log = logging.getLogger(__name__)

SUBMITTED = ".submitit"
SECONDS_BETWEEN_CHECKS = 2.0


def wait(sweep_folder: Path) -> None:
    """Return when no job of the sweep waits or runs any more."""
    told = False
    while ids := queued(sweep_folder):
        if not told:
            log.info(
                "Slurm still has jobs of %s: waiting for them (%s)", sweep_folder, ", ".join(sorted(ids))
            )
        told = True
        time.sleep(SECONDS_BETWEEN_CHECKS)


def cancel(sweep_folder: Path) -> None:
    """Take back the jobs of the sweep, waiting or running."""
    if ids := queued(sweep_folder):
        subprocess.run(["scancel", *ids], check=True)


def queued(sweep_folder: Path) -> set[str]:
    """The ids under which Slurm has jobs of the sweep, one for all jobs that were submitted together."""
    ids = {path.name.split("_")[0] for path in (sweep_folder / SUBMITTED).glob("*") if path.is_dir()}
    if not ids or shutil.which("squeue") is None:
        return set()
    while True:
        asked = subprocess.run(
            ["squeue", "--me", "--noheader", "--format=%F"], capture_output=True, text=True
        )
        if asked.returncode == 0:
            return ids & set(asked.stdout.split())
        log.warning("Slurm does not say what it has: %s", asked.stderr.strip())
        time.sleep(SECONDS_BETWEEN_CHECKS)
