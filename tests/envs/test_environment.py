"""Environments: what cannot be drawn costs the pictures, and nothing else."""

import logging
import os
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tpd.envs import Environment, environment
from tpd.envs.environment import MUJOCO_GL
from tpd.envs.events.default import default_outcomes
from tpd.policies.function import FunctionPolicy
from tpd.sources import named_states
from tpd.sources.episodes import Recorder

DARK = "Dark-v0"


class Dark(gym.Wrapper[Any, Any, Any, Any]):
    """A pole whose renderer needs a graphics library that is not there."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))

    def render(self) -> Any:
        raise RuntimeError("an OpenGL platform\nlibrary has not been loaded")


gym.register(id=DARK, entry_point="tests.envs.test_environment:Dark", max_episode_steps=20)


@pytest.mark.skipif(sys.platform != "linux", reason="only there MuJoCo draws without a screen")
@pytest.mark.parametrize(("env_id", "left"), [(DARK, None), ("CartPole-v1", "egl")])
def test_how_mujoco_draws_without_a_screen_is_left_only_where_drawing_works(
    env_id: str, left: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv(MUJOCO_GL, "unset")
    monkeypatch.delenv(MUJOCO_GL)
    monkeypatch.setattr(environment, "_UNDRAWABLE", set())
    assert Environment(env_id).drawable is (left is not None)
    assert os.environ.get(MUJOCO_GL) == left
    monkeypatch.setenv(MUJOCO_GL, "osmesa")
    assert Environment(env_id).drawable is (left is not None)
    assert os.environ[MUJOCO_GL] == "osmesa"


def test_a_renderer_that_fails_costs_the_pictures_and_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env, light = Environment(DARK), Environment("CartPole-v1", max_episode_steps=20)
    policy = FunctionPolicy(lambda o: np.zeros(len(o), dtype=np.int64), 0.99, env.action_space)
    outcomes = default_outcomes(light)
    with caplog.at_level(logging.WARNING):
        recording = Recorder(episodes=2, steps=20).record(env, policy, outcomes)
        assert named_states.find(env, policy, "start").picture is None
        assert not env.drawable
    assert recording is not None
    assert recording.frames == ()
    (warning,) = [record.getMessage() for record in caplog.records if DARK in record.getMessage()]
    assert warning.endswith("so the report has no pictures: an OpenGL platform library has not been loaded")
    seen = Recorder(episodes=2, steps=20).record(light, policy, outcomes)
    assert seen is not None
    assert len(seen.frames) == len(seen.episodes.transitions)
