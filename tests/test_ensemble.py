"""Bands of networks and of rollouts: members spread as data is scarce, and are calibrated on what is true."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from tests import small_mdp
from tests.test_monte_carlo import OpenBalance
from tests.test_network import (
    ACTIONS,
    HORIZON,
    STATES,
    collected,
    dial_outcomes,
    mixed_outcomes,
    network,
    small_network,
    small_transitions,
    turn,
)
from tpd import storage
from tpd.bands import Band
from tpd.calibration import FEWEST, agrees, calibrate, factors, spread, uncertain
from tpd.envs import Environment
from tpd.explainer import DrawingPredictor, Explainer
from tpd.learners.network_fhtd import NetworkFHTD
from tpd.learners.network_stored import EnsemblePredictor
from tpd.outcomes import OutcomeSet, event, reward
from tpd.policies.function import FunctionPolicy
from tpd.truth.exact import ExactSolution
from tpd.truth.monte_carlo import MonteCarlo, SampledCases, clopper_pearson
from tpd.types import Array, FloatArray

POLICY, LEGEND = small_mdp.policy(), small_mdp.outcomes().legend
SETTINGS: dict[str, Any] = {"settling_updates": 300, "batch_size": 64, "hidden": [16]}


def settled(steps: int = 1000, members: int = 5, **settings: Any) -> NetworkFHTD:
    learner = small_network(POLICY, members=members, **(SETTINGS | settings))
    learner.update(small_transitions(POLICY, steps))
    learner.settle()
    return learner


@pytest.fixture(scope="module")
def learner() -> NetworkFHTD:
    return settled()


def ensemble(learner: NetworkFHTD) -> EnsemblePredictor:
    predictor = learner.solved()
    assert isinstance(predictor, EnsemblePredictor)
    return predictor


# Members


def test_members_change_no_prediction_and_without_them_there_are_no_bands(learner: NetworkFHTD) -> None:
    alone = settled(members=1)
    np.testing.assert_array_equal(alone.predict(STATES, ACTIONS), learner.predict(STATES, ACTIONS))
    assert alone.settling == 300
    assert learner.settling == 360
    assert not isinstance(alone.solved(), DrawingPredictor)
    assert Explainer(alone, POLICY, LEGEND).explain(STATES, ACTIONS, draws=9).draws is None
    with pytest.raises(ValueError, match="members must be 1 or more, got 0"):
        small_network(POLICY, members=0)


def test_settling_counts_the_updates_of_the_members_too() -> None:
    counted = list[int]()
    learner = small_network(POLICY, members=3, **SETTINGS)
    learner.update(small_transitions(POLICY, 500))
    learner.settle(counted.append)
    assert sum(counted) == learner.settling


def test_members_that_speak_of_an_earlier_network_are_dropped() -> None:
    learner = settled(steps=200)
    assert isinstance(learner.solved(), DrawingPredictor)
    learner.learn()
    assert not isinstance(learner.solved(), DrawingPredictor)


def test_members_agree_more_the_more_was_seen() -> None:
    few, many = (
        ensemble(settled(steps, settling_updates=1000)).deviations(STATES, ACTIONS, 50).std()
        for steps in (200, 20_000)
    )
    assert few > 1.5 * many


def test_draws_vary_as_the_members_do(learner: NetworkFHTD) -> None:
    """Their covariance is that of the members, also between pairs, however many draws there are."""
    predictor = ensemble(learner)
    many = predictor.deviations(STATES, ACTIONS, 5000)[:, :, :, 0].reshape(5000, -1)
    few = predictor.deviations(STATES, ACTIONS, 500)[:, :, :, 0].reshape(500, -1)
    assert np.linalg.matrix_rank(np.cov(many.T), tol=1e-6) == 4  # one less than members
    size = np.sqrt(np.outer(many.var(axis=0), many.var(axis=0)))
    assert np.abs((np.cov(few.T) - np.cov(many.T)) / size).max() < 0.35
    assert np.abs(many.mean(axis=0) / many.std(axis=0)).max() < 0.06


def test_one_draw_is_of_all_pairs_also_when_they_are_asked_for_one_by_one(learner: NetworkFHTD) -> None:
    explainer = Explainer(learner, POLICY, LEGEND)
    together = explainer.explain(STATES, ACTIONS, draws=59)
    alone = explainer.explain(STATES[7:8], ACTIONS[7:8], draws=59)
    assert together.draws is not None
    assert alone.draws is not None
    assert together.draws.shape == (59, len(STATES), HORIZON, 3)
    np.testing.assert_allclose(together.draws[:, 7:8], alone.draws, atol=1e-6)
    assert ((together.draws >= 0) & (together.draws <= 1)).all()
    band = together.band()
    assert (band.width >= 0).all()
    assert band.width.max() > 0.01
    assert (together[7:8] - alone).band().width.max() < 1e-5  # of a pair with itself
    assert (together[7:8] - together[4:5]).return_band().width.max() > 0.01


def test_changes_are_the_slopes_of_the_channels() -> None:
    """Of a softmax, sigmoids and real numbers: what a small step shows."""
    outcomes = mixed_outcomes()
    made = network(small_mdp.environment(), POLICY, outcomes, horizon=2).network
    rng = torch.Generator().manual_seed(0)
    outputs, step = (torch.randn(5, 2, made.columns.channels, generator=rng).double() for _ in range(2))
    moved = (made.channels(outputs + 1e-6 * step) - made.channels(outputs)) / 1e-6
    torch.testing.assert_close(made.changes(made.channels(outputs), step), moved, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("form", ["efo", "fhgvf"])
def test_members_of_values_and_of_continuous_actions(form: str) -> None:
    env = Environment("Dial-v0")
    policy = FunctionPolicy(turn, 0.9, env.action_space)
    learner = network(env, policy, dial_outcomes(), form=form, members=3, **SETTINGS)
    batch = collected(env, policy, 300)
    learner.update(batch)
    learner.settle()
    draws = ensemble(learner).draws(batch.observation, batch.action, policy, 7)
    assert draws.shape == (7, 300, HORIZON, 3)
    assert (draws.std(axis=0)[..., :2] > 0).all()


def test_what_is_saved_draws_alike(tmp_path: Path) -> None:
    learner = settled(steps=200)
    ensemble(learner).calibrate(np.array([2.0, 1.0, 0.5, 3.0]))
    explainer = Explainer(learner, POLICY, LEGEND)
    storage.save(explainer, small_mdp.environment(), tmp_path)
    assert json.loads((tmp_path / "explainer.json").read_text())["network"]["calibration"] == [2, 1, 0.5, 3]
    loaded = storage.load(tmp_path).explain(STATES, ACTIONS, draws=9)
    original = explainer.explain(STATES, ACTIONS, draws=9)
    assert loaded.draws is not None
    assert original.draws is not None
    np.testing.assert_array_equal(loaded.draws, original.draws)


# Calibration


class Wrong:
    """Predicts what is true, and errors that are as large as a multiple of what its draws say."""

    horizon, tie = 4, 0.0

    def __init__(self, truth: FloatArray, times: float, size: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.estimate = truth + times * size * rng.standard_normal(truth.shape)
        self.size = size

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return self.estimate

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.ones(len(observations))

    def deviations(self, observations: Array, actions: Array, count: int) -> FloatArray:
        normal = stats.norm.ppf((np.arange(count) + 1) / (count + 1)) * self.size
        return np.tile(normal[:, None, None, None], (1, *self.estimate.shape))

    def calibrate(self, factor: FloatArray) -> None:
        raise NotImplementedError


EVENTS = np.array([True, True, False])


def sampled(truth: FloatArray, rollouts: int, seed: int) -> SampledCases:
    """What so many rollouts would show: events, and a real number that varies by 0.1."""
    rng, none = np.random.default_rng(seed), np.zeros(len(truth))
    seen = np.where(
        EVENTS,
        rng.binomial(rollouts, truth) / rollouts,
        truth + 0.1 * rng.standard_normal(truth.shape) / np.sqrt(rollouts),
    )
    error = np.full(truth.shape, 0.1 / np.sqrt(rollouts))  # that of events is not looked at
    return SampledCases(
        none, none, none == 0, none + 1, seen, error, rollouts=np.full(len(truth), float(rollouts))
    )


def true_of(cases: int) -> FloatArray:
    return np.random.default_rng(1).uniform(0.3, 0.7, (cases, 4, 3))


@pytest.mark.parametrize("rollouts", [20, 100_000])
@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_draws_are_spread_as_their_errors_ask_whatever_the_noise_of_the_truth(
    times: float, rollouts: int
) -> None:
    truth = true_of(2000)
    found = factors(Wrong(truth, times, 0.04, seed=2), sampled(truth, rollouts, seed=3), EVENTS)
    np.testing.assert_allclose(found, times, rtol=0.4 if rollouts == 20 else 0.08)


def test_noise_taken_for_truth_would_widen_the_bands() -> None:
    truth = true_of(2000)
    noisy = sampled(truth, 20, seed=3)
    trusted = replace(noisy, rollouts=np.full(len(noisy), np.inf))
    found = factors(Wrong(truth, 1.0, 0.04, seed=2), trusted, EVENTS)
    assert (found[:2] > 2).all()


def test_what_is_rarely_judged_is_spread_like_its_kind() -> None:
    truth = true_of(400)
    truth[FEWEST - 1 :, :, 1] = 0
    wrong = Wrong(truth, 2.0, 0.04, seed=2)
    wrong.estimate[FEWEST - 1 :, :, 1] = 0
    found = factors(wrong, sampled(truth, 10_000, seed=3), EVENTS)
    assert found[0] == pytest.approx(found[1], rel=0.05)
    assert found[0] == pytest.approx(2, rel=0.15)


def test_what_is_too_noisy_to_tell_is_spread_like_its_kind() -> None:
    """Five rollouts cannot tell 2 % from 4 %: bands without any width would seem to do."""
    truth = true_of(400)
    truth[:, :, 1] = 0.02
    wrong = Wrong(truth, 2.0, 0.04, seed=2)
    wrong.estimate[:, :, 1] = 0.04
    found = factors(wrong, sampled(truth, 5, seed=3), EVENTS)
    alone = factors(wrong, sampled(truth, 100_000, seed=3), EVENTS)
    assert found[1] > 0.1
    assert alone[1] == pytest.approx(0.02 / 0.04 / 1.64, rel=0.1)


def test_bands_that_are_spread_end_where_probabilities_do() -> None:
    estimate = np.array([[[0.1, 0.9, 0.1]]])
    band = spread(Band(np.full((1, 1, 3), -0.1), np.full((1, 1, 3), 0.1)), 2.0, estimate, EVENTS)
    np.testing.assert_allclose(band.low, [[[0, 0.7, -0.1]]])
    np.testing.assert_allclose(band.high, [[[0.3, 1, 0.3]]])
    np.testing.assert_array_equal(uncertain(np.array([[[0.005, 0.5, 7.0]]]), EVENTS), [[[False, True, True]]])


def rolled_out(moments: int, seed: int) -> tuple[MonteCarlo, SampledCases]:
    truth = MonteCarlo(
        small_mdp.environment(),
        POLICY,
        small_mdp.outcomes(),
        horizon=HORIZON,
        moments=moments,
        rollouts=40,
    )
    return truth, truth.cases(20, np.random.default_rng(seed))


def test_calibrated_bands_hold_the_truth_as_often_as_they_say(learner: NetworkFHTD) -> None:
    """Of states that come up again, for there are few; against the exact truth, which has no noise."""
    truth, cases = rolled_out(60, seed=0)
    explainer = Explainer(learner, POLICY, LEGEND)
    found = calibrate(explainer, truth, 20, np.random.default_rng(2))
    assert set(found) == {"odd/spread", "even/spread", "first odd/spread", "termination/spread"}
    explanation = explainer.explain(cases.observations, cases.actions, draws=59)
    solution = ExactSolution(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)
    true = solution.predict(cases.observations, cases.actions)[:, :, :-1]
    band = explanation.band()
    judged = uncertain(explanation.expected, np.ones(3, dtype=np.bool_))
    assert 0.8 < ((band.low <= true) & (true <= band.high))[judged].mean() < 0.97
    without = Explainer(settled(200, members=1), POLICY, LEGEND)
    assert calibrate(without, truth, 20, np.random.default_rng(2)) == {}


# Rollouts


def test_bands_of_rollouts_hold_the_truth() -> None:
    truth, cases = rolled_out(60, seed=1)
    solution = ExactSolution(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)
    true = solution.predict(cases.observations, cases.actions)
    chance = (true > 1e-9) & (true < 1 - 1e-9)
    band, narrow = truth.band(cases), truth.band(cases, level=0.5)
    held, half = (((ends.low <= true) & (true <= ends.high))[chance].mean() for ends in (band, narrow))
    assert 0.9 < held < 0.99  # exact limits are never too narrow
    assert half < 0.8
    some = cases[cases.own]
    np.testing.assert_array_equal(truth.band(some).low, band.low[cases.own])


def test_exact_limits_are_those_of_clopper_and_pearson() -> None:
    happened = np.arange(13.0)
    band = clopper_pearson(happened, np.full(13, 12.0), level=0.9)
    for count in range(13):
        interval = stats.binomtest(count, 12).proportion_ci(0.9, method="exact")
        assert (band.low[count], band.high[count]) == pytest.approx((interval.low, interval.high))


def test_what_is_certain_has_no_width_and_other_outcomes_have_students() -> None:
    outcomes = OutcomeSet([reward(0, 1), event("right", lambda t: t.action == 1)])
    env = Environment("CartPole-v1", max_episode_steps=8)
    truth = MonteCarlo(env, OpenBalance(), outcomes, horizon=5, moments=4, rollouts=6)
    cases = truth.cases(1, np.random.default_rng(0))
    assert np.isinf(cases.rollouts).all()
    assert not truth.band(cases).width.any()
    error = np.full(cases.expected.shape, 0.1)
    drawn = replace(cases, standard_error=error, rollouts=np.full(len(cases), 6.0))
    width = truth.band(drawn).width
    np.testing.assert_allclose(width[..., 0], 2 * 0.1 * stats.t.ppf(0.95, 5))
    assert (width[..., 1] > 0.3).all()  # six rollouts that agree prove little
    held = agrees(truth.band(drawn), cases.expected, drawn, truth.events)
    assert held.all()
