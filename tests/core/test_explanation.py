"""Explanations: parts sum to the whole, and nothing that is unknown is hidden."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.efo import compose
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend, OutcomeSet, event
from tpd.policies.tabular import GreedyPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.step_sizes import constant
from tpd.predictors.tabular import TabularFHTD
from tpd.show.figure_notes import disagreement, remarks
from tpd.sources import named_states

HORIZON = 10


@pytest.fixture
def explainer() -> Explainer:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    return Explainer(solution, policy, outcomes.legend)


def test_without_actions_the_policy_is_explained(explainer: Explainer) -> None:
    states = np.arange(small_mdp.NUM_STATES)
    explanation = explainer.explain(states)
    assert (explanation.actions == explainer.policy.action(states)).all()
    assert explanation.expected.shape == (len(states), HORIZON, 3)


def test_components_sum_to_the_reward_and_rewards_to_the_return(explainer: Explainer) -> None:
    explanation = explainer.explain(np.arange(6))
    assert explanation.component_names == ("odd", "even")
    np.testing.assert_allclose(explanation.reward_components.sum(axis=2), explanation.expected_reward)
    np.testing.assert_allclose(explanation.expected_reward, explanation.expected[:, :, 0])
    expected = compose(explanation.expected_reward, 0.9, axis=1)
    np.testing.assert_allclose(explanation.expected_return, expected)
    np.testing.assert_allclose(explanation.component_returns.sum(axis=2), expected)


def test_ended_is_what_the_events_leave(explainer: Explainer) -> None:
    explanation = explainer.explain(np.arange(6))
    np.testing.assert_allclose(explanation.ended[:, 0], 0, atol=1e-12)
    np.testing.assert_allclose(explanation.ended[:, 1:], 1 - explanation.running[:, :-1], atol=1e-12)
    np.testing.assert_allclose(
        explanation.running, (1 - small_mdp.TERMINATION) ** np.arange(1, 11) + 0 * explanation.running
    )


def test_contrast_of_any_two_pairs_is_their_difference(explainer: Explainer) -> None:
    fact = explainer.explain(np.array([0, 1]), np.array([0, 1]))
    foil = explainer.explain(np.array([2, 1]), np.array([1, 2]))
    contrast = fact - foil
    np.testing.assert_array_equal(contrast.expected, fact.expected - foil.expected)
    np.testing.assert_allclose(contrast.component_returns.sum(axis=2), contrast.expected_return)
    np.testing.assert_allclose((fact - fact).expected_return, 0)


def test_explanations_of_different_outcomes_cannot_be_compared(explainer: Explainer) -> None:
    policy = small_mdp.policy()
    other = OutcomeSet([event(name, small_mdp.odd) for name in ("a", "b", "c")])
    solution = ExactSolution(small_mdp.environment(), policy, other, horizon=HORIZON)
    states = np.array([0])
    with pytest.raises(ValueError, match="cannot compare outcomes"):
        explainer.explain(states) - Explainer(solution, policy, other.legend).explain(states)


def test_the_remainder_bounds_what_the_horizon_cuts_off(explainer: Explainer) -> None:
    """The value of the whole future lies within the bound around the explained return."""
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    whole = Explainer(
        ExactSolution(small_mdp.environment(), policy, outcomes, horizon=300), policy, outcomes.legend
    )
    states = np.arange(6)
    explanation = explainer.explain(states)
    beyond = whole.explain(states).expected_return[:, -1] - explanation.expected_return[:, -1]
    remainder = explanation.remainder
    np.testing.assert_allclose(remainder.running, (1 - small_mdp.TERMINATION) ** HORIZON)
    assert (np.abs(beyond) <= remainder.bound).all()
    assert (np.abs(beyond) > 0).all()
    assert remainder.gap is None


def test_without_discount_nothing_bounds_an_episode_that_runs_on() -> None:
    legend = Legend(("a",), (1.0,), ("a",), 1.0)
    running = np.array([[0.5, 0.5], [0.5, 0.0]])
    explanation = Explanation(
        np.arange(2), np.zeros(2, int), np.ones((2, 2, 1)), running, np.ones(2), legend, 1.0
    )
    np.testing.assert_array_equal(explanation.remainder.bound, [np.inf, 0])


def test_the_gap_to_the_agents_own_value_is_said() -> None:
    values = np.zeros((small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS))
    values[:, 1] = 5.0
    policy = GreedyPolicy(values, np.ones_like(values, dtype=bool), discount=0.9)
    outcomes = small_mdp.outcomes()
    explainer = Explainer(
        ExactSolution(small_mdp.environment(), policy, outcomes, horizon=HORIZON), policy, outcomes.legend
    )
    explanation = explainer.explain(np.array([0]))
    assert explanation.remainder.gap == pytest.approx(5 - explanation.expected_return[:, -1])
    assert any("own value estimate is 5.00" in remark for remark in remarks(explanation, 0))


def test_a_choice_that_the_explanation_does_not_support_is_said() -> None:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    values = np.zeros((small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS))
    policy = GreedyPolicy(values, np.ones_like(values, dtype=bool), discount=0.9)
    explainer = Explainer(ExactSolution(env, policy, outcomes, horizon=HORIZON), policy, outcomes.legend)
    returns = explainer.action_returns(np.arange(small_mdp.NUM_STATES))
    for state in range(small_mdp.NUM_STATES):
        sentence = disagreement(explainer, env, named_states.find(env, policy, state))
        best = int(np.argmax(returns[state]))
        if best == 0:
            assert sentence is None
        else:
            assert sentence is not None
            assert f"in state {state}, action {best} has a higher expected return" in sentence
    assert (returns.argmax(axis=1) != 0).any()


def test_what_is_not_learned_yet_counts_as_running() -> None:
    """So that the remainder is never understated; ended, by exclusion, means terminated or unknown."""
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    learned = TabularFHTD(
        small_mdp.environment(),
        policy,
        outcomes,
        horizon=HORIZON,
        form="efo",
        discount=1.0,
        step_size=constant(0.1),
        dtype="float64",
    )
    explanation = Explainer(learned, policy, outcomes.legend).explain(np.array([0]))
    assert (explanation.running == 1).all()
    assert (explanation.ended == 1).all()
    assert explanation.remainder.bound[0] > 0


@pytest.mark.parametrize(
    ("state", "action", "message"),
    [
        (-1, 0, "numbered from 0"),
        (0, -1, "numbered from 0"),
        (0, small_mdp.NUM_ACTIONS, "numbered from 0"),
        (small_mdp.NUM_STATES, 0, "must be numbered from 0"),
    ],
)
def test_pairs_that_do_not_exist_are_refused(
    explainer: Explainer, state: int, action: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        explainer.explain(np.array([state]), np.array([action]))


def test_unknown_pairs_are_said_to_be_unknown(explainer: Explainer) -> None:
    known = explainer.explain(np.array([0]))
    unknown = Explanation(
        known.observations,
        known.actions,
        known.expected,
        known.running,
        np.zeros(1),
        known.legend,
        known.discount,
    )
    assert not unknown.known[0]
    assert remarks(unknown, 0) == ["never tried, so nothing is known about it"]


def test_pairs_can_be_taken_one_by_one(explainer: Explainer) -> None:
    every = explainer.explain(np.arange(3))
    assert [every[k].observations.tolist() for k in range(len(every))] == [[0], [1], [2]]
    np.testing.assert_array_equal(every[-1].expected, every.expected[2:])
    with pytest.raises(IndexError):
        every[3]


def test_a_network_that_knows_none_of_the_pairs_says_so(explainer: Explainer) -> None:
    one = explainer.explain(np.zeros(1, dtype=np.int64))
    vectors = replace(one, observations=np.zeros((1, 4)), support=np.zeros(1))
    assert vectors.obtained == "not learned"
    assert replace(vectors, support=np.ones(1)).obtained == "learned, but not evaluated"
    assert one.obtained == "exact"
