"""Conformal intervals: they cover what they promise, whatever the forecasts, and say when they cannot."""

import numpy as np
import pytest
from conformal import (
    ConformalCalibration,
    Forecast,
    largest_ratio,
    likelihood_ratios,
    observed,
    random_steps,
)

from tests.support import small_mdp
from tests.support.small_mdp import NUM_ACTIONS, NUM_STATES
from tpd.core.seeding import generator
from tpd.core.types import Episodes, FloatArray, Transitions
from tpd.policies.tabular import TabularPolicy
from tpd.sources.collection import play

LEVEL = 0.9
HORIZON = 5
EPSILON = 0.4


def episodes_of(lengths: list[int], terminated: list[bool]) -> Episodes:
    """With rewards 1, 2, 3, ... through all of them; those that do not terminate are truncated."""
    total, last = sum(lengths), np.cumsum(lengths) - 1
    ends, cut = np.zeros((2, total), dtype=np.bool_)
    ends[last] = terminated
    cut[last] = ~np.array(terminated)
    numbers = np.zeros(total, dtype=np.int64)
    transitions = Transitions(numbers, numbers, numbers, np.arange(1.0, total + 1), ends, cut)
    return Episodes(transitions, np.cumsum([0, *lengths[:-1]]))


def test_the_threshold_is_the_rank_that_the_next_window_reaches() -> None:
    scores = np.random.default_rng(0).permutation(np.arange(1.0, 20.0))
    assert ConformalCalibration(scores).threshold(0.9) == 18  # ceil(20 * 0.9)
    assert ConformalCalibration(scores).threshold(0.91) == 19
    assert ConformalCalibration(scores).threshold(0.96) == np.inf
    assert ConformalCalibration(scores[:9]).threshold(0.9) == scores[:9].max()
    assert ConformalCalibration(scores[:8]).threshold(0.9) == np.inf


def test_windows_without_weight_count_for_nothing() -> None:
    rng = np.random.default_rng(1)
    scores, kept = rng.normal(size=2000), rng.random(2000) < 0.3
    weighted = ConformalCalibration(scores, 7.0 * kept, 7.0)
    assert weighted.threshold(LEVEL) == ConformalCalibration(scores[kept]).threshold(LEVEL)
    assert weighted.effective_size == pytest.approx(kept.sum())


def test_a_heavier_window_to_come_needs_more_room() -> None:
    scores = np.random.default_rng(2).normal(size=1000)
    thresholds = [
        ConformalCalibration(scores, np.ones(1000), most).threshold(LEVEL) for most in (1, 30, 70, 120)
    ]
    assert thresholds == sorted(thresholds)
    assert np.isfinite(thresholds[-2])
    assert thresholds[-1] == np.inf  # 120 of 1120 are more than a tenth


@pytest.mark.parametrize(("windows", "infinite"), [(99, True), (100, False)])
def test_few_effective_windows_give_no_interval(windows: int, infinite: bool) -> None:
    weights = np.append(np.full(windows, 2.0), np.zeros(5000))
    calibration = ConformalCalibration(np.zeros(len(weights)), weights, 2.0)
    assert calibration.effective_size == pytest.approx(windows)
    low, high = calibration.interval(Forecast.around(np.zeros(1)), LEVEL)
    assert (np.isinf(high - low)).all() == infinite


def test_no_weight_at_all_gives_no_interval() -> None:
    calibration = ConformalCalibration(np.zeros(500), np.zeros(500), 2.0)
    assert calibration.effective_size == 0
    assert calibration.threshold(LEVEL) == np.inf


def test_a_weight_above_the_largest_is_refused() -> None:
    with pytest.raises(ValueError, match="weighs 3, more than the largest weight 2"):
        ConformalCalibration(np.zeros(2), np.array([1.0, 3.0]), 2.0)


