"""Episodes that last much longer than those that terminate are cut in most copies, and in no other way."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tpd.core.seeding import generator
from tpd.core.types import Array, Transitions, concatenate
from tpd.envs import Environment
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.sources.long_episodes import ENOUGH, FACTOR, LongEpisodes

SHORT, LIMIT = 10, 100


class Hover(gym.Env[Any, Any]):
    """Ends after a few steps, or never; the observation is the number of steps."""

    observation_space, action_space = gym.spaces.Box(0, 1000, (1,)), gym.spaces.Discrete(2)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._steps, self._ends = 0, self.np_random.random() < 0.5
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        over = bool(self._ends and self._steps == SHORT)
        return np.array([self._steps], dtype=np.float32), 0.0, over, False, {}


gym.register("Hover-v0", "tests.sources.test_long_episodes:Hover", max_episode_steps=LIMIT)


def stay(observations: Array) -> Array:
    return np.zeros(len(observations), dtype=np.int64)


def collected(cut_long: bool) -> Transitions:
    env = Environment("Hover-v0")
    policy = DiscreteFunctionPolicy(stay, 0.9, env.action_space)
    exploration = Exploration(0.0, cut_long=cut_long)
    rng = generator(0, "test")
    return concatenate(list(collect(env, policy, rng, steps=20_000, exploration=exploration, num_envs=8)))


def ends_of(batch: Transitions) -> Array:
    """How long truncated episodes lasted."""
    return np.asarray(batch.next_observation[batch.truncated & ~batch.terminated, 0])


def test_most_copies_cut_long_episodes_and_the_others_play_them_out() -> None:
    cut = ends_of(collected(cut_long=True))
    late = cut[20:]  # the first ones come before it is known how long episodes last
    assert set(late.tolist()) == {FACTOR * SHORT, LIMIT}
    short = np.mean(late == FACTOR * SHORT)
    assert short > 3 / 4  # three of four copies, each of which plays more episodes
    assert set(ends_of(collected(cut_long=False)).tolist()) == {LIMIT}


def test_more_episodes_terminate_in_as_many_steps_and_none_otherwise() -> None:
    cut, whole = collected(cut_long=True), collected(cut_long=False)
    assert cut.terminated.sum() > 1.5 * whole.terminated.sum()
    np.testing.assert_array_equal(cut.next_observation[cut.terminated, 0], SHORT)


def test_nothing_is_long_before_enough_episodes_terminated() -> None:
    episodes = LongEpisodes()
    for _ in range(ENOUGH - 1):
        episodes.record(SHORT)
    assert not episodes.is_long(10**6)
    episodes.record(SHORT)
    assert episodes.is_long(int(FACTOR * SHORT))
    assert not episodes.is_long(int(FACTOR * SHORT) - 1)


def test_cut_long_must_be_true_or_false() -> None:
    with pytest.raises(ValueError, match="cut_long"):
        Exploration(0.0, cut_long="yes")  # type: ignore[arg-type]
