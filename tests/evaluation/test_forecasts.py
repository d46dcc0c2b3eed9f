"""Forecasts against what happened: what counts, what is left out, and that good forecasts are seen to be."""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex

from tests.support import small_mdp
from tpd.core.outcomes import Outcome, OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, Episodes, FloatArray, Predictor, Transitions, concatenate
from tpd.envs import Environment
from tpd.evaluation import forecasts as module
from tpd.evaluation import windows
from tpd.evaluation.forecasts import ForecastSkill, forecast_skill, step_ranges
from tpd.evaluation.skill import score
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.show import plots, reliability
from tpd.sources.collection import play

HORIZON = 8
TERMINATED = 3  # the column after those of odd, even and first odd


@dataclass(frozen=True)
class Told:
    """Forecasts given by hand."""

    expected: FloatArray
    """[state, horizon, outcome]"""
    untried: list[int] = field(default_factory=list)
    tie: ClassVar[float] = 0.0

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return np.asarray(self.expected[observations])

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.where(np.isin(observations, self.untried), 0.0, 1.0)


def told(
    outcomes: OutcomeSet, expected: Array | float, horizon: int = 1, unknown: list[int] | None = None
) -> Explainer:
    """An explainer that forecasts [state, horizon, outcome], or what can be broadcast to it."""
    table = np.broadcast_to(expected, (small_mdp.NUM_STATES, horizon, outcomes.width))
    return Explainer(Told(table, unknown or []), small_mdp.policy(), outcomes.legend)


def episode(states: list[int], *, terminated: bool = False, truncated: bool = False) -> Transitions:
    """One that goes through these states; without an ending it simply stops."""
    last = np.arange(len(states) - 1) == len(states) - 2
    path = np.array(states)
    action, reward = np.zeros(len(last), dtype=int), (path[1:] % 2).astype(float)
    return Transitions(path[:-1], action, path[1:], reward, last & terminated, last & truncated)


def joined(*parts: Transitions) -> Episodes:
    return Episodes(concatenate(parts), np.cumsum([0, *(len(part) for part in parts[:-1])]))


def only_odd(first: bool = False) -> OutcomeSet:
    return OutcomeSet([event("odd", small_mdp.odd, first=first)])


def played(seed: int = 0, count: int = 3000, env: Environment | None = None) -> Episodes:
    return play(env or small_mdp.environment(), small_mdp.policy(), generator(seed, "test"), episodes=count)


def truth(horizon: int = HORIZON) -> Explainer:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=horizon)
    return Explainer(solution, policy, outcomes.legend)


def altered(explainer: Explainer, change: Callable[[FloatArray], FloatArray]) -> Explainer:
    """The explainer with other forecasts [pair, horizon, outcome]."""
    table = explainer.predictor.table()  # type: ignore[attr-defined]
    return Explainer(replace(table, expected=change(table.expected)), explainer.policy, explainer.legend)


def imbalance(forecasts: ForecastSkill) -> float:
    """How many standard errors the worst bin is off the diagonal.

    Windows at a distance of less than the horizon overlap, so that many of them count as one.
    """
    horizon, worst = len(forecasts.by_horizon.windows), list[float]()
    for name in compress(forecasts.names, forecasts.is_event):
        bins = forecasts.reliability(name)
        filled = bins.windows >= 500
        forecast, frequency = bins.forecast[filled], bins.frequency[filled]
        variance = np.maximum(forecast * (1 - forecast), 1e-4) * horizon / bins.windows[filled]
        worst.append(float(np.max(np.abs(frequency - forecast) / np.sqrt(variance))))
    return float(np.max(worst))


