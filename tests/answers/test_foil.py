"""One rule for the foil that nobody named, wherever it is shown."""

import numpy as np
import pytest
from gymnasium import spaces

from tests.support import small_mdp
from tests.support.learning import HORIZON
from tpd.answers.foil import RUNNER_UP, best, chosen, opposite, others
from tpd.core.outcomes import OutcomeSet, event
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer


def explainer(policy: TabularPolicy, outcomes: OutcomeSet) -> Explainer:
    env = small_mdp.environment()
    return Explainer(ExactSolution(env, policy, outcomes, horizon=HORIZON), policy, outcomes.legend)


def test_the_default_foil_has_the_highest_return_of_the_others() -> None:
    env, policy = small_mdp.environment(), small_mdp.policy()
    explained = explainer(policy, small_mdp.outcomes())
    states = np.arange(small_mdp.NUM_STATES)
    returns, own = explained.action_returns(states), policy.action(states)
    returns[states, own] = -np.inf
    foils = [int(chosen(explained, env, states[s : s + 1], RUNNER_UP)) for s in states]
    assert foils == returns.argmax(axis=1).tolist()


@pytest.mark.parametrize("valued", [True, False])
def test_without_rewards_the_agent_itself_says_which_is_best(valued: bool) -> None:
    shape = small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS
    probabilities = np.tile([0.6, 0.1, 0.3], (shape[0], 1))
    values = np.tile([3.0, 2.0, 1.0], (shape[0], 1)) if valued else None
    policy = TabularPolicy(probabilities, 0.9, values)
    explained = explainer(policy, OutcomeSet([event("odd", small_mdp.odd)]))
    explanation = explained.explain(np.zeros(2, dtype=np.int64), np.array([1, 2]))
    assert explanation.actions[best(explanation, policy)] == (1 if valued else 2)


def test_others_are_valid_and_not_the_action_itself() -> None:
    env = small_mdp.environment()
    assert others(env, np.array(1), np.array([True, True, False])).tolist() == [0]


def test_the_opposite_is_mirrored_and_never_the_action_itself() -> None:
    space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64)
    actions = np.array([[0.5, 1.0], [0.0, 2.0]])
    assert opposite(space, actions).tolist() == [[-0.5, 3.0], [1.0, 4.0]]
