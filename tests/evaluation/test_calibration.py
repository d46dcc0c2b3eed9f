"""Bands from known errors: within each bin of forecasts they hold the truth, and what they say agrees."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.networks import ACTIONS, HORIZON, STATES, small_network, small_transitions
from tpd.core.bands import ENOUGH_DRAWS, Band, band_of
from tpd.core.outcomes import Legend
from tpd.core.types import FloatArray
from tpd.evaluation.budget import Budget
from tpd.evaluation.calibration import (
    CONFIDENCE,
    ENOUGH,
    FEWEST,
    calibrate,
    confident_levels,
    confident_quantiles,
    effective_moments,
    known_errors,
    neighbours,
    without_noise,
)
from tpd.evaluation.coverage import FORECASTS, band_scores
from tpd.evaluation.examiner import Examiner
from tpd.policies.stored import AbsentPolicy
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.known_errors import EDGES, RANKS, KnownErrors, bins, happened, moved, relative
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.show import survival_curves
from tpd.store import explainers

POLICY, LEGEND = small_mdp.policy(), small_mdp.outcomes().legend
SETTINGS: dict[str, Any] = {"fit_updates": 300, "batch_size": 64, "hidden": [16]}
STEPS = 12
EVENTS = Legend(
    ("bell", "first bell", "crash", "size"), (None,) * 4, (), None, ("bell", "first bell", "crash")
)
"""The bell can ring again, a crash ends the episode, and the size is no event; last comes termination."""


# A world in which forecasts are vague


def world(moments: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """[case, horizon, outcome] of truth and forecast: own action and foil of each moment in turn.

    Whether it rings, and whether it crashes, is known to the simulator but not to the forecast, which is
    right on average. Most moments are far from both, and forecast to be; some of them are not.
    """
    rng = np.random.default_rng(seed)
    near = rng.random((moments, 1)) < 0.4
    foil = rng.random((moments, 2)) < 0.2
    shared = rng.random((moments, 1))
    chance = np.where(near, shared**0.5, 0.02 * shared) * np.where(foil, 0.7, 1)
    comes = rng.random((moments, 2)) < np.where(near, chance, 0.03)
    when = rng.integers(0, STEPS, (moments, 2))
    steps = np.arange(STEPS)
    first = (comes[..., None] & (steps == when[..., None])).astype(float)
    rings = np.cumsum(first, axis=2) * (rng.random((moments, 2, STEPS)) < 0.5)
    rings = np.maximum(rings, first)
    crash = np.roll(first, 1, axis=0)
    size = rng.standard_normal((moments, 2, 1)) + 0.1 * rng.standard_normal((moments, 2, STEPS))
    truth = np.stack([rings, first, crash, size, crash], axis=-1).reshape(2 * moments, STEPS, 5)
    spread = np.broadcast_to(chance[..., None] / STEPS, first.shape)
    ringing = np.cumsum(spread, axis=2) * 0.5
    forecast = np.stack(
        [ringing, spread, np.roll(spread, 1, axis=0), 0 * size, np.roll(spread, 1, axis=0)], axis=-1
    )
    return truth, forecast.reshape(2 * moments, STEPS, 5)


def sampled(truth: FloatArray, rollouts: float = np.inf, seed: int = 0) -> SampledCases:
    """What so many rollouts would show, each of whole curves; every second case is a foil."""
    rng, cases, seen = np.random.default_rng(seed), len(truth), truth
    if np.isfinite(rollouts):
        seen = rng.binomial(int(rollouts), np.clip(truth, 0, 1)) / rollouts
    return SampledCases(
        observations=np.arange(cases) // 2,
        actions=np.arange(cases) % 2,
        own=np.arange(cases) % 2 == 0,
        weight=np.ones(cases),
        expected=seen,
        standard_error=np.sqrt(np.abs(seen * (1 - seen)) / max(rollouts, 1)),
        rollouts=np.full(cases, float(rollouts)),
    )


class Forecaster:
    """Says what it was given, of cases that come in pairs."""

    horizon, tie = STEPS, 0.0

    def __init__(self, forecast: FloatArray) -> None:
        self.forecast = forecast

    def predict(self, observations: FloatArray, actions: FloatArray) -> FloatArray:
        return np.asarray(self.forecast[2 * np.asarray(observations, int) + np.asarray(actions, int)])

    def support(self, observations: FloatArray, actions: FloatArray) -> FloatArray:
        return np.ones(len(actions))


def explained(forecast: FloatArray, errors: KnownErrors | None) -> Explainer:
    policy = TabularPolicy(np.eye(2)[np.zeros(len(forecast) // 2, dtype=int)], 0.9)
    return Explainer(Forecaster(forecast), policy, EVENTS, errors=errors)


@pytest.fixture(scope="module")
def errors() -> KnownErrors:
    truth, forecast = world(200, 0)
    return known_errors(forecast, sampled(truth), EVENTS, np.random.default_rng(1))


@pytest.mark.parametrize("rollouts", [np.inf, 20.0])
def test_bands_hold_the_truth_in_every_bin_of_forecasts(rollouts: float) -> None:
    """Over worlds drawn anew, at least 85 % in each of them; and better than the base rate's band."""
    covered, scores, base = [], [], []
    for seed in range(8):
        truth, forecast = world(200, seed)
        errors = known_errors(forecast, sampled(truth, rollouts), EVENTS, np.random.default_rng(seed))
        other, said = world(400, 100 + seed)
        found = band_scores(explained(said, errors), sampled(other, rollouts, seed))
        assert found is not None
        assert found.names == ("bell", "first bell", "crash")
        covered.append(found.covered)
        scores.append(found.score)
        base.append(found.base_score)
    assert (np.nanmean(covered, axis=0) >= 0.88).all()
    assert np.nanmean(np.array(covered) >= 0.85) > 0.9
    assert (np.mean(scores, axis=0) < np.mean(base, axis=0)).all()


