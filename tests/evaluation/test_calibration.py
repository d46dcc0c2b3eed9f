"""Bands of networks: drawn from known errors that are kept whole, they hold the truth of steps and sums."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.networks import (
    ACTIONS,
    HORIZON,
    STATES,
    collected,
    dial_outcomes,
    network,
    small_network,
    small_transitions,
    turn,
)
from tpd.core.bands import ENOUGH_DRAWS, Band, band_of
from tpd.core.types import BoolArray, FloatArray
from tpd.envs import Environment
from tpd.evaluation.budget import Budget
from tpd.evaluation.calibration import (
    FEWEST,
    agrees,
    calibrate,
    curve_errors,
    filled,
    known_errors,
    step_errors,
    uncertain,
)
from tpd.evaluation.examiner import Examiner
from tpd.policies.function import FunctionPolicy
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import DrawingPredictor, Explainer
from tpd.predictors.network.errors import LEVELS, KnownErrors
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.network.predictor import CalibratedPredictor, NetworkPredictor
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.show import survival_curves
from tpd.store import explainers

POLICY, LEGEND = small_mdp.policy(), small_mdp.outcomes().legend
SETTINGS: dict[str, Any] = {"fit_updates": 300, "batch_size": 64, "hidden": [16]}
STEPS, EVENTS = 12, np.array([True, True, False])
NO_EVENT = np.zeros(1, dtype=np.bool_)


def sampled(truth: FloatArray, rollouts: float, seed: int, events: BoolArray = EVENTS) -> SampledCases:
    """What so many rollouts would show of events, and of real numbers that vary by 0.1.

    Every second case is the foil of the one before.
    """
    rng, cases = np.random.default_rng(seed), len(truth)
    error, seen = np.zeros(truth.shape), truth
    if np.isfinite(rollouts):
        happened = rng.binomial(int(rollouts), np.where(events, truth, 0)) / rollouts
        seen = np.where(events, happened, truth + 0.1 * rng.standard_normal(truth.shape) / np.sqrt(rollouts))
        spread = np.where(events, np.sqrt(seen * (1 - seen) * rollouts / (rollouts - 1)), 0.1)
        error = spread / np.sqrt(rollouts)
    return SampledCases(
        observations=np.arange(cases) // 2,
        actions=np.arange(cases) % 2,
        own=np.arange(cases) % 2 == 0,
        weight=np.ones(cases),
        expected=seen,
        standard_error=error,
        rollouts=np.full(cases, float(rollouts)),
        return_error=np.zeros(truth.shape[:2]),
    )


def drawn(errors: KnownErrors, predicted: FloatArray) -> FloatArray:
    """As for the cases of `sampled`."""
    cases = np.arange(len(predicted))
    foil = np.broadcast_to(cases % 2 == 1, (ENOUGH_DRAWS, len(cases)))
    return errors.draws(predicted, cases // 2 * 7919, foil)


def share_held(draws: FloatArray, estimate: FloatArray, truth: FloatArray) -> float:
    band = band_of(draws, estimate, np.ones(estimate.shape[:2], dtype=np.bool_))
    return float(((band.low <= truth) & (truth <= band.high)).mean())


# Errors


def test_what_is_not_known_is_that_of_the_moment_before() -> None:
    errors = np.array([[np.nan, 1, np.nan], [2, np.nan, np.nan], [np.nan, 3, np.nan]])
    np.testing.assert_array_equal(filled(errors), [[2, 1, 0], [2, 1, 0], [2, 3, 0]])


@pytest.mark.parametrize("times", [0.0, 1.0, 2.0])
def test_errors_are_as_large_as_they_are_without_the_noise_of_the_truth(times: float) -> None:
    """But never more than half of them is taken for noise."""
    rng = np.random.default_rng(1)
    truth = rng.uniform(0.3, 0.7, (4000, 4, 3))
    predicted = truth + times * 0.04 * rng.standard_normal(truth.shape)

    def size(cases: SampledCases) -> FloatArray:
        return np.asarray(np.sqrt(np.nanmean(step_errors(predicted, cases, EVENTS) ** 2, axis=(0, 1))))

    noisy = sampled(truth, 200, 2)
    taken_for_true = size(replace(noisy, standard_error=np.zeros(truth.shape)))
    right = size(sampled(truth, np.inf, 2)) if times else np.sqrt(0.5) * taken_for_true
    np.testing.assert_allclose(size(noisy), right, rtol=0.05)
    assert (taken_for_true[:2] > 1.05 * right[:2]).all()


def walking(cases: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Truth and prediction of a real number whose errors at successive steps go together."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((cases, STEPS, 1))
    return truth, truth - np.cumsum(rng.standard_normal((cases, STEPS, 1)), axis=1)


def test_bands_of_single_steps_and_of_sums_hold_what_they_say() -> None:
    (truth, predicted), (other_truth, other) = walking(600, 0), walking(2000, 1)
    rng = np.random.default_rng(2)
    errors = known_errors(predicted, sampled(truth, np.inf, 0, NO_EVENT), NO_EVENT, NO_EVENT, rng)
    draws = drawn(errors, other)
    sums = np.cumsum(draws, axis=2), np.cumsum(other, axis=1), np.cumsum(other_truth, axis=1)
    assert share_held(draws, other, other_truth) == pytest.approx(0.9, abs=0.04)
    assert share_held(*sums) == pytest.approx(0.9, abs=0.04)
    torn = replace(errors, steps=rng.permuted(errors.steps, axis=0))
    apart = np.cumsum(drawn(torn, other), axis=2)
    assert share_held(drawn(torn, other), other, other_truth) == pytest.approx(0.9, abs=0.04)
    assert share_held(apart, *sums[1:]) < 0.8  # only errors kept whole add up as they should


def test_errors_after_two_actions_go_together_and_at_two_places_they_do_not() -> None:
    truth, predicted = walking(400, 0)
    predicted[1::2] = truth[1::2] - (truth - predicted)[::2]  # a foil is as wrong as its fact
    rng = np.random.default_rng(2)
    errors = known_errors(predicted, sampled(truth, np.inf, 0, NO_EVENT), NO_EVENT, NO_EVENT, rng)
    draws = drawn(errors, np.zeros((4, STEPS, 1)))
    np.testing.assert_array_equal(draws[:, 0], draws[:, 1])
    assert abs(np.corrcoef(draws[:, 0, -1, 0], draws[:, 2, -1, 0])[0, 1]) < 0.5
    np.testing.assert_array_equal(np.sort(draws[:, 0, -1, 0]), np.sort(draws[:, 2, -1, 0]))


def occurring(cases: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """When something first happens, and a prediction that knows the step but for a few."""
    rng = np.random.default_rng(seed)
    middle = rng.uniform(0, 2 * STEPS, cases)
    chance = np.exp(-0.5 * ((np.arange(STEPS) - middle[:, None]) / 1.5) ** 2) / (1.5 * np.sqrt(2 * np.pi))
    step = (middle + 1.5 * rng.standard_normal(cases)).round()
    return (step[:, None] == np.arange(STEPS)).astype(np.float64)[..., None], chance[..., None]


def test_what_happens_once_has_bands_that_hold_and_stay_probabilities() -> None:
    """Also where all that is true is 0 or 1, and most moments show nothing."""
    once = np.ones(1, dtype=np.bool_)
    (truth, predicted), (other_truth, other) = occurring(600, 0), occurring(2000, 1)
    cases = sampled(truth, np.inf, 0, once)
    errors = known_errors(predicted, cases, once, once, np.random.default_rng(2))
    happened = np.cumsum(drawn(errors, other), axis=2)
    assert happened.min() >= -1e-6
    assert happened.max() <= 1 + 1e-6
    assert np.diff(happened, axis=2).min() >= -1e-6
    estimate, true = np.cumsum(other, axis=1), np.cumsum(other_truth, axis=1)
    judged = uncertain(estimate, once)
    band = band_of(happened, estimate, np.ones(estimate.shape[:2], dtype=np.bool_))
    held = (band.low <= true + 1e-6) & (true <= band.high + 1e-6)
    assert held[judged].mean() > 0.88
    assert band.width[judged].mean() < 0.75
    narrow = replace(errors, curves=(LEVELS[:, None] + 0.5 * (errors.curves - LEVELS[:, None])))
    halved = band_of(np.cumsum(drawn(narrow, other), axis=2), estimate, np.ones(estimate.shape[:2], np.bool_))
    assert ((halved.low <= true) & (true <= halved.high))[judged].mean() < 0.6


def test_a_curve_is_wrong_by_what_was_seen_when_it_was_said_to_be_so_likely() -> None:
    said = np.full((1, 4, 1), 0.25)
    seen = np.array([0, 0.5, 0, 0.5]).reshape(1, 4, 1)
    errors = curve_errors(said, seen, np.array([np.inf]))
    found = np.interp([0.25, 0.5, 0.75, 1], LEVELS, errors[0, :, 0] + LEVELS)
    np.testing.assert_allclose(found, [0, 0.5, 0.5, 1], atol=0.02)
    assert np.isnan(curve_errors(said / 2, seen, np.array([np.inf]))[0, -1, 0])
    noisy = curve_errors(said, seen, np.array([5.0]))
    assert (np.abs(noisy) <= np.abs(errors) + 1e-12).all()
    assert np.abs(noisy[0, 15, 0]) < np.abs(errors[0, 15, 0]) or errors[0, 15, 0] == 0


def test_only_noise_lets_a_band_miss_what_was_seen() -> None:
    truth = np.full((2, 1, 3), 0.5)
    cases = sampled(truth, np.inf, 0)
    band = Band(truth - 0.01, truth + 0.01)
    assert agrees(band, truth, cases, EVENTS).all()
    off = replace(cases, expected=truth + 0.1, standard_error=np.full(truth.shape, 0.1))
    np.testing.assert_array_equal(agrees(band, truth, off, EVENTS)[0, 0], [False, False, True])
    few = replace(off, rollouts=np.full(2, 20.0))
    assert agrees(band, truth, few, EVENTS).all()
    np.testing.assert_array_equal(uncertain(np.array([0.005, 0.5, 7.0]), EVENTS), [False, True, True])


# Networks


def fitted(steps: int = 1000, **settings: Any) -> NetworkFHTD:
    learner = small_network(POLICY, **(SETTINGS | settings))
    learner.update(small_transitions(POLICY, steps))
    learner.fit()
    return learner


def rollouts(moments: int = 40, count: int = 40) -> MonteCarlo:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    return MonteCarlo(env, POLICY, outcomes, horizon=HORIZON, moments=moments, rollouts=count)


def calibrated(explainer: Explainer, truth: MonteCarlo, episodes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    calibrate(explainer, truth, truth.cases(episodes, rng), rng)


def exact_truth() -> ExactSolution:
    return ExactSolution(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    explainer = Explainer(fitted(), POLICY, LEGEND)
    calibrated(explainer, rollouts(), 20, seed=2)
    return explainer


def test_there_are_no_bands_before_calibration_nor_from_too_few_moments() -> None:
    explainer = Explainer(fitted(200), POLICY, LEGEND)
    calibrated(explainer, rollouts(FEWEST - 1, 2), 5, seed=2)
    assert explainer.explain(STATES, ACTIONS, draws=9).draws is None
    calibrated(explainer, rollouts(FEWEST, 2), 5, seed=2)
    assert explainer.explain(STATES, ACTIONS, draws=9).draws is not None
    exact = Explainer(exact_truth(), POLICY, LEGEND)
    calibrated(exact, rollouts(FEWEST, 2), 5, seed=2)
    assert exact.explain(STATES, ACTIONS, draws=9).draws is None


def test_errors_of_an_earlier_network_are_forgotten() -> None:
    explainer = Explainer(fitted(200), POLICY, LEGEND)
    calibrated(explainer, rollouts(FEWEST, 2), 5, seed=2)
    learner = explainer.predictor
    assert isinstance(learner, NetworkFHTD)
    assert isinstance(learner.solved(), DrawingPredictor)
    learner.learn()
    assert not isinstance(learner.solved(), DrawingPredictor)


def test_calibrated_bands_hold_the_truth_as_often_as_they_say(explainer: Explainer) -> None:
    """Of states that come up again, for there are few; against the exact truth, which has no noise."""
    cases = rollouts(60, 2).cases(20, np.random.default_rng(0))
    explanation = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS)
    true = exact_truth().predict(cases.observations, cases.actions)[:, :, :-1]
    for band, estimate, expected in (
        (explanation.band(), explanation.expected, true),
        (explanation.sum_band(), np.cumsum(explanation.expected, axis=1), np.cumsum(true, axis=1)),
    ):
        judged = uncertain(estimate, np.ones(3, dtype=np.bool_))
        held = ((band.low <= expected + 1e-6) & (expected <= band.high + 1e-6))[judged].mean()
        assert 0.8 < held < 0.99
        assert band.width[judged].mean() < 0.4


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
    loaded = explainers.load(tmp_path).predictor
    assert isinstance(loaded, CalibratedPredictor)
    original = explainer.predictor
    assert isinstance(original, NetworkFHTD)
    known = original.solved()
    assert isinstance(known, CalibratedPredictor)
    for policy in (POLICY, AbsentPolicy(0.9, "not stored")):
        np.testing.assert_array_equal(
            loaded.draws(STATES, ACTIONS, policy, 9), known.draws(STATES, ACTIONS, policy, 9)
        )
    shapes = {"steps": known.errors.steps[:, :, 1:], "curves": known.errors.curves[..., 1:]}
    for name, wrong in shapes.items():
        with pytest.raises(ValueError, match=f"known errors have {name} of shape"):
            KnownErrors.read(known.errors.arrays() | {name: wrong}, HORIZON, 4)


def test_without_its_policy_actions_are_drawn_apart(explainer: Explainer) -> None:
    """So that bands of their differences are too wide rather than too narrow."""
    absent = Explainer(explainer.predictor, AbsentPolicy(POLICY.discount, "not stored"), LEGEND)
    widths = []
    for one in (explainer, absent):
        explanation = one.explain(STATES, ACTIONS, draws=ENOUGH_DRAWS)
        first, second = (explanation[np.flatnonzero(action == ACTIONS)] for action in (0, 1))
        widths.append((first - second).band().width.mean())
        assert explanation.band().width.mean() > 0.01
    assert widths[1] > widths[0]


@pytest.mark.parametrize("form", ["efo", "fhgvf"])
def test_bands_of_values_and_of_continuous_actions(form: str) -> None:
    env = Environment("Dial-v0")
    policy = FunctionPolicy(turn, 0.9, env.action_space)
    outcomes = dial_outcomes()
    learner = network(env, policy, outcomes, form=form, **SETTINGS)
    batch = collected(env, policy, 300)
    learner.update(batch)
    learner.fit()
    truth = MonteCarlo(env, policy, outcomes, horizon=HORIZON, moments=30, rollouts=3)
    explainer = Explainer(learner, policy, outcomes.legend)
    calibrated(explainer, truth, 30, seed=0)
    explanation = explainer.explain(batch.observation, batch.action, draws=7)
    assert explanation.draws is not None
    assert explanation.draws.shape == (7, 300, HORIZON, 2)
    assert (explanation.draws[..., 1].std(axis=0) > 0).any()


# Runs


def test_runs_show_how_often_bands_of_networks_hold() -> None:
    explainer, truth = Explainer(fitted(), POLICY, LEGEND), rollouts(30, 20)
    examiner = Examiner(explainer, small_mdp.environment(), truth, seed=0, policy_stays=True)
    assert examiner.errors(20, bands=True).pi_bands is None
    counted = dict[str, int]()

    def counter(name: str, total: int) -> Any:
        return lambda count: counted.update({name: counted.get(name, 0) + count})

    examiner.calibrate(0, counter, Budget(1000.0))
    assert not counted
    examiner.calibrate(20, counter, Budget(1000.0))
    assert counted == {"calibration": 30}
    assert truth.progress is None
    errors = examiner.errors(20, bands=True)
    assert errors.pi_bands is not None
    assert errors.foil_bands is not None
    assert np.nanmean([errors.pi_bands.covered, errors.foil_bands.covered]) > 0.75
    assert "pi_covered" in errors.frame()
    assert not isinstance(explainer.predictor, NetworkPredictor)


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