def test_two_episodes_by_hand() -> None:
    """The second one stops, so that nobody knows what would have followed its last step."""
    episodes = joined(episode([0, 1, 2], terminated=True), episode([0, 2, 3]))
    forecast = np.array([[0.5, 0.0], [0.25, 0.5]])
    found = forecast_skill(told(only_odd(), forecast, horizon=2), only_odd(), episodes)
    expected = pd.DataFrame(
        [
            # one step ahead: not odd, over, odd
            ("odd", "0", 1 / 2, 1 / 4, 1 / 4, 0.0, 4),
            ("odd", "1", 1 / 3, 0.6875 / 3, 2 / 9, 1 - 0.6875 / (2 / 3), 3),
            ("odd", "all", 3 / 7, 1.6875 / 7, (1 + 2 / 3) / 7, 1 - 1.6875 / (1 + 2 / 3), 7),
            ("terminated", "0", 1 / 4, 1 / 4, 3 / 16, 1 - 4 / 3, 4),
            ("terminated", "1", 1 / 3, 1 / 4, 2 / 9, 1 - 9 / 8, 3),
            ("terminated", "all", 2 / 7, 1.75 / 7, (0.75 + 2 / 3) / 7, 1 - 1.75 / (0.75 + 2 / 3), 7),
        ],
        columns=["outcome", "range", "base_rate", "score", "reference", "skill", "windows"],
    )
    frame = found.frame()
    each = frame[~frame["range"].str.startswith("by")].reset_index(drop=True)
    pd.testing.assert_frame_equal(each[expected.columns], expected)
    assert found.metrics() == pytest.approx(
        {
            "odd/brier": 1.6875 / 7,
            "odd/skill": 1 - 1.6875 / (1 + 2 / 3),
            "terminated/brier": 1 / 4,
            "terminated/skill": 1 - 1.75 / (0.75 + 2 / 3),
            "odd/skill_by_0": 0,
            "odd/skill_by_1": 1 - 0.6875 / (2 / 3),
            "terminated/skill_by_0": 1 - 4 / 3,
            "terminated/skill_by_1": 1 - 0.75 / (2 / 3),
            "forecasts/windows": 7,
            "forecasts/unknown": 0,
            "forecasts/learned": np.nan,
            "forecasts/skill": 1 - (1.6875 / (1 + 2 / 3) + 1.75 / (0.75 + 2 / 3)) / 2,
        },
        nan_ok=True,
    )
    bins = found.reliability("odd")
    assert bins.windows.tolist() == [0, 0, 3, 0, 0, 4, 0, 0, 0, 0]
    np.testing.assert_allclose(bins.forecast[[2, 5]], [0.25, 0.5])
    np.testing.assert_allclose(bins.frequency[[2, 5]], [1 / 3, 1 / 2])
    assert np.isnan(bins.frequency[0])
    assert found.reliability("odd", "1").windows.sum() == 3


def test_termination_is_zeros_and_a_time_limit_is_nothing() -> None:
    """It is odd for as long as it lasts, and forecast to be so for ever."""
    explainer, path = told(only_odd(), np.array([1.0, 0.0]), horizon=3), [1, 3, 5, 1]
    cut = forecast_skill(explainer, only_odd(), joined(episode(path, truncated=True)))
    stopped = forecast_skill(explainer, only_odd(), joined(episode(path)))
    over = forecast_skill(explainer, only_odd(), joined(episode(path, terminated=True)))
    for unknown_end in (cut, stopped):
        assert unknown_end.by_horizon.windows.tolist() == [3, 2, 1]
        assert unknown_end.at.scores.score[-1].tolist() == [0, 0]
    assert over.by_horizon.windows.tolist() == [3, 3, 3]
    np.testing.assert_allclose(over.by_horizon.base_rate[:, 0], [1, 2 / 3, 1 / 3])
    np.testing.assert_allclose(over.at.scores.score[-1], [3 / 9, 3 / 9])


