"""Agents that were trained under VecNormalize are not explained without it, unless somebody says so."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_ext import as_policy, explainer_for
from tests.support import Compose
from tests.support.networks import small_network, small_transitions
from tests.support.sentences import describe
from tests.support.small_mdp import policy
from tpd.predictors.explainer import Explainer
from tpd.run.parts import ConfigError, build

WORLD = ("env=cart_pole", "outcomes=cart_pole")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zip, with the statistics beside it."""
    folder = tmp_path_factory.mktemp("normalised")
    envs = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=16, n_epochs=1, device="cpu").learn(32)
    model.save(folder / "agent.zip")
    envs.save(str(folder / "statistics.pkl"))
    return folder


def test_a_zip_is_refused_without_its_statistics(saved: Path, compose_config: Compose) -> None:
    agent = ["policy=sb3_zip", f"policy.path={saved / 'agent.zip'}"]
    zipped = [*WORLD, *agent, "explainer=network", "evaluation=none"]
    with pytest.raises(ConfigError, match=r"policy: .*was trained under VecNormalize"):
        build(compose_config(*zipped))
    build(compose_config(*zipped, "policy.vec_normalize=false"))
    build(compose_config(*zipped, f"policy.vec_normalize={saved / 'statistics.pkl'}"))


def test_a_model_is_refused_without_its_statistics(saved: Path) -> None:
    model = PPO.load(saved / "agent.zip", device="cpu")
    with pytest.raises(ValueError, match="was trained under VecNormalize but no longer has it"):
        explainer_for(model, *WORLD)
    with pytest.raises(ValueError, match="was trained under VecNormalize but no longer has it"):
        as_policy(model)
    with pytest.raises(ValueError, match="vec_normalize must be the file"):
        explainer_for(model, *WORLD, vec_normalize=True)  # type: ignore[arg-type]
    as_policy(model, normalization=False)
    observation = np.full((1, 4), 0.01, dtype=np.float32)
    bare = explainer_for(model, *WORLD, vec_normalize=False).policy
    told = explainer_for(model, *WORLD, vec_normalize=saved / "statistics.pkl").policy
    values = [each.probabilities(observation) for each in (bare, told)]  # type: ignore[attr-defined]
    assert values[0].shape == values[1].shape
    seen = told.normalization(observation)  # type: ignore[attr-defined]
    assert not np.allclose(seen, observation)


def test_an_explainer_that_has_learned_nothing_says_so() -> None:
    learner = small_network(policy(), fit_updates=5)
    explainer = Explainer(learner, policy(), learner.outcomes.legend)
    learner.update(small_transitions(policy(), 500))
    nothing = explainer.explain(np.arange(2))
    assert not nothing.known.any()
    assert "never tried" in describe(nothing, 0, "left")
    learner.fit()
    assert explainer.explain(np.arange(2)).known.any()
