"""Observations as rows of named numbers."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hydra.utils import instantiate

from tpd.core.observations import batch
from tpd.envs import Environment
from tpd.envs.features import HIDDEN, FeatureError, features_of
from tpd.envs.made import MadeEnvironment
from tpd.run.configs import CONFIG_FOLDER, group


class Seen(gym.Env[Any, Any]):
    """Has the space that it is made with, and is never stepped."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space: gym.Space[Any]) -> None:
        self.observation_space = space


def seen(space: gym.Space[Any]) -> Environment:
    return MadeEnvironment("Seen", function=lambda: Seen(space))


DICT = gym.spaces.Dict(
    {
        "lidar": gym.spaces.Box(-1, 1, (2, 2), np.float32),
        "gear": gym.spaces.Discrete(5),
        "doors": gym.spaces.MultiBinary(3),
    }
)


@pytest.mark.parametrize(
    "space",
    [
        DICT,
        gym.spaces.Box(-1, 1, (3,)),
        gym.spaces.MultiDiscrete([4, 5]),
        gym.spaces.Box(0, 255, (2, 3), np.uint8),
    ],
)
def test_rows_are_turned_back_into_the_same_observations(space: gym.Space[Any]) -> None:
    space.seed(0)
    observations = batch(space, [space.sample() for _ in range(20)])
    features = features_of(seen(space), observations[:1])
    rows = features.rows(observations)
    assert rows.shape == (20, len(features.names))
    again = features.observations(rows)
    assert again.dtype == observations.dtype
    np.testing.assert_array_equal(again, observations)
    mixed = rows.copy()
    mixed[0, 0] += 1
    assert (features.observations(mixed) != observations).any()


def test_parts_of_a_dict_are_named_by_their_keys() -> None:
    names = seen(DICT).feature_names
    assert names[:4] == ("doors[0]", "doors[1]", "doors[2]", "gear")
    assert names[-1] == "lidar[1, 1]"
    assert Environment("CartPole-v1").feature_names[3] == "observation[3]"


def test_a_hidden_state_is_one_feature_of_many_numbers() -> None:
    features = features_of(Environment("CartPole-v1"), np.zeros((1, 4 + 6)))
    assert features.names[3:] == ("observation[3]", *[HIDDEN] * 6)


def test_images_are_refused() -> None:
    with pytest.raises(FeatureError, match="has 28224 numbers, but at most 100 features are supported"):
        features_of(seen(gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)), np.zeros((1, 84, 84, 4), np.uint8))


def test_names_must_be_as_many_as_numbers() -> None:
    with pytest.raises(ValueError, match="observations of CartPole-v1 have 4 numbers but 2 names"):
        _ = Environment("CartPole-v1", observation_names=["x", "y"]).feature_names


NAMED = [
    path.stem for path in (CONFIG_FOLDER / "env").glob("*.yaml") if "observation_names" in path.read_text()
]


@pytest.mark.parametrize("name", NAMED)
def test_configs_name_every_number(name: str) -> None:
    assert "lunar_lander" in NAMED
    env = instantiate(group("env", name), _convert_="all")
    assert len(env.feature_names) == env.observation_space.shape[0]
    assert len(set(env.feature_names)) == len(env.feature_names)
    assert not any("[" in each for each in env.feature_names)