def test_the_end_of_one_episode_does_not_reach_into_the_next() -> None:
    ones = [episode([1, 3, 5], terminated=True), episode([0, 2, 4, 2], terminated=True)]
    found = forecast_skill(told(only_odd(), 0.0, horizon=4), only_odd(), joined(*ones))
    np.testing.assert_allclose(found.by_horizon.base_rate[:, 0], [2 / 5, 1 / 5, 0, 0])
    np.testing.assert_allclose(found.by_horizon.base_rate[:, 1], [2 / 5, 2 / 5, 1 / 5, 0])


def test_only_the_first_occurrence_counts() -> None:
    episodes = joined(episode([0, 2, 1, 2, 1], terminated=True))
    rates = {}
    for first in (False, True):
        found = forecast_skill(told(only_odd(first), 0.0, horizon=3), only_odd(first), episodes)
        rates[first] = found.by_horizon.base_rate[:, 0].tolist()
    assert rates == {False: [1 / 2, 1 / 2, 1 / 4], True: [1 / 2, 1 / 2, 0]}


def test_the_truth_is_calibrated_and_as_skilful_as_it_can_be() -> None:
    episodes, explainer = played(), truth()
    found = forecast_skill(explainer, small_mdp.outcomes(), episodes)
    assert imbalance(found) < 4
    assert (found.at.scores.skill[-1, :TERMINATED] > 0.05).all()
    assert found.at.scores.skill[-1, TERMINATED] == pytest.approx(0, abs=1e-3)  # as likely in every state
    steps = episodes.transitions
    p = explainer.predictor.predict(steps.observation, steps.action)
    mean = p.mean(axis=0)
    exact = 1 - (p * (1 - p)).mean(axis=0).sum(axis=0) / (mean * (1 - mean)).sum(axis=0)
    assert (np.abs(found.at.scores.skill[-1, :4] - exact) < 4 * found.at.skill_error[-1, :4]).all()
    assert (found.at.skill_error[-1] < 0.01).all()


def test_a_forecast_of_the_wrong_step_is_worse() -> None:
    episodes, right = played(), truth(HORIZON + 1)
    late = altered(right, lambda expected: expected[:, 1:])
    outcomes = small_mdp.outcomes()
    found, best = forecast_skill(late, outcomes, episodes), forecast_skill(truth(), outcomes, episodes)
    worse = best.at.scores.skill[-1] - found.at.scores.skill[-1]
    assert (worse > 4 * best.at.skill_error[-1]).all()
    assert imbalance(found) > 10


def test_the_base_rate_has_no_skill() -> None:
    outcomes, episodes = small_mdp.outcomes(), played()
    rates = forecast_skill(truth(), outcomes, episodes).by_horizon.base_rate[:, : outcomes.width]
    explainer = told(outcomes, rates, HORIZON)
    np.testing.assert_allclose(forecast_skill(explainer, outcomes, episodes).at.scores.skill, 0, atol=1e-9)
    fresh = forecast_skill(explainer, outcomes, played(seed=1))
    assert (np.abs(fresh.at.scores.skill[-1]) < 0.005).all()
    assert imbalance(fresh) < 4


def test_the_truth_is_calibrated_under_a_time_limit() -> None:
    """Windows beyond the limit would be those of episodes that terminated, and of no others."""
    limit = 6
    episodes = played(count=6000, env=Environment("SmallMDP-v0", max_episode_steps=limit))
    found = forecast_skill(truth(), small_mdp.outcomes(), episodes)
    assert imbalance(found) < 4
    assert found.by_horizon.windows[limit - 1] == len(episodes)
    assert found.by_horizon.windows[limit:].tolist() == [0, 0]
    assert np.isnan(found.by_horizon.score[limit:]).all()
    hidden = replace(episodes.transitions, truncated=np.zeros(len(episodes.transitions), dtype=bool))
    selected = forecast_skill(truth(), small_mdp.outcomes(), replace(episodes, transitions=hidden))
    assert imbalance(selected) > 10


