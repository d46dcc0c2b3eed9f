"""A sweeper that chooses its jobs by what the jobs before have found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from mlflow import MlflowClient
from omegaconf import DictConfig, OmegaConf, open_dict

from tpd.run.configs import CONFIG_FOLDER
from tpd.run.sweep import make_plan
from tpd.tracking import notes

pytestmark = pytest.mark.optuna
ROOT = Path(__file__).parents[2]
TUNED = ["explainer.batch_size", "explainer.target_update_rate", "explainer.learning_rate"]
SMALL = [
    "experiment=tune_network",
    "policy.steps=20000",
    "training.steps=20000",
    "explainer.hidden=[16]",
    "explainer.fit_updates=100",
    "evaluation.forecast_episodes=20",
    "hydra.sweeper.n_trials=4",
]


def tpd_run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "run.py"), *words]
    environment = {**os.environ, "CI": "true"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def asked(*overrides: str) -> DictConfig:
    """The config of a sweep as its start sees it."""
    single = [word for word in overrides if "," not in word]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        cfg = compose("config", single, return_hydra_config=True)
    with open_dict(cfg):
        cfg.hydra.overrides.task = list(overrides)
    return cfg


def test_what_a_sweeper_will_choose_is_not_planned() -> None:
    plan = make_plan(asked("experiment=tune_network", "seed=3"))
    assert plan.jobs is None
    assert plan.overviews == []
    assert plan.fixed == ["experiment=tune_network", "seed=3"]
    assert plan.varied == TUNED


def test_all_combinations_are_planned() -> None:
    plan = make_plan(asked("experiment=paper", "seed=0,1", "explainer=paper,replayed"))
    assert plan.jobs is not None
    assert [job[1:] for job in plan.jobs] == [
        [f"seed={seed}", f"explainer={name}"] for seed in (0, 1) for name in ("paper", "replayed")
    ]
    assert plan.varied == ["explainer"]
    assert plan.overviews == [0, 1]


def test_tuning_without_fresh_episodes_does_not_begin(tmp_path: Path) -> None:
    done = tpd_run(tmp_path, *SMALL, "evaluation=none", "evaluation.forecast_episodes=0")
    assert done.returncode != 0
    assert "evaluation: the best job is chosen by the skill in fresh episodes" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mlflow.db").exists()


def test_the_network_with_the_best_forecasts_is_found(tmp_path: Path) -> None:
    done = tpd_run(tmp_path, *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("tune_network")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = (run for run in runs if run.data.tags["tpd.role"] == "sweep")
    jobs = [run for run in runs if run.data.tags["tpd.role"] == "job"]
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert len(jobs) == 4
    best = max(jobs, key=lambda run: run.data.metrics["forecasts/skill"])
    (folder,) = tmp_path.glob("outputs/sweeps/*")
    found = OmegaConf.load(folder / "optimization_results.yaml")
    assert found.best_value == best.data.metrics["forecasts/skill"]
    assert {name: str(found.best_params[name]) for name in TUNED} == {
        name: best.data.params[name] for name in TUNED
    }
    said = f"with a mean skill of {found.best_value:.4f}"
    assert said in done.stdout
    assert notes.escaped(said) in parent.data.tags["mlflow.note.content"]
    assert "optimization_results.yaml" in {file.path for file in client.list_artifacts(parent.info.run_id)}
    again = tpd_run(tmp_path, *SMALL)
    assert again.returncode == 0
    assert len(list(tmp_path.glob("outputs/sweeps/*"))) == 2  # it is not planned, so it begins anew
