"""Finds, awaits and cancels the jobs that a sweep still has in Slurm's queue.

The folder of a sweep may come from somebody else, so no job id in it is trusted. Slurm knows the script of
each job, and submitit stores the scripts of a sweep in its folder; a job is matched by its script.
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
"""How long to retry while `squeue` fails."""
SECONDS_TO_ANSWER = 30.0


def wait(sweep_folder: Path) -> None:
    """Return when Slurm has no more jobs of the sweep; raise a TimeoutError if Slurm does not answer."""
    told = False
    try:
        while left := queued(sweep_folder, SECONDS_OF_SILENCE):
            if not told:
                jobs = ", ".join(sorted(left))
                log.info("Slurm still has jobs of %s: waiting for them (%s)", sweep_folder, jobs)
            told = True
            time.sleep(SECONDS_BETWEEN_CHECKS)
    except TimeoutError as error:
        raise TimeoutError(
            f"squeue does not say whether jobs of {sweep_folder} are still running: {error}"
        ) from error


def cancel(sweep_folder: Path) -> None:
    """Cancel the pending and running jobs of the sweep."""
    try:
        if left := queued(sweep_folder, 0):
            subprocess.run(["scancel", *sorted(left)], check=True, timeout=SECONDS_TO_ANSWER)
    except (TimeoutError, subprocess.SubprocessError) as error:
        log.warning(
            "jobs of %s may still be running: find them with squeue --me, cancel each with scancel <id> (%s)",
            sweep_folder,
            error,
        )


def queued(sweep_folder: Path, patience: float) -> set[str]:
    """Slurm's ids of the sweep's jobs, one per array; a TimeoutError if `squeue` fails for `patience` s."""
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
            raise TimeoutError(reason)
        log.warning("squeue failed, and is tried again: %s", reason)
        time.sleep(SECONDS_BETWEEN_CHECKS)