def test_the_standard_error_is_the_spread_over_repetitions() -> None:
    outcomes, explainer = small_mdp.outcomes(), truth()
    repeated = [forecast_skill(explainer, outcomes, played(seed, count=200)) for seed in range(40)]
    spread = np.std([found.at.scores.skill for found in repeated], axis=0, ddof=1)
    claimed = np.mean([found.at.skill_error for found in repeated], axis=0)
    ratio = claimed / spread
    assert (ratio > 0.7).all()
    # where there is next to no skill to be had, the bootstrap errs on the safe side
    assert (ratio[-1, :TERMINATED] < 1.4).all()
    np.testing.assert_array_equal(
        repeated[0].at.skill_error, forecast_skill(explainer, outcomes, played(0, 200)).at.skill_error
    )


def test_one_episode_has_no_standard_error() -> None:
    found = forecast_skill(truth(), small_mdp.outcomes(), joined(episode([0, 1, 2, 3, 2], terminated=True)))
    assert np.isnan(found.at.skill_error).all()


def test_unknown_pairs_are_left_out_and_counted() -> None:
    forecast = np.zeros((small_mdp.NUM_STATES, 1, 2))
    forecast[4] = np.nan
    episodes = joined(episode([0, 4, 1, 2], terminated=True), episode([2, 3], terminated=True))
    found = forecast_skill(told(only_odd(), forecast, unknown=[4]), only_odd(), episodes)
    assert found.unknown == 1 / 4
    assert found.metrics()["forecasts/unknown"] == 1 / 4
    assert found.by_horizon.windows.tolist() == [3]
    assert found.by_horizon.base_rate[0, 0] == pytest.approx(1 / 3)  # 4 -> 1 is left out, 2 -> 3 is not
    nothing = forecast_skill(told(only_odd(), forecast, unknown=[0, 1, 2, 3, 4]), only_odd(), episodes)
    assert nothing.unknown == 1
    assert np.isnan(nothing.at.scores.skill).all()
    assert np.isnan(nothing.at.skill_error).all()


def test_outcomes_that_are_no_events() -> None:
    outcomes = OutcomeSet([Outcome("state", lambda t: t.next_observation / 2, 0, 5)])
    episodes = joined(episode([0, 1, 2, 5], terminated=True))
    found = forecast_skill(told(outcomes, np.array([1.0, 0.0])), outcomes, episodes)
    observed = np.array([0.5, 1.0, 2.5])
    score = np.mean((observed - 1) ** 2)
    assert found.at.scores.score[-1, 0] == pytest.approx(score)
    assert found.at.scores.reference[-1, 0] == pytest.approx(observed.var())
    assert found.metrics()["state/score"] == pytest.approx(score)
    assert found.metrics()["state/skill"] == pytest.approx(1 - score / observed.var())
    assert "state/brier" not in found.metrics()
    assert found.reliability("state").windows.sum() == 0
    assert found.reliability("terminated").windows.sum() == 3


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_there_is_no_skill_where_it_is_always_the_same(value: float) -> None:
    outcomes = OutcomeSet([Outcome("same", lambda t: np.full(len(t), value), 0, 1)])
    found = forecast_skill(told(outcomes, 0.5), outcomes, joined(episode([0, 1] * 50, terminated=True)))
    assert found.at.scores.reference[-1, 0] == 0
    assert np.isnan(found.at.scores.skill[-1, 0])
    assert found.at.scores.score[-1, 0] == pytest.approx((value - 0.5) ** 2)


def test_termination_is_forecast_once() -> None:
    outcomes = OutcomeSet([event("terminated", lambda t: t.terminated)])
    found = forecast_skill(told(outcomes, 0.5), outcomes, joined(episode([0, 1, 2], terminated=True)))
    assert found.names == ("terminated",)


