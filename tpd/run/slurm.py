"""What Slurm still has of a sweep, by the folders that submitit keeps of its jobs.

Such a folder may be a stranger's: a job is of the sweep if the sweep itself has seen it being submitted.
"""

import logging
import re
import shutil
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

log = logging.getLogger(__name__)

SUBMITTED = ".submitit"
SECONDS_BETWEEN_CHECKS = 2.0
SECONDS_OF_SILENCE = 120.0
"""So long Slurm is asked again when it does not say what it has."""
SECONDS_TO_ANSWER = 30.0


def submitted(sweep_folder: Path) -> set[str]:
    """The ids of jobs by their folders, one for all jobs that were submitted together."""
    names = (path.name for path in (sweep_folder / SUBMITTED).glob("*") if path.is_dir())
    return {name.split("_")[0] for name in names if re.fullmatch("[0-9]+(_[0-9]+)?", name)}


def wait(sweep_folder: Path, ids: Collection[str]) -> None:
    """Return when none of these jobs of the sweep waits or runs any more; a TimeoutError if nobody knows."""
    told = False
    while left := queued(ids, SECONDS_OF_SILENCE):
        if not told:
            log.info(
                "Slurm still has jobs of %s: waiting for them (%s)", sweep_folder, ", ".join(sorted(left))
            )
        told = True
        time.sleep(SECONDS_BETWEEN_CHECKS)


def cancel(ids: Collection[str]) -> None:
    """Take back these jobs, waiting or running."""
    try:
        if left := queued(ids, 0):
            subprocess.run(["scancel", *sorted(left)], check=True, timeout=SECONDS_TO_ANSWER)
    except (TimeoutError, subprocess.SubprocessError) as error:
        log.warning("the jobs %s may still run: %s", ", ".join(sorted(ids)), error)


def queued(ids: Collection[str], patience: float) -> set[str]:
    """Those of these ids that Slurm has jobs of; a TimeoutError if it does not say for so many seconds."""
    if not ids or shutil.which("squeue") is None:
        return set()
    deadline, command = time.monotonic() + patience, ["squeue", "--me", "--noheader", "--format=%F"]
    while True:
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_ANSWER)
            if asked.returncode == 0:
                return set(ids) & set(asked.stdout.split())
            reason = " ".join(asked.stderr.split())
        except subprocess.TimeoutExpired:
            reason = f"no answer within {SECONDS_TO_ANSWER:.0f} s"
        if time.monotonic() >= deadline:
            raise TimeoutError(f"Slurm does not say whether it still has {', '.join(sorted(ids))}: {reason}")
        log.warning("Slurm does not say what it has: %s", reason)
        time.sleep(SECONDS_BETWEEN_CHECKS)
