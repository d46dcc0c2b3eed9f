"""The experiments of the gallery: each runs to its end with small settings, and answers a question."""

import re
from pathlib import Path

import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from tests.support import Compose
from tpd.run import explain
from tpd.run.experiment import run
from tpd.run.parts import build
from tpd.tracking.runs import Run

SMALL = ["training.steps=400", "explainer.hidden=[8]", "explainer.horizon=6", "explainer.fit_updates=4"]
SMALL += [
    "evaluation=forecasts",
    "evaluation.forecast_episodes=1",
    "recording.episodes=1",
    "recording.steps=20",
]
SMALL += ["recording.steps=20"]
TRAINED = ["policy.steps=64", "policy.num_envs=2", "policy.stages=1", "policy.algorithm.n_steps=32"]
TRAINED += ["policy.algorithm.batch_size=64"]


def zipped(env_id: str, folder: Path) -> list[str]:
    """Save an agent that was trained for a moment, with its statistics; the settings that name both files."""
    envs = VecNormalize(make_vec_env(env_id))
    agent = PPO("MlpPolicy", envs, n_steps=32, batch_size=32, n_epochs=1, device="cpu").learn(32)
    agent.save(folder / "agent.zip")
    envs.save(str(folder / "statistics.pkl"))
    return [f"policy.path={folder}/agent.zip", f"policy.vec_normalize={folder}/statistics.pkl"]


@pytest.mark.parametrize(
    ("name", "env_id", "asked", "said"),
    [
        ("door_key", None, ["step=3", "foil=drop"], "Drop instead"),
        ("hopper", "Hopper-v5", ["step=1", "foil=[1,1,1]"], "thigh 1.00, leg 1.00, foot 1.00"),
        ("bipedal_walker", "BipedalWalker-v3", ["step=1", "foil=[0,0,0,0]"], "right knee 0.00"),
        ("radio", None, ["step=15", "foil={user 3: to cell B}"], "ser 3 to cell B (the rest unchanged)"),
    ],
)
def test_an_environment_of_the_gallery_is_explained(
    name: str,
    env_id: str | None,
    asked: list[str],
    said: str,
    tmp_path: Path,
    compose_config: Compose,
    capsys: pytest.CaptureFixture[str],
) -> None:
    agent = TRAINED if env_id is None else zipped(env_id, tmp_path)
    parts = build(compose_config(f"experiment={name}", *agent, *SMALL))
    found = run(parts, tmp_path / "run", Run(), progress=False, overview=False)
    assert found.forecasts is not None
    assert found.forecasts.foil is not None
    explain.main([f"run={tmp_path}/run", "episode=0", *asked, "rollouts=2", f"out={tmp_path}"])
    assert said in re.sub(r"\s+", " ", capsys.readouterr().out)