def test_portions_and_blocks_change_nothing_but_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes, episodes = small_mdp.outcomes(), played(count=100)
    whole = forecast_skill(truth(), outcomes, episodes)
    monkeypatch.setattr(module, "CELLS", 7 * HORIZON * outcomes.width)
    monkeypatch.setattr(windows, "BLOCKS", 30)
    parts = forecast_skill(truth(), outcomes, episodes)
    columns = whole.frame().columns.drop(["skill_error", "skill_bound", "episodes", "verdict"])
    pd.testing.assert_frame_equal(whole.frame()[columns], parts.frame()[columns])
    np.testing.assert_array_equal(whole.bins.windows, parts.bins.windows)
    assert (np.abs(np.log(parts.at.skill_error / whole.at.skill_error)) < np.log(2)).all()


def test_forecasts_are_not_all_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    horizon, outcomes = 50, only_odd()
    episodes = joined(*[episode([0, 1] * 250, terminated=True)] * 40)
    explainer = told(outcomes, 0.5, horizon)
    monkeypatch.setattr(module, "CELLS", 100_000)
    tracemalloc.start()
    found = forecast_skill(explainer, outcomes, episodes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.at.scores.windows[-1] == len(episodes.transitions) * horizon
    assert peak < found.at.scores.windows[-1] * outcomes.width * 8 / 2


@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 6, 7, 12, 30, 100])
def test_ranges_hold_every_step_once(horizon: int) -> None:
    ranges = step_ranges(horizon)
    assert [h for steps in ranges for h in steps] == list(range(horizon))
    assert ranges[0] == range(1)
    assert all(ranges)


def test_ranges_of_thirty_steps() -> None:
    found = forecast_skill(
        told(only_odd(), 0.0, horizon=30), only_odd(), joined(episode([0, 1], terminated=True))
    )
    assert found.at.ranges == ("0", "1-4", "5-14", "15-29", "all")


def test_what_is_wrong_is_named() -> None:
    episodes = joined(episode([0, 1], terminated=True), episode([2, 3], terminated=True))
    explainer = told(only_odd(), 0.0)
    with pytest.raises(
        ValueError, match="predicts \\('odd',\\), but the outcomes are \\('odd', 'even', 'first odd'\\)"
    ):
        forecast_skill(explainer, small_mdp.outcomes(), episodes)
    with pytest.raises(ValueError, match="continues after its end, at transition 0"):
        forecast_skill(explainer, only_odd(), replace(episodes, begins=np.array([0])))
    with pytest.raises(ValueError, match="begins must start with 0"):
        forecast_skill(explainer, only_odd(), replace(episodes, begins=np.array([1])))
    with pytest.raises(ValueError, match=r"forecast for observation=0.* is not finite"):
        forecast_skill(told(only_odd(), np.nan), only_odd(), episodes)


def points(axes: Axes) -> list[tuple[list[float], list[float], str]]:
    """Forecasts, frequencies and colour of the markers."""
    lines = [line for line in axes.lines if line.get_marker() == "o" and np.size(line.get_xdata())]
    data = [np.asarray(line.get_xydata()).T.tolist() for line in lines]
    return [(*xy, to_hex(line.get_markerfacecolor()).upper()) for xy, line in zip(data, lines, strict=True)]


def test_each_event_has_a_diagram_in_its_colour() -> None:
    some = [event("odd", small_mdp.odd), Outcome("size", lambda t: t.next_observation, 0, 5)]
    outcomes = OutcomeSet([*some, event("never", lambda t: t.next_observation < 0)])
    episodes = joined(*[episode([0, 1, 2], terminated=True)] * 60, episode([4, 2, 2]))
    found = forecast_skill(told(outcomes, 0.25, horizon=2, unknown=[4]), outcomes, episodes)
    figure = reliability.draw(found, "mine")
    shown = {axes.get_title().split("\n")[0]: axes for axes in figure.axes if axes.get_title()}
    assert list(shown) == ["odd", "terminated"]
    title = shown["odd"].get_title()
    assert f"skill exactly at h: {found.at.scores.skill[-1, 0]:.2f} ± " in title
    assert found.by.ranges == ("by 0", "by 1")  # what Quality prints
    assert "skill by step 0 / 1: {:.2f} / {:.2f}".format(*found.by.scores.skill[:, 0]) in title
    colour = plots.style(outcomes.legend.names, "odd")["facecolor"]
    assert points(shown["odd"]) == [([0.25], [60 / 241], colour)]
    said = figure.legends[0].get_title().get_text()
    assert said == "never happened: never; left out as unknown: 0.8% of the steps"


