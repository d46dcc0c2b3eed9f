"""A sweep through Ray gives the same bits as one on the cores of this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parent.parent.parent
SWEEP = [
    "-m",
    "experiment=paper",
    "seed=0,1",
    "policy.steps=20000",
    "training.steps=60000",
    "evaluation.episodes=200",
    "evaluation.curve_points=2",
    "evaluation.forecast_episodes=100",
    "recording.episodes=0",
]
ON_RAY = ["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"]


def tpd_run(folder: Path, *words: str) -> Path:
    """The folder of a sweep that was run as a user types it."""
    command = [sys.executable, str(ROOT / "scripts" / "run.py"), *words, f"hydra.sweep.dir={folder}"]
    environment = {**os.environ, "CI": "true"}
    folder.mkdir()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_same_seeds_give_the_same_bits_on_ray(tmp_path: Path) -> None:
    here, there = tpd_run(tmp_path / "here", *SWEEP), tpd_run(tmp_path / "there", *SWEEP, *ON_RAY)
    for seed in ("0", "1"):
        for name in ("errors.json", "metrics.json", "forecasts.json"):
            assert (here / seed / name).read_bytes() == (there / seed / name).read_bytes()
    assert (here / "0" / "errors.json").read_bytes() != (here / "1" / "errors.json").read_bytes()
