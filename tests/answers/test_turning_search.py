"""Turning points by rollouts: the one irrevocable step of an episode is found, and noise gives none."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tpd
from tests.support import crossing
from tpd.answers import turning_search
from tpd.core.types import Array

FALLS = 13


class Walk(gym.Env[Any, Any]):
    """A walk of 30 steps with wind that does nothing; at one step a coin decides whether its end is good."""

    observation_space = gym.spaces.Box(-99, 99, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, decided_at: int | None = FALLS, render_mode: str | None = None) -> None:
        self.decided_at = decided_at
        self.time, self.lost, self.wind = 0, False, 0.0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.time, self.lost, self.wind = 0, False, 0.0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        coin, self.wind = self.np_random.random() < 0.5, float(self.np_random.normal())
        slips = self.time == self.decided_at and coin
        self.lost |= slips
        self.time += 1
        ended = self.time == 30
        bad = self.lost if self.decided_at is not None else ended and coin
        reward = (-1.0 if bad else 1.0) if ended else 0.0
        return self._seen(), reward, ended, False, {"slips": bool(slips)}

    def _seen(self) -> Array:
        return np.array([self.time, np.clip(self.wind, -9, 9)], np.float32)


gym.register(id="Walk-v0", entry_point="tests.answers.test_turning_search:Walk")


def episodes(**world: Any) -> tpd.PlayedEpisodes:
    events = [
        tpd.event("bad end", lambda t: t.terminated & (t.reward < 0)),
        tpd.event("good end", lambda t: t.terminated & (t.reward > 0)),
        tpd.event("gust", lambda t: t.next_observation[:, 1] > 1),
        tpd.event("slips", lambda t: t.info["slips"], info_keys=["slips"]),
    ]
    env = tpd.Environment("Walk-v0", kwargs=world)
    explainer = tpd.Explainer(
        lambda o: np.zeros(len(o), int), env=env, events=tpd.OutcomeSet(events), horizon=5
    )
    return explainer.play(seeds=range(6))


def test_the_irrevocable_step_is_ranked_first() -> None:
    for episode in (episodes()[0], episodes()[-1]):  # a bad one and a good one
        points = episode.turning_points(seconds=600)
        assert [point.step for point in points] == [FALLS]
        (point,) = points
        assert point.last == point.step
        assert point.moment.step == FALLS
        assert abs(point.before - 0.5) < 0.2
        assert point.after in (0, 1)
        assert point.event in ("bad end", "good end")


def test_it_is_told_as_a_story() -> None:
    (point,) = episodes()[0].turning_points(seconds=600)
    assert str(point).startswith(f"step {FALLS}: ")
    assert "slips" in str(point)
    moves = "rises" if point.event == "bad end" else "falls"
    said = f"the probability of {point.event} by step 34 {moves} from {100 * point.before:.0f} to "
    assert said in str(point)
    assert f"({turning_search.CONFIRMED} rollouts each)" in str(point)


def test_an_episode_prints_its_turning_points() -> None:
    played = episodes()[0]
    assert "\n" not in repr(played)
    assert str(played).splitlines() == [repr(played), *(f"  {p}" for p in played.turning_points())]
    assert f"step {FALLS}" in str(played)


def test_what_is_decided_by_the_last_step_has_no_turning_point() -> None:
    """The step that ends the episode is none, and before it nothing changes but by noise."""
    assert episodes(decided_at=None)[0].turning_points(seconds=600) == []


def test_without_time_the_place_is_told_as_far_as_it_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(turning_search, "MOST_ASKED", len(turning_search.GRID))
    (point,) = episodes()[0].turning_points(seconds=600)
    assert point.step <= FALLS <= point.last
    assert point.last > point.step
    assert "ran out of time after 600 s, so there may be others" in caplog.text
    assert str(point).startswith(f"steps {point.step} to {point.last}: the probability of ")


def test_a_search_without_time_does_not_say_that_there_are_none(caplog: pytest.LogCaptureFixture) -> None:
    played = episodes(decided_at=None)[0]
    assert played.turning_points(seconds=600) == []
    assert not caplog.text
    assert played.turning_points(seconds=0) == []
    assert "ran out of time after 0 s, so there may be others" in caplog.text


def test_a_storm_turns_a_crossing() -> None:
    explainer = tpd.Explainer(crossing.sailor(), env="Crossing-v0", events=crossing.outcomes(), horizon=5)
    played = explainer.play(seeds=range(30))
    stormy = next(episode for episode in played if "storm" in episode.happened)
    (point,) = stormy.turning_points(seconds=600)
    assert (point.step, point.happened) == (0, "storm")


def test_a_world_that_cannot_be_forked_says_so() -> None:
    class Unseeded(Walk):
        def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
            self.np_random = np.random.default_rng()
            return super().step(action)

    explainer = tpd.Explainer(
        lambda o: np.zeros(len(o), int), env=Unseeded, events={"end": lambda t: t.terminated}, horizon=5
    )
    episode = explainer.play(seeds=[0])[0]
    with pytest.raises(ValueError, match="cannot be forked"):
        episode.turning_points()
    assert "cannot be forked" in str(episode)
