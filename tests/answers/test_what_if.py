"""What if: exact where the futures stay as they are, and silent on what is unknown."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tests.support import small_mdp
from tests.support.learning import batches
from tpd.answers.what_if import (
    best_actions,
    fragility,
    overtaking,
    return_band,
    returns,
    reward_of,
    valued,
    with_rewards,
)
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend
from tpd.core.types import Array, FloatArray
from tpd.envs import Environment
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD

HORIZON, NAMES, WEIGHTS = 4, ("a", "b", "first a"), (2.0, -1.0, None)
ROWS = 4
futures = arrays(np.float64, (ROWS, HORIZON, len(NAMES)), elements=st.floats(0, 1, width=16))
rewards = st.floats(-50, 50, width=16)


def explanation(expected: FloatArray, visits: FloatArray | None = None) -> Explanation:
    count = len(expected)
    legend = Legend(NAMES, WEIGHTS, ("a", "b"), 2.0, NAMES)
    return Explanation(
        np.zeros(count, int),
        np.arange(count),
        expected,
        np.ones((count, HORIZON)),
        np.full(count, np.inf) if visits is None else visits,
        legend,
        0.9,
    )


@given(futures, rewards, rewards)
def test_returns_are_those_of_the_new_rewards(expected: FloatArray, a: float, b: float) -> None:
    powers = 0.9 ** np.arange(HORIZON)
    by_hand = np.einsum("nhk,h,k->n", expected, powers, [a, b, 0.0])
    np.testing.assert_allclose(returns(explanation(expected), {"a": a, "b": b}), by_hand, atol=1e-9)


def test_a_legend_with_other_rewards_bounds_them() -> None:
    legend = Legend(NAMES, WEIGHTS, ("a", "b"), 2.0, NAMES)
    assert with_rewards(legend, {"b": -7.0}).weights == (2.0, -7.0, None)
    assert with_rewards(legend, {"b": -7.0}).reward_bound == 7
    assert with_rewards(legend, {"a": 0.5}).reward_bound == 1
    terms = Legend(("x", "y"), (2.0, 1.0), (), 30.0)
    assert with_rewards(terms, {"x": -6.0}).reward_bound == 90
    assert with_rewards(Legend(("x", "y"), (0.0, 1.0), (), 30.0), {"x": 1.0}).reward_bound == np.inf


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"first a": 1.0}, "'first a' has no reward; the outcomes with a reward are: a, b$"),
        ({"c": 1.0}, "'c' is not an outcome; the outcomes with a reward are: a, b$"),
        ({"frist a": 1.0}, r"'frist a' is not an outcome; .*; did you mean first a\?$"),
    ],
)
def test_only_parts_of_the_reward_can_be_exchanged(change: Mapping[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        returns(explanation(np.zeros((1, HORIZON, 3))), change)
    with pytest.raises(ValueError, match="do not account for the reward"):
        reward_of(Legend(("a",), (None,), (), None), "a")


@given(futures, st.sampled_from(["a", "b"]))
def test_at_the_overtaking_reward_both_are_worth_the_same(expected: FloatArray, outcome: str) -> None:
    both = explanation(expected)
    contrast = both[:2] - both[2:]
    at = overtaking(contrast, 1, outcome)
    if at is None:
        k = NAMES.index(outcome)
        counts = 0.9 ** np.arange(HORIZON) @ contrast.expected[1, :, k]
        assert abs(counts) < 1e-8
    else:
        fact, foil = (returns(one, {outcome: at})[1] for one in (contrast.fact, contrast.foil))
        assert fact == pytest.approx(foil, abs=1e-6 * max(1, abs(at)))
        ahead = [
            returns(contrast.fact, {outcome: x})[1] - returns(contrast.foil, {outcome: x})[1]
            for x in (at - 1, at + 1)
        ]
        assert ahead[0] * ahead[1] <= 1e-6 * max(1, abs(at))


def test_the_unknown_never_overtakes() -> None:
    some = explanation(np.ones((2, HORIZON, 3)) * [[[0.1]], [[0.9]]], np.array([np.inf, 0.0]))
    assert overtaking(some[:1] - some[1:], 0, "a") is None
    assert best_actions(some, "a", -5, 5) == []


def test_different_rewards_of_one_outcome_cannot_be_compared() -> None:
    some = explanation(np.ones((1, HORIZON, 3)))
    with pytest.raises(ValueError, match="reward of 'a': it differs between fact and foil"):
        overtaking(some - valued(some, {"a": 5.0}), 0, "a")


@given(futures, st.sampled_from(["a", "b"]), st.lists(st.floats(-9.9, 9.9), min_size=1, max_size=5))
def test_the_best_action_has_the_highest_return_at_any_reward(
    expected: FloatArray, outcome: str, probes: list[float]
) -> None:
    pairs = explanation(expected)
    best = best_actions(pairs, outcome, -10, 10)
    assert (best[0].low, best[-1].high) == (-10, 10)
    assert all(one.high == other.low and one.row != other.row for one, other in pairwise(best))
    for probe in probes:
        worth = returns(pairs, {outcome: probe})
        (row, *_) = (row for low, high, row in best if low <= probe <= high)
        assert worth[row] == pytest.approx(worth.max(), abs=1e-6)


def test_a_range_needs_an_extent() -> None:
    with pytest.raises(ValueError, match="got low=3, high=3"):
        best_actions(explanation(np.ones((1, HORIZON, 3))), "a", 3, 3)


@pytest.fixture
def explainer() -> Explainer:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=10)
    return Explainer(solution, policy, outcomes.legend)


@pytest.mark.parametrize("outcome", ["odd", "even"])
def test_no_other_reward_within_the_fragility_changes_the_best_action(
    explainer: Explainer, outcome: str
) -> None:
    env, states = small_mdp.environment(), np.arange(small_mdp.NUM_STATES)
    found = fragility(explainer, env, states, outcome)
    now = reward_of(explainer.legend, outcome)
    assert (found.best == explainer.action_returns(states).argmax(axis=1)).all()
    assert np.isfinite(found.reward).any()
    for state in states[np.isfinite(found.reward)]:
        pairs = explainer.explain(np.repeat(state, small_mdp.NUM_ACTIONS), np.arange(small_mdp.NUM_ACTIONS))
        distance = abs(found.reward[state] - now)
        for x in np.linspace(now - distance, now + distance, 21)[1:-1]:
            assert returns(pairs, {outcome: x}).argmax() == found.best[state]
        beyond = returns(pairs, {outcome: found.reward[state] + 1e-6 * np.sign(found.reward[state] - now)})
        assert beyond.argmax() == found.rival[state]


def test_only_known_pairs_are_rivals(explainer: Explainer) -> None:
    """A table that knows one action of state 0, two of state 1 and nothing of state 2."""
    solution = explainer.predictor
    assert isinstance(solution, ExactSolution)
    pairs = np.array([0, 3, 4])
    table = PairTable(small_mdp.NUM_ACTIONS, pairs, solution.table().expected[pairs], np.full(3, np.inf))
    known = Explainer(table, explainer.policy, explainer.legend)
    found = fragility(known, small_mdp.environment(), np.arange(3), "odd")
    assert found.best[0] == 0
    assert found.best[2] == -1
    np.testing.assert_array_equal(found.rival == -1, [True, False, True])
    np.testing.assert_array_equal(np.isnan(found.reward), [True, False, True])
    assert {int(found.best[1]), int(found.rival[1])} == {0, 1}


def noisy(expected: FloatArray, noise: float) -> Explanation:
    rng = np.random.default_rng(0)
    draws = expected + noise * rng.standard_normal((ENOUGH_DRAWS, *expected.shape))
    return replace(explanation(expected, np.ones(len(expected))), draws=draws)


@given(futures, st.sampled_from(["a", "b"]), st.sampled_from([0.0, 0.01, 0.1, 1.0]))
def test_where_bands_overlap_no_action_is_called_best(
    expected: FloatArray, outcome: str, noise: float
) -> None:
    pairs = noisy(expected, noise)
    ranges = best_actions(pairs, outcome, -10, 10)
    assert (ranges[0].low, ranges[-1].high) == (-10, 10)
    assert all(one.high == other.low and one.row != other.row for one, other in pairwise(ranges))
    for low, high, row in ranges:
        if row is None:
            continue
        for reward in (0.99 * low + 0.01 * high, 0.01 * low + 0.99 * high):
            others = np.setdiff1d(np.arange(ROWS), row)
            under = valued(pairs, {outcome: reward})
            contrast = under[np.full(len(others), row)] - under[others]
            assert (contrast.expected_return[:, -1] > -1e-12).all()
            assert contrast.settled.all()


def test_certain_samples_change_no_range() -> None:
    expected = np.random.default_rng(1).random((ROWS, HORIZON, len(NAMES)))
    sharp = best_actions(explanation(expected), "b", -10, 10)
    assert len(sharp) > 1
    assert best_actions(noisy(expected, 1e-9), "b", -10, 10) == sharp
    assert {each.row for each in best_actions(noisy(expected, 9), "b", -10, 10)} == {None}


def test_guesses_without_bands_and_rollouts_without_the_event_decide_nothing() -> None:
    expected = np.random.default_rng(1).random((ROWS, HORIZON, len(NAMES)))
    guessed = explanation(expected, np.ones(ROWS))
    assert best_actions(guessed, "b", -10, 10) == [(-10, 10, None)]
    seen = (
        np.random.default_rng(2).random((200, *expected.shape)) < np.linspace(0.1, 0.9, ROWS)[:, None, None]
    )
    rolled_out = replace(guessed, rollouts=seen.astype(float), expected=seen.mean(axis=0))
    assert {each.row for each in best_actions(rolled_out, "b", -10, 10)} != {None}
    never = seen.copy()
    never[:, 0, :, NAMES.index("b")] = False
    unseen = replace(guessed, rollouts=never.astype(float), expected=never.mean(axis=0))
    assert best_actions(unseen, "b", -10, 10) == [(-10, 10, None)]


def test_the_band_under_other_rewards_is_that_of_the_samples() -> None:
    pairs = noisy(np.full((ROWS, HORIZON, len(NAMES)), 0.5), 0.1)
    assert return_band(explanation(pairs.expected), {}) is None
    band = return_band(pairs, {"a": -5.0})
    assert band is not None
    drawn = np.stack(
        [returns(replace(pairs, expected=one, draws=None), {"a": -5.0}) for one in pairs.samples]
    )
    inside = ((drawn >= band.low) & (drawn <= band.high)).mean()
    assert inside == pytest.approx(0.9, abs=0.05)


def test_states_are_listed_only_where_the_data_decide(explainer: Explainer) -> None:
    env, states = small_mdp.environment(), np.arange(small_mdp.NUM_STATES)
    truth = fragility(explainer, env, states, "odd")
    uncertain = []
    for steps in (200, 100_000):
        learner = ReplayedFHTD(env, small_mdp.policy(), small_mdp.outcomes(), horizon=10)
        for batch in batches(explainer.policy, steps):
            learner.update(batch)
        learned = Explainer(learner.table(), explainer.policy, explainer.legend)
        found = fragility(learned, env, states, "odd")
        assert np.isnan(found.reward[found.uncertain]).all()
        sure = ~found.uncertain & ~np.isnan(found.reward)
        np.testing.assert_array_equal(found.best[sure], truth.best[sure])
        uncertain.append(int(found.uncertain.sum()))
    assert uncertain[0] > uncertain[1]
    assert not truth.uncertain.any()


class Tilted:
    """Predicts from vector observations: the reward of "a" after action 0, that of "b" after action 1."""

    horizon, tie = HORIZON, 0.0

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        expected = np.zeros((len(actions), HORIZON, 4))
        expected[actions == 0, 0, 0], expected[actions == 1, 1, 1] = 1, 1
        return expected

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.full(len(actions), np.inf)


def test_states_may_be_vectors() -> None:
    legend = Legend(NAMES, WEIGHTS, ("a", "b"), 2.0, NAMES)
    policy = DiscreteFunctionPolicy(lambda o: np.zeros(len(o), dtype=int), 1.0, Discrete(2))
    env = Environment("CartPole-v1")
    found = fragility(Explainer(Tilted(), policy, legend), env, np.zeros((7, 4), dtype=np.float32), "b")
    np.testing.assert_array_equal(found.best, np.zeros(7))
    np.testing.assert_array_equal(found.rival, np.ones(7))
    np.testing.assert_allclose(found.reward, 2)