def test_intervals_grow_with_the_scale_and_never_cross() -> None:
    forecast = Forecast(np.array([0.0, 10.0]), np.array([4.0, 20.0]), np.array([1.0, 3.0]))
    wide = ConformalCalibration(np.full(99, 2.0)).interval(forecast, LEVEL)
    np.testing.assert_array_equal(wide, [[-2.0, 4.0], [6.0, 26.0]])
    narrow = ConformalCalibration(np.full(99, -3.0)).interval(forecast, LEVEL)
    np.testing.assert_array_equal(narrow, [[2.0, 15.0], [2.0, 15.0]])


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_a_scale_that_is_none_is_refused(scale: float) -> None:
    with pytest.raises(ValueError, match="scale of a forecast must be above 0"):
        Forecast.around(np.zeros(2), np.array([1.0, scale]))


def test_sums_know_of_endings_and_cuts() -> None:
    episodes = episodes_of([2, 4, 3], [True, True, False])
    reward, steps = episodes.transitions.reward, np.array([0, 1, 2, 4, 6, 7])
    sums = observed(episodes, steps, reward, np.ones(3))
    np.testing.assert_array_equal(sums, [3, 2, 3 + 4 + 5, 5 + 6, 7 + 8 + 9, np.nan])
    discounted = observed(episodes, steps, reward, 0.5 ** np.arange(3))
    np.testing.assert_array_equal(discounted, [2, 2, 3 + 2 + 1.25, 5 + 3, 7 + 4 + 2.25, np.nan])
    at_last = observed(episodes, steps, reward, np.array([0, 0, 1.0]))
    np.testing.assert_array_equal(at_last, [0, 0, 5, 0, 9, np.nan])


def test_a_window_cut_short_is_the_worst_there_can_be() -> None:
    forecast = Forecast.around(np.zeros(3))
    np.testing.assert_array_equal(forecast.scores(np.array([1.0, -2.0, np.nan])), [1, 2, np.inf])
    judged = (
        ConformalCalibration(np.ones(99)).interval(forecast, LEVEL).contains(np.array([1.0, -2.0, np.nan]))
    )
    np.testing.assert_array_equal(judged, [1, 0, np.nan])


def test_where_there_is_no_forecast_the_guarantee_stands() -> None:
    """A score that is NaN counts as the worst, and an interval around nothing is infinite."""
    scores = np.append(np.arange(1.0, 98.0), [np.nan, np.nan])
    assert ConformalCalibration(scores).threshold(LEVEL) == 90
    assert ConformalCalibration(np.full(500, np.nan)).threshold(LEVEL) == np.inf
    forecast = Forecast.around(np.array([0.0, np.nan]))
    np.testing.assert_array_equal(forecast.scores(np.ones(2)), [1, np.inf])
    interval = ConformalCalibration(scores).interval(forecast, LEVEL)
    np.testing.assert_array_equal(interval, [[-90, -np.inf], [90, np.inf]])
    np.testing.assert_array_equal(interval.contains(np.zeros(2)), [1, 1])


def test_what_cannot_be_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="400 weights for 500 scores"):
        ConformalCalibration(np.zeros(500), np.ones(400))
    with pytest.raises(ValueError, match="weights must be 0 or more, got -1"):
        ConformalCalibration(np.zeros(2), np.array([1.0, -1.0]))
    with pytest.raises(ValueError, match="weights must be 0 or more, got nan"):
        ConformalCalibration(np.zeros(2), np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"ranges from low to high, got 1\.0 to -1\.0"):
        Forecast.between(np.array([0.0, 1.0]), np.array([0.0, -1.0]))
    with pytest.raises(ValueError, match="horizon must be 1 or more, got -3"):
        largest_ratio(0.2, 6, -3)


