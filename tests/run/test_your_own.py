"""The example that users copy: its one command runs to its end, and its answer can be asked for."""

import os
import shutil
from pathlib import Path

from tests.support.commands import ROOT, fork_server, tpd_run

SMALL = ["training.steps=2000", "explainer.fit_updates=30", "explainer.hidden=[16]"]
SMALL += ["explainer=network", "evaluation=forecasts", "evaluation.forecast_episodes=2", "overview=false"]
SMALL += ["recording.episodes=1", "recording.steps=20", "tracking=none"]
TRUST = "trust=[room,room_events,room_agent]"


def test_the_first_explanation_takes_one_command(tmp_path: Path) -> None:
    copied = tmp_path / "mine"
    shutil.copytree(ROOT / "docs" / "your_own", copied, ignore=shutil.ignore_patterns("__pycache__"))
    done = tpd_run(copied, "--config-dir", "conf", "experiment=room", *SMALL)
    assert "What room, seed 0, has learned" in done.stdout
    (run,) = (copied / "outputs" / "runs").iterdir()
    environment = {**os.environ, "CI": "true", "PYTHONPATH": f"{copied}{os.pathsep}{ROOT}"}
    words = [f"run={run}", "episode=0", "step=3", "action=wait", "foil=heat", "rollouts=20", TRUST]
    asked = fork_server().run(ROOT / "scripts" / "explain.py", words, copied, environment)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "by 20 rollouts" in asked.stdout
    assert "too cold" in asked.stdout
