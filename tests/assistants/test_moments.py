"""Which steps of recorded episodes are worth asking about."""

from pathlib import Path

import numpy as np
import pytest

import tpd
from tpd.assistants.library import OpenRun
from tpd.assistants.moments import worth_asking
from tpd.core.types import Array


def push_right(observations: Array) -> Array:
    return np.full((len(observations), 1), 2.0, dtype=np.float32)


@pytest.fixture(scope="module")
def opened() -> OpenRun:
    """Two episodes of a pendulum, which never terminate; in one of them it hardly moves."""
    explainer = tpd.Explainer(
        push_right,
        env="Pendulum-v1",
        events={"fast": lambda t: t.next_observation[:, 2] > 6},
        horizon=2,
    )
    explainer.play(seeds=range(8), steps=40)
    return OpenRun("pendulum", explainer._run, Path())


def test_steps_before_events_are_listed_and_every_episode_has_one(opened: OpenRun) -> None:
    recording = opened.saved.recording
    assert recording is not None
    found = worth_asking(opened, None, 30).moments
    assert {one.episode for one in found} == set(range(8))
    fast = [one for one in found if one.reason == "5 steps before fast first happens in the episode"]
    others = [one for one in found if one.reason.startswith("the middle of an episode")]
    assert fast
    assert others
    for one in fast:
        speed = recording.episodes[one.episode].next_observation[:, 2]
        assert int(np.flatnonzero(speed > 6)[0]) == one.step + 5
    assert {one.step for one in others} == {20}