def test_misses_of_confident_forecasts_count() -> None:
    """A forecast of 0 where it often happens: the errors of its own bin make the band wide, and no others."""
    truth, forecast = world(200, 0)
    forecast[..., :2] = 0.0
    wide = known_errors(forecast, sampled(truth), EVENTS, np.random.default_rng(1))
    assert wide.quantiles[1, -1, 0, -3] == 1
    blind = wide.quantiles.copy()
    blind[:, :, 0] = 0
    below = list(FORECASTS).index("below 1 %")
    for errors, enough in ((wide, True), (replace(wide, quantiles=blind), False)):
        found = band_scores(explained(forecast, errors), sampled(truth))
        assert found is not None
        assert (found.covered[1, below] > 0.9) == enough


def test_what_is_drawn_agrees_between_at_first_and_by(errors: KnownErrors) -> None:
    _, forecast = world(50, 7)
    drawn = errors.draws(forecast, np.arange(100) // 2, np.arange(100) % 2 == 1, ENOUGH_DRAWS)
    first, at, by = drawn[..., 1], drawn[..., 0], np.cumsum(drawn[..., 1], axis=2)
    assert (first >= -1e-6).all()
    assert (first <= at + 1e-5).all()
    assert (at <= by + 1e-5).all()
    assert (by <= 1 + 1e-5).all()
    ended = np.cumsum(drawn[..., 2], axis=2)
    assert (np.diff(ended, axis=2) >= -1e-6).all()
    assert ended.max() <= 1 + 1e-5


def test_the_band_of_having_happened_is_that_of_the_quantiles(errors: KnownErrors) -> None:
    """The scored band is the shown one: its ends are the errors of the bin at 5 and 95 %."""
    forecast = np.zeros((2, STEPS, 5))
    forecast[:, 0, 1] = 0.3
    said = happened(forecast[..., 1])
    errors = replace(errors, span=np.zeros(STEPS, dtype=int))
    low, high = (float(errors.quantiles[1, 0, bins(np.array([0.3]))[0], rank]) for rank in (2, 56))
    for count in (19, ENOUGH_DRAWS):
        drawn = errors.draws(forecast, np.array([3, 8]), np.array([False, True]), count)
        band = band_of(np.cumsum(drawn[..., 1], axis=2), said, np.ones(said.shape, dtype=bool))
        np.testing.assert_allclose(band.low, np.minimum(0.3, moved(np.array(0.3), np.array(low))), atol=1e-5)
        np.testing.assert_allclose(
            band.high, np.maximum(0.3, moved(np.array(0.3), np.array(high))), atol=1e-5
        )


def test_errors_after_two_actions_go_together_and_at_two_places_they_do_not() -> None:
    truth, forecast = world(300, 0)
    truth[1::2], forecast[1::2] = truth[::2], forecast[::2]  # a foil is as wrong as its fact
    errors = known_errors(forecast, sampled(truth), EVENTS, np.random.default_rng(1))
    same = np.repeat(forecast[40:41], 4, axis=0)
    same[:, :, 1] = 0.4 / STEPS
    drawn = errors.draws(same, np.array([5, 5, 77, 77]), np.array([False, True] * 2), ENOUGH_DRAWS)
    by = np.cumsum(drawn[..., 1], axis=2)[:, :, -1]
    assert np.corrcoef(by[:, 0], by[:, 1])[0, 1] > 0.6
    assert abs(np.corrcoef(by[:, 0], by[:, 2])[0, 1]) < 0.5
    np.testing.assert_allclose(np.sort(by[:, 0]), np.sort(by[:, 2]), atol=1e-6)
    assert np.corrcoef(drawn[:, 0, 0, 3], drawn[:, 1, 0, 3])[0, 1] > 0.99  # and so for what is no event


def test_a_relative_error_leads_back_to_the_truth() -> None:
    said, true = np.random.default_rng(0).random((2, 100))
    np.testing.assert_allclose(moved(said, relative(said, true)), true)
    ends = relative(np.array([0.3, 0.3, 0.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0, 1.0, 1.0]))
    assert ends.tolist() == [-1, 1, 0, 0, 1]


# Few errors


@pytest.mark.parametrize("count", [30, 60, 200])
@pytest.mark.parametrize("level", [0.7, 0.95])
def test_a_quantile_of_few_errors_is_not_too_small_with_the_confidence_asked_for(
    count: int, level: float
) -> None:
    """The error that is taken is large enough, and the next smaller one would not be."""
    taken = round(count * confident_levels(count, np.array([level]))[0])
    errors = np.sort(np.random.default_rng(0).random((4000, count)), axis=1)
    assert (errors[:, taken - 1] >= level).mean() > CONFIDENCE - 0.03
    assert (errors[:, taken - 2] >= level).mean() < CONFIDENCE + 0.03


def test_where_errors_are_too_few_a_band_is_as_wide_as_can_be() -> None:
    few = confident_quantiles(np.zeros(10), 10)
    assert few[[0, -1]].tolist() == [-1, 1]
    assert confident_quantiles(np.empty(0), 0)[[2, 56]].tolist() == [-1, 1]
    many = confident_quantiles(np.random.default_rng(0).normal(0, 0.1, 500), 500)
    assert (np.diff(many) >= 0).all()
    assert len(many) == RANKS
    assert many[56] == pytest.approx(0.1645, abs=0.04)


def test_moments_of_many_forecasts_count_once() -> None:
    assert effective_moments(np.repeat(np.arange(10), 7)) == 10
    assert effective_moments(np.array([0] * 100 + [1])) == 1
    assert effective_moments(np.array([], dtype=int)) == 0


def test_bins_of_few_moments_take_from_those_beside_but_never_across_1_and_20_percent() -> None:
    said = np.concatenate([np.full(100, 0.001), np.full(5, 0.3), np.full(5, 0.97), np.full(90, 0.995)])[
        :, None
    ]
    found = neighbours(bins(said), np.arange(200))
    assert len(found) == len(EDGES) + 1
    zero, unlikely, likely, high, sure = (
        found[bins(np.array(one))] for one in (0.001, 0.02, 0.3, 0.97, 0.995)
    )
    assert zero == (0, 0)
    assert unlikely == tuple(bins(np.array([0.02, 0.1])))  # all there is between 1 and 20 %
    top = len(EDGES)
    assert sure == (top, top)  # it has enough, and so keeps to itself
    assert high == likely == (3, top)
    enough = np.repeat([0.3, 0.6, 0.9], ENOUGH)[:, None]
    alone = neighbours(bins(enough), np.arange(3 * ENOUGH))
    assert all(alone[b] == (b, b) for b in bins(enough[:, 0]))


def test_noise_of_the_truth_is_taken_out_of_errors_but_never_a_certain_miss() -> None:
    rng = np.random.default_rng(0)
    truth = np.full((5000, 1), 0.5)
    seen = rng.binomial(20, truth) / 20
    said = truth + 0.15 * rng.choice([-1, 1], truth.shape)
    raw, clean = seen - said, without_noise(seen - said, seen, np.full(5000, 20.0))
    assert np.sqrt(np.mean(clean**2)) == pytest.approx(0.15, abs=0.02)
    assert np.sqrt(np.mean(raw**2)) > 0.17
    always = np.ones((1, 1))
    assert without_noise(always - 0.2, always, np.array([20.0])) == pytest.approx(0.8)


def test_only_noise_lets_a_band_miss_what_was_seen(errors: KnownErrors) -> None:
    """One crash of 20 rollouts is missed by a band that ends at 0; none of 20 may be one of 10 %."""
    forecast = np.zeros((2, STEPS, 5))
    sharp = replace(errors, quantiles=np.zeros_like(errors.quantiles))
    truth = np.zeros((2, STEPS, 5))
    for crashes, held in ((0, 1.0), (1, 0.0), (20, 0.0)):
        truth[:, 0, 2] = truth[:, 0, -1] = crashes / 20
        cases = replace(sampled(truth), rollouts=np.full(2, 20.0))
        found = band_scores(explained(forecast, sharp), cases)
        assert found is not None
        assert found.covered[2, 0] == held
    forecast[:, 0, 2] = forecast[:, 0, -1] = 0.1
    truth[...] = 0
    found = band_scores(explained(forecast, sharp), replace(sampled(truth), rollouts=np.full(2, 20.0)))
    assert found is not None
    assert found.covered[2, 1] == 1.0


# Networks


def fitted(steps: int = 1000, **settings: Any) -> NetworkFHTD:
    learner = small_network(POLICY, **(SETTINGS | settings))
    learner.update(small_transitions(POLICY, steps))
    learner.fit()
    return learner


def rollouts(moments: int = 40, count: int = 40) -> MonteCarlo:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    return MonteCarlo(env, POLICY, outcomes, horizon=HORIZON, moments=moments, rollouts=count)


def calibrated(explainer: Explainer, truth: MonteCarlo, episodes: int, seed: int) -> Explainer:
    rng = np.random.default_rng(seed)
    calibrate(explainer, truth.cases(episodes, rng), rng)
    return explainer


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    return calibrated(Explainer(fitted(), POLICY, LEGEND), rollouts(60), 20, seed=2)


def test_there_are_no_bands_before_calibration_nor_from_too_few_moments() -> None:
    explainer = Explainer(fitted(200), POLICY, LEGEND)
    calibrated(explainer, rollouts(FEWEST - 1, 2), 5, seed=2)
    assert explainer.explain(STATES, ACTIONS, draws=9).draws is None
    calibrated(explainer, rollouts(FEWEST, 2), 5, seed=2)
    assert explainer.explain(STATES, ACTIONS, draws=9).draws is not None


def test_errors_of_an_earlier_network_are_forgotten() -> None:
    explainer = calibrated(Explainer(fitted(200), POLICY, LEGEND), rollouts(FEWEST, 2), 5, seed=2)
    assert explainer.errors is not None
    learner = explainer.predictor
    assert isinstance(learner, NetworkFHTD)
    learner.learn()
    assert explainer.errors is None
    assert explainer.explain(STATES, ACTIONS, draws=9).draws is None


def test_calibrated_bands_hold_the_exact_truth(explainer: Explainer) -> None:
    exact = ExactSolution(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)
    explanation = explainer.explain(STATES, ACTIONS, draws=ENOUGH_DRAWS)
    true = exact.predict(STATES, ACTIONS)[:, :, :-1]
    for band, expected in (
        (explanation.band(), true),
        (Band(*(end[..., 2:] for end in explanation.sum_band())), np.cumsum(true, axis=1)[..., 2:]),
    ):
        assert ((band.low <= expected + 1e-6) & (expected <= band.high + 1e-6)).mean() > 0.85


def test_a_pair_draws_the_same_alone_and_among_others(explainer: Explainer) -> None:
    together = explainer.explain(STATES, ACTIONS, draws=ENOUGH_DRAWS)
    alone = explainer.explain(STATES[7:8], ACTIONS[7:8], draws=ENOUGH_DRAWS)
    assert together.draws is not None
    assert alone.draws is not None
    assert together.draws.shape == (ENOUGH_DRAWS, len(STATES), HORIZON, 3)
    np.testing.assert_allclose(together.draws[:, 7:8], alone.draws, atol=1e-5)
    assert ((together.draws >= -1e-6) & (together.draws <= 1 + 1e-6)).all()
    assert (together[7:8] - alone).band().width.max() < 1e-4  # of a pair with itself
    assert (together[7:8] - together[4:5]).return_band().width.max() > 0.01


def test_what_is_saved_draws_alike(explainer: Explainer, tmp_path: Path) -> None:
    explainers.save(explainer, small_mdp.environment(), tmp_path)
    loaded = explainers.load(tmp_path)
    before, after = (one.explain(STATES, ACTIONS, draws=9).draws for one in (explainer, loaded))
    assert before is not None
    assert after is not None
    np.testing.assert_allclose(before, after, atol=1e-6)
    assert explainer.errors is not None
    arrays = explainer.errors.arrays()
    for name in ("ranks", "quantiles", "ends"):
        with pytest.raises(ValueError, match=f"errors for bands have {name} of shape"):
            KnownErrors.read(arrays | {name: arrays[name][..., 1:]}, HORIZON, 4)
    with pytest.raises(ValueError, match="range of steps 7, but there are"):
        KnownErrors.read(arrays | {"span": np.full(HORIZON, 7)}, HORIZON, 4)
    with pytest.raises(ValueError, match="outcome 9, but there are 4"):
        KnownErrors.read(arrays | {"once": np.full(4, 9)}, HORIZON, 4)


def test_without_its_policy_actions_are_drawn_apart(explainer: Explainer) -> None:
    """So that bands of their differences are too wide rather than too narrow."""
    gone = AbsentPolicy(POLICY.discount, "a test")
    absent = Explainer(explainer.predictor, gone, LEGEND, errors=explainer.errors)
    widths = []
    for one in (explainer, absent):
        explanation = one.explain(STATES, ACTIONS, draws=ENOUGH_DRAWS)
        first, second = (explanation[np.flatnonzero(action == ACTIONS)] for action in (0, 1))
        widths.append((first - second).band().width.mean())
    assert widths[1] > widths[0]


# Runs


def test_runs_show_how_often_bands_of_networks_hold() -> None:
    explainer, truth = Explainer(fitted(), POLICY, LEGEND), rollouts(40, 20)
    examiner = Examiner(explainer, small_mdp.environment(), truth, seed=0, policy_stays=True)
    assert examiner.errors(20, bands=True).pi_bands is None
    counted = dict[str, int]()

    def counter(name: str, total: int) -> Any:
        return lambda count: counted.update({name: counted.get(name, 0) + count})

    examiner.calibrate(0, counter, Budget(1000.0))
    assert not counted
    examiner.calibrate(20, counter, Budget(1000.0))
    assert counted == {"calibration": 40}
    assert truth.progress is None
    errors = examiner.final_errors(20, Budget(1000.0))
    assert errors.pi_bands is not None
    assert errors.pi_scores is not None
    assert errors.pi_bands.overall.covered > 0.85
    assert "pi_covered" in errors.frame()
    assert "odd/pi_covered_above_20" in errors.metrics()
    bands = errors.band_frame()
    assert bands is not None
    assert set(bands["actions"]) == {"policy", "foil"}
    short = Budget(0.0)
    examiner.final_errors(20, short)
    assert (
        short.remark
        == "evaluation.seconds=0 was too short: only 20 of 40 moments with rollouts for errors; increase "
        "it to evaluate all"
    )


def test_survival_curves_of_rollouts_and_explanations_share_a_page(explainer: Explainer) -> None:
    truth = rollouts(20, 10)
    examiner = Examiner(explainer, small_mdp.environment(), truth, seed=0, policy_stays=True)
    assert examiner.rolled_out is None
    examiner.errors(20)
    assert examiner.rolled_out is not None
    _, cases = examiner.rolled_out
    figure = survival_curves.draw(explainer, truth, cases, "small")
    assert figure is not None
    panels = figure.axes
    assert len(panels) == 2 * survival_curves.MOMENTS
    assert all(panel.containers and panel.collections for panel in panels)  # bars of rollouts, and bands
    never = replace(cases, expected=np.zeros_like(cases.expected))
    assert survival_curves.draw(explainer, truth, never, "nothing happens") is None


def test_bands_of_real_outcomes_are_wide_where_the_end_is_uncertain() -> None:
    """A cost of 1 a step, and an end at the first step with probability 0.5 that errors move to 0 and 1."""
    errors = KnownErrors(
        quantiles=np.linspace(-1, 1, RANKS) * np.ones((2, 1, len(EDGES) + 1, 1)),
        span=np.zeros(4, dtype=np.int64),
        ranks=np.random.default_rng(0).random((20, 2, 2)),
        steps=np.zeros((20, 2, 4, 1)),
        once=np.array([-1, 1]),
        ends=np.array([False, True]),
        events=np.array([False, True]),
    )
    predicted = np.array([[[-1.0, 0.5], [-0.5, 0.0], [-0.5, 0.0], [-0.5, 0.0]]])
    place, own = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    total = errors.draws(predicted, place, own, RANKS)[..., 0].sum(axis=2)
    assert total.min() < -3.5
    assert total.max() > -1.5
    predicted[..., 1] = 0
    certain = replace(errors, quantiles=np.zeros_like(errors.quantiles))
    np.testing.assert_allclose(certain.draws(predicted, place, own, RANKS)[..., 0].sum(axis=2), -2.5)