def test_frequencies_over_few_windows_are_hollow() -> None:
    found = forecast_skill(told(only_odd(), 0.25), only_odd(), joined(episode([0, 1, 2], terminated=True)))
    assert points(reliability.draw(found, "mine").axes[0]) == [([0.25], [0.5], "#FFFFFF")]


def test_thinned_windows_stand_for_all_and_come_as_often_from_the_ends_of_episodes() -> None:
    rng, policy = generator(0, "test"), small_mdp.policy()
    episodes = play(small_mdp.environment(), policy, rng, episodes=2000)
    course = windows.Course(small_mdp.outcomes(), episodes)
    whole = len(course.steps)
    ends = np.append(episodes.begins[1:], whole)
    course.thin(1200, (0, 2))
    assert len(course.steps) == 1200
    distance = ends[np.searchsorted(ends, course.steps, side="right")] - 1 - course.steps
    strata = np.bincount(np.searchsorted((0, 2), distance))
    np.testing.assert_array_equal(strata, 400)
    assert abs(course.weight[course.steps].sum() - whole) < 1e-6
    explainer = truth()
    every = forecast_skill(explainer, small_mdp.outcomes(), episodes)
    columns = module._columns(explainer, small_mdp.outcomes())
    tally = windows.Tally(len(episodes), HORIZON, columns)
    pairs = episodes.transitions[course.steps]
    tally.add(course, course.steps, explainer.predict(pairs.observation, pairs.action))
    some = score(tally.at.sum(axis=0))
    np.testing.assert_allclose(some.base_rate, every.by_horizon.base_rate, atol=0.04)
    np.testing.assert_allclose(some.score, every.by_horizon.score, atol=0.02)


def test_outcomes_that_need_no_simulation_are_judged_by_all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, outcomes = generator(0, "test"), small_mdp.outcomes()
    episodes = play(small_mdp.environment(), small_mdp.policy(), rng, episodes=300)
    monkeypatch.setattr(module, "SIMULATED", 100)
    quick = np.array([True, False, False, True])
    table = truth().predictor
    predictor = Simulating(table, None)
    simulated = forecast_skill(explained_by(predictor), outcomes, episodes)
    both = forecast_skill(explained_by(Simulating(table, (table, quick))), outcomes, episodes)
    whole = forecast_skill(truth(), outcomes, episodes)
    assert not np.array_equal(simulated.by.scores.score, whole.by.scores.score)
    taken = np.append(quick, False)  # the return is simulated
    for name in ("skill_bound", "verdict"):
        mine = getattr(both.by, name)
        np.testing.assert_array_equal(mine[:, taken], getattr(whole.by, name)[:, taken])
        np.testing.assert_array_equal(mine[:, ~taken], getattr(simulated.by, name)[:, ~taken])
    np.testing.assert_array_equal(both.bins.forecast[:, taken], whole.bins.forecast[:, taken])


@dataclass(frozen=True)
class Simulating:
    """Predicts what another does, and says that it simulates that."""

    other: Predictor
    unsimulated: tuple[Predictor, BoolArray] | None
    simulates: ClassVar[bool] = True
    tie: ClassVar[float] = 0.0

    @property
    def horizon(self) -> int:
        return self.other.horizon

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return self.other.predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return self.other.support(observations, actions)


def explained_by(predictor: Predictor) -> Explainer:
    return Explainer(predictor, small_mdp.policy(), small_mdp.outcomes().legend)
