"""Environments that do after a while what they never said they would."""

import os
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.support.commands import ROOT, fork_server
from tpd.core.seeding import generator
from tpd.envs import Environment
from tpd.policies.tabular import TabularPolicy
from tpd.sources.collection import collect
from tpd.sources.episodes import play_one
from tpd.sources.exploration import Exploration
from tpd.sources.playing import play_together
from tpd.sources.stepping import StepError

AFTER = 3000


class Turncoat(gym.Env[Any, Any]):
    """Steps around in a circle of ten states, and after a while somewhere else."""

    observation_space, action_space = gym.spaces.Discrete(10), gym.spaces.Discrete(2)

    def __init__(self, then: str = "outside", render_mode: str | None = None) -> None:
        self._then, self._steps, self.render_mode = then, 0, render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return (0 if self._then != "no start" else 99), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        there: Any = self._steps % 10
        reward, over = 1.0, self._steps % 20 == 0
        if self._steps > AFTER // 10:
            there = {"outside": 77, "below": -1, "shape": np.array([1, 2])}.get(self._then, there)
            reward = np.nan if self._then == "nan" else reward
        return there, reward, over, False, {}


for word in ("outside", "below", "shape", "nan", "no start"):
    gym.register(
        f"Turncoat-{word.replace(' ', '-')}-v0", "tests.sources.test_stepping:Turncoat", kwargs={"then": word}
    )


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (
            "outside",
            r"Turncoat-outside-v0 with observations in Discrete\(10\) .* the observation 77 is not in",
        ),
        ("below", r"Turncoat-below-v0 with observations in Discrete\(10\) .* the observation -1 is not in"),
        (
            "no-start",
            r"Turncoat-no-start-v0 with observations in Discrete\(10\) .* the observation 99 is not in",
        ),
        ("shape", r"Turncoat-shape-v0 with observations in Discrete\(10\) failed in reset or step"),
        ("nan", "the reward is not finite"),
    ],
)
def test_a_step_that_cannot_be_is_named_in_one_line(then: str, message: str) -> None:
    env = Environment(f"Turncoat-{then}-v0")
    policy = TabularPolicy(np.full((10, 2), 0.5), 0.9)
    with pytest.raises(ValueError, match=message) as refused:
        list(
            collect(env, policy, generator(0, "a"), steps=AFTER * 2, exploration=Exploration(0), num_envs=10)
        )
    assert "\n" not in str(refused.value)


def test_a_state_that_there_is_not_is_refused_where_episodes_are_played() -> None:
    policy = TabularPolicy(np.full((10, 2), 0.5), 0.9)
    played = play_together(Environment("Turncoat-no-start-v0"), policy, [0], generator(0, "a"))
    with pytest.raises(StepError, match=r"Turncoat-no-start-v0 .* the observation 99"):
        next(played)


def test_the_user_is_told_without_a_traceback(tmp_path: Path) -> None:
    words = [
        "env=cliff_walking",
        "~env.kwargs",
        "~env.action_names",
        "env.id=tests.sources.test_stepping:Turncoat-outside-v0",
        "outcomes=default",
    ]
    words += ["policy.steps=20000", "tracking=none", "evaluation=none", "recording.episodes=0"]
    environment = {**os.environ, "CI": "true", "PYTHONPATH": str(ROOT)}
    done = fork_server().run(ROOT / "scripts" / "run.py", words, tmp_path, environment)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].endswith(
        "failed in reset or step: ValueError: the observation 77 is not in Discrete(10)"
    )


class Words(gym.Env[Any, Any]):
    """Says what its steps give in words, or in whatever it is told."""

    observation_space, action_space = gym.spaces.Discrete(3), gym.spaces.Discrete(2)

    def __init__(self, reward: Any = 1.0, terminated: Any = False, truncated: Any = False) -> None:
        self.given = reward, terminated, truncated

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, Any]:
        return 0, {}

    def step(self, action: int) -> tuple[int, Any, Any, Any, Any]:
        return 1, *self.given, {}


gym.register(id="Words-v0", entry_point="tests.sources.test_stepping:Words", disable_env_checker=True)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"reward": "1.5"}, "the reward must be a number, got '1.5'"),
        ({"reward": None}, "the reward must be a number, got None"),
        (
            {"reward": np.ones(2)},
            "Words-v0 with observations in Discrete(3) failed in reset or step: TypeError: the reward"
            " must be a single number, got an array of shape (2,)",
        ),
        ({"terminated": "no"}, "terminated must be true or false, got 'no'"),
        ({"truncated": 0.5}, "truncated must be true or false, got 0.5"),
    ],
)
def test_words_are_neither_rewards_nor_ends(given: dict[str, Any], complaint: str) -> None:
    env = Environment("Words-v0", kwargs=given)
    policy = TabularPolicy(np.full((3, 2), 0.5), 0.9)
    with pytest.raises(StepError, match=re.escape(complaint)):
        next(collect(env, policy, generator(0, "x"), steps=10, exploration=Exploration(0.5), num_envs=2))


@pytest.mark.parametrize(
    "given",
    [
        {"reward": np.float32(1)},
        {"reward": True},
        {"reward": np.ones((1, 1)), "truncated": np.zeros(1, dtype=bool)},
        {"terminated": 0},
        {},
    ],
)
def test_numbers_of_any_kind_are(given: dict[str, Any]) -> None:
    env = Environment("Words-v0", kwargs=given)
    policy = TabularPolicy(np.full((3, 2), 0.5), 0.9)
    batch = next(collect(env, policy, generator(0, "x"), steps=10, exploration=Exploration(0.5), num_envs=2))
    assert (batch.reward == 1).all()
    assert play_one(env, policy, 0, most=1)[0].reward.tolist() == [1.0]
