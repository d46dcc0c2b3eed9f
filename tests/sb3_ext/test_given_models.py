"""Models at hand as policy sources: with their statistics, in their own world, or refused."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hydra.utils import instantiate
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_ext import as_policy, explainer_for
from sb3_ext.agents import GivenModel
from sb3_ext.normalization import ObservationNormalization
from tests.support import Compose
from tpd.envs import Environment
from tpd.run.parts import ConfigError, build

ID = "CartPole-v1"
SMALL: dict[str, Any] = {"n_steps": 64, "batch_size": 64, "n_epochs": 1, "seed": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def normalised() -> PPO:
    envs = VecNormalize(DummyVecEnv([lambda: gym.make(ID)]))
    return PPO("MlpPolicy", envs, **SMALL).learn(64)


@pytest.fixture
def seen() -> Any:
    return np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)


def given(model: BaseAlgorithm, env: str = ID, **settings: Any) -> GivenModel:
    rng = np.random.default_rng(0)
    chosen = {"deterministic": True, "vec_normalize": None, **settings}
    return GivenModel(Environment(env), rng, model=model, **chosen)


def values(source: GivenModel, seen: Any) -> Any:
    """What the actor thinks of every action, which shows what it saw."""
    policy: Any = source.policy
    return policy._distribution(seen)


def test_a_model_plays_as_it_does_by_itself_and_has_nothing_to_train(seen: Any) -> None:
    model = PPO("MlpPolicy", ID, **SMALL).learn(128)
    source = given(model)
    np.testing.assert_array_equal(source.policy.action(seen), model.predict(seen, deterministic=True)[0])
    assert (source.steps, source.state()) == (0, {})
    sampling: Any = given(model, deterministic=False).policy
    assert 0 < sampling.probabilities(seen).min() < 1


def test_the_return_that_is_expected_is_that_of_its_last_episodes() -> None:
    model = PPO("MlpPolicy", ID, **SMALL)
    assert given(model).expected_return is None
    model.learn(128)
    assert model.ep_info_buffer
    expected = given(model).expected_return
    assert expected is not None
    assert expected.mean == pytest.approx(np.mean([episode["r"] for episode in model.ep_info_buffer]))
    assert expected.source == f"the last {len(model.ep_info_buffer)} episodes of its training"
    model.ep_info_buffer.append({"r": float("nan")})
    assert given(model).expected_return is None
    model.ep_info_buffer = None
    assert given(model).expected_return is None


def test_the_statistics_are_those_of_the_model_of_a_file_or_of_a_wrapper(
    normalised: PPO, seen: Any, tmp_path: Path
) -> None:
    wrapper = normalised.get_vec_normalize_env()
    assert wrapper is not None
    wrapper.save(str(tmp_path / "statistics.pkl"))
    own = given(normalised)
    due: Any = as_policy(normalised, normalization=wrapper.normalize_obs)
    np.testing.assert_allclose(values(own, seen), due._distribution(seen), rtol=1e-5)
    normalised.save(tmp_path / "agent.zip")
    lost = PPO.load(tmp_path / "agent.zip", device="cpu")
    for statistics in (tmp_path / "statistics.pkl", str(tmp_path / "statistics.pkl"), wrapper):
        np.testing.assert_allclose(values(given(lost, vec_normalize=statistics), seen), values(own, seen))
    bare = values(given(lost, vec_normalize=False), seen)
    assert not np.allclose(bare, values(own, seen))
    np.testing.assert_array_equal(values(given(normalised, vec_normalize=False), seen), bare)
    with pytest.raises(ValueError, match="was trained under VecNormalize but no longer has it"):
        given(lost)


def test_statistics_stay_as_they_were(normalised: PPO, seen: Any) -> None:
    wrapper = normalised.get_vec_normalize_env()
    assert wrapper is not None
    source = given(normalised)
    assert isinstance(source.policy.normalization, ObservationNormalization)
    before = values(source, seen)
    statistics: Any = wrapper.obs_rms
    kept = statistics.mean
    statistics.mean = kept + 5
    try:
        np.testing.assert_array_equal(values(source, seen), before)
        assert not np.allclose(values(given(normalised), seen), before)
    finally:
        statistics.mean = kept


def test_an_explainer_takes_a_wrapper_too(normalised: PPO, tmp_path: Path) -> None:
    normalised.save(tmp_path / "agent.zip")
    lost = PPO.load(tmp_path / "agent.zip", device="cpu")
    wrapper = normalised.get_vec_normalize_env()
    policy: Any = explainer_for(lost, "env=cart_pole", "outcomes=cart_pole", vec_normalize=wrapper).policy
    assert policy.normalization == wrapper.normalize_obs  # type: ignore[union-attr]


@pytest.mark.parametrize("statistics", [True, 3, object()])
def test_what_are_no_statistics_is_refused(normalised: PPO, statistics: Any) -> None:
    with pytest.raises(ValueError, match="vec_normalize must be the file of the statistics"):
        given(normalised, vec_normalize=statistics)


def test_statistics_of_another_world_are_refused(normalised: PPO) -> None:
    others = VecNormalize(DummyVecEnv([lambda: gym.make("Acrobot-v1")]))
    with pytest.raises(ValueError, match=r"observations have shape \(6,\)"):
        given(normalised, vec_normalize=others)


@pytest.mark.parametrize(
    ("trained", "explained"),
    [(ID, "Acrobot-v1"), (ID, "FrozenLake-v1"), ("FrozenLake-v1", "CliffWalking-v1"), (ID, "Pendulum-v1")],
)
def test_another_world_than_the_models_is_refused(trained: str, explained: str) -> None:
    model = PPO("MlpPolicy", trained, **SMALL)
    given(model, trained)
    with pytest.raises(ValueError, match=f"but {explained} has .*pass the model's own environment"):
        given(model, explained)


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ValueError, match="model: expected a Stable-Baselines3 model, got a str"):
        given("agent.zip")  # type: ignore[arg-type]


def test_the_config_takes_its_model_from_python(compose_config: Compose, seen: Any) -> None:
    world = [
        "env=cart_pole",
        "outcomes=cart_pole",
        "policy=sb3_model",
        "explainer=network",
        "evaluation=none",
    ]
    cfg = compose_config(*world)
    with pytest.raises(ConfigError, match=r"policy: .*model"):
        build(cfg)
    model = PPO("MlpPolicy", ID, **SMALL)
    made = instantiate(cfg.policy, model=model, _convert_="all")
    source = made(Environment(ID), np.random.default_rng(0))
    assert source.policy.model is model
    np.testing.assert_array_equal(source.policy.action(seen), model.predict(seen, deterministic=True)[0])