def test_a_step_is_drawn_from_each_episode_where_the_limit_cannot_cut() -> None:
    episodes = episodes_of([2, 10, 7, 10], [True, False, True, True])
    drawn = np.array(
        [
            random_steps(episodes, horizon=6, time_limit=10, rng=np.random.default_rng(seed))
            for seed in range(200)
        ]
    )
    found = [
        sorted(set((steps - begin).tolist())) for steps, begin in zip(drawn.T, episodes.begins, strict=True)
    ]
    assert found == [[0, 1], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    reward = episodes.transitions.reward
    assert not np.isnan([observed(episodes, steps, reward, np.ones(6)) for steps in drawn]).any()


def test_a_limit_below_the_horizon_shows_no_window() -> None:
    with pytest.raises(ValueError, match="episodes end after 10 steps, so none shows 11 steps"):
        random_steps(episodes_of([10], [False]), 11, 10, np.random.default_rng(0))


@pytest.mark.parametrize("windows", [30, 200])
def test_coverage_holds_for_forecasts_that_are_nonsense(windows: int) -> None:
    """Over many calibrations the mean coverage is between the level and 1 / (windows + 1) above it."""
    rng = np.random.default_rng(windows)
    covered = []
    for _ in range(1500):
        seen, centre = rng.exponential(size=(2, windows + 50))
        forecast = Forecast.around(-3 * centre, 0.1 + rng.random(windows + 50))
        calibrating, fresh = (
            Forecast(forecast.low[part], forecast.high[part], forecast.scale[part])
            for part in (slice(windows), slice(windows, None))
        )
        interval = ConformalCalibration(calibrating.scores(seen[:windows])).interval(fresh, LEVEL)
        covered.append(interval.contains(seen[windows:]).mean())
    error = 4 * np.std(covered) / np.sqrt(len(covered))
    assert LEVEL - error < np.mean(covered) < LEVEL + 1 / (windows + 1) + error


def policies() -> tuple[TabularPolicy, TabularPolicy]:
    """The policy that most often arrives in odd states, and one that explores around it."""
    model = small_mdp.environment().model
    assert model is not None
    best = (model.probability * model.reward).sum(axis=2).argmax(axis=1)
    greedy = np.eye(NUM_ACTIONS)[best]
    exploring = (1 - EPSILON) * greedy + EPSILON / NUM_ACTIONS
    return TabularPolicy(greedy, 0.9), TabularPolicy(exploring, 0.9)


def played(policy: TabularPolicy, count: int, purpose: str) -> tuple[Episodes, FloatArray]:
    episodes = play(small_mdp.environment(), policy, generator(0, purpose), episodes=count)
    powers = policy.discount ** np.arange(HORIZON)
    return episodes, observed(episodes, episodes.begins, episodes.transitions.reward, powers)


def test_likelihood_ratios_are_products_over_the_window_and_one_on_average() -> None:
    policy, behaviour = policies()
    episodes, _ = played(behaviour, 20_000, "ratios")
    ratios = likelihood_ratios(policy, behaviour, episodes, HORIZON)
    states = np.arange(NUM_STATES)
    table = policy.probabilities(states) / behaviour.probabilities(states)
    for number in range(50):
        window = episodes[number][:HORIZON]
        assert ratios[number] == pytest.approx(table[window.observation, window.action].prod())
    assert ratios.mean() == pytest.approx(1, abs=4 * ratios.std() / np.sqrt(len(ratios)))
    assert ratios.max() == pytest.approx(largest_ratio(EPSILON, NUM_ACTIONS, HORIZON))


def somewhere_below(observed: FloatArray, purpose: str) -> Forecast:
    return Forecast.around(-generator(0, purpose).random(len(observed)))


def test_weights_mend_the_coverage_that_exploring_episodes_would_miss() -> None:
    policy, behaviour = policies()
    _, fresh = played(policy, 20_000, "fresh")
    forecast = somewhere_below(fresh, "fresh forecasts")
    covered: dict[str, list[float]] = {"weighted": [], "as if its own": []}
    for number in range(20):
        episodes, seen = played(behaviour, 3000, f"calibration {number}")
        scores = somewhere_below(seen, f"forecasts {number}").scores(seen)
        ratios = likelihood_ratios(policy, behaviour, episodes, HORIZON)
        largest = largest_ratio(EPSILON, NUM_ACTIONS, HORIZON)
        weighted, own = ConformalCalibration(scores, ratios, largest), ConformalCalibration(scores)
        covered["weighted"].append(weighted.interval(forecast, LEVEL).contains(fresh).mean())
        covered["as if its own"].append(own.interval(forecast, LEVEL).contains(fresh).mean())
    assert LEVEL - 0.01 < np.mean(covered["weighted"]) < LEVEL + 0.03
    assert np.mean(covered["as if its own"]) < LEVEL - 0.02
