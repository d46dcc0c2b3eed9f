"""Commands of the project, run as a user would."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
IN_TURN = "hydra/launcher=basic"
"""The jobs of a sweep one after the other, where nothing depends on the processes of the usual launcher."""


def tpd_run(folder: Path, *overrides: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command as a user types it, in a folder of its own."""
    command = [sys.executable, str(ROOT / "scripts" / "run.py"), *overrides]
    environment = {**os.environ, "CI": "true", "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done
