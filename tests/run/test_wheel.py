"""A built wheel carries both packages and the configs, and a user's own folder extends them."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.commands import fork_server

ROOT = Path(__file__).parents[2]

OWN_OUTCOME = """
import numpy as np

def low_fuel(t):
    return t.next_observation // 2 % 21 <= 3
"""
OWN_CONFIG = """
_target_: tpd.core.outcomes.OutcomeSet
outcomes:
  - _target_: tpd.core.outcomes.event
    name: low fuel
    function: {_target_: my_outcomes.low_fuel, _partial_: true}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel unpacked elsewhere, with its command."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return target


def tpd_run(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": os.pathsep.join([str(installed), str(folder)])}
    uncompiled = {"NUMBA_DISABLE_JIT": "1"}  # what is installed elsewhere is compiled anew
    command = installed / "bin" / "tpd-run"
    return fork_server().run(command, list(arguments), folder, {**os.environ, **path, **uncompiled})


def test_carries_both_packages_and_the_configs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"tpd/run/experiment.py", "sb3_ext/policies.py", "tpd/conf/config.yaml"} <= names
    assert {"tpd/py.typed", "sb3_ext/py.typed"} <= names
    assert "tpd/conf/experiment/paper.yaml" in names
    assert not [name for name in names if name.startswith(("conf/", "tests/", "scripts/"))]


def test_gives_the_command_elsewhere(installed: Path, tmp_path: Path) -> None:
    done = tpd_run(installed, tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert "fuel_taxi" in done.stdout
    where = tpd_run(installed, tmp_path, "--info", "searchpath")
    assert str(installed / "tpd" / "conf") in where.stdout


def test_help_does_not_wait_for_what_it_does_not_need(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", str(ROOT / "scripts" / "run.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "hydra" in imported
    first_screen = "\n".join(done.stdout.splitlines()[:24])
    assert first_screen.count("  tpd-run ") >= 3
    assert "experiment: acrobot" in first_screen
    assert not {"mlflow", "torch", "numba", "matplotlib", "pandas", "gymnasium"} & imported


def test_a_users_folder_extends_the_configs(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "my_outcomes.py").write_text(OWN_OUTCOME)
    (tmp_path / "my_conf" / "outcomes").mkdir(parents=True)
    (tmp_path / "my_conf" / "outcomes" / "mine.yaml").write_text(OWN_CONFIG)
    few = ["policy.steps=100", "training.steps=100", "recording.episodes=0", "overview=false"]
    few += ["evaluation=forecasts", "evaluation.forecast_episodes=2", "explainer.horizon=3"]
    done = tpd_run(installed, tmp_path, "--config-dir", "my_conf", "outcomes=mine", "tracking=none", *few)
    assert done.returncode == 0, done.stderr
    assert "low fuel" in done.stdout
    assert list(tmp_path.glob("outputs/runs/*/plots/start.png"))
