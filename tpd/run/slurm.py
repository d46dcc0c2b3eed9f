"""What Slurm still has of a sweep.

The folder of a sweep may be a stranger's, so nothing in it says which jobs are its own. Slurm does: it knows
the script of each job, and submitit keeps those of a sweep in its folder.
"""

import logging
import shutil
import subprocess
import time
from pathlib import Path

log = logging.getLogger(__name__)

SUBMITTED = ".submitit"
SECONDS_BETWEEN_CHECKS = 2.0
SECONDS_OF_SILENCE = 120.0
"""So long Slurm is asked again when it does not say what it has."""
SECONDS_TO_ANSWER = 30.0


def wait(sweep_folder: Path) -> None:
    """Return when no job of the sweep waits or runs any more; a TimeoutError if nobody knows."""
    told = False
    while left := queued(sweep_folder, SECONDS_OF_SILENCE):
        if not told:
            log.info(
                "Slurm still has jobs of %s: waiting for them (%s)", sweep_folder, ", ".join(sorted(left))
            )
        told = True
        time.sleep(SECONDS_BETWEEN_CHECKS)


def cancel(sweep_folder: Path) -> None:
    """Take back the jobs of the sweep, waiting or running."""
    try:
        if left := queued(sweep_folder, 0):
            subprocess.run(["scancel", *sorted(left)], check=True, timeout=SECONDS_TO_ANSWER)
    except (TimeoutError, subprocess.SubprocessError) as error:
        log.warning("jobs of %s may still run: %s", sweep_folder, error)


def queued(sweep_folder: Path, patience: float) -> set[str]:
    """The ids of its jobs that Slurm has, one for all that were submitted together.

    patience: after so many seconds in which Slurm does not say it, there is a TimeoutError.
    """
    scripts = sweep_folder.resolve() / SUBMITTED
    if not scripts.is_dir() or shutil.which("squeue") is None:
        return set()
    deadline, command = time.monotonic() + patience, ["squeue", "--me", "--noheader", "--format=%F %o"]
    while True:
        try:
            asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_TO_ANSWER)
            if asked.returncode == 0:
                jobs = (line.strip().partition(" ")[::2] for line in asked.stdout.splitlines())
                return {number for number, script in jobs if Path(script).resolve().is_relative_to(scripts)}
            reason = " ".join(asked.stderr.split())
        except subprocess.TimeoutExpired:
            reason = f"no answer within {SECONDS_TO_ANSWER:.0f} s"
        if time.monotonic() >= deadline:
            raise TimeoutError(f"Slurm does not say whether it still has jobs of {sweep_folder}: {reason}")
        log.warning("Slurm does not say what it has: %s", reason)
        time.sleep(SECONDS_BETWEEN_CHECKS)
