"""Known dynamics, followed forwards: the same as solved backwards, and as counted over all futures."""

import itertools

import numpy as np

from tests.support import small_mdp
from tpd.core.types import FloatArray, IntArray
from tpd.predictors.exact import ExactSolution
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.tabular_dynamics import TabularDynamics
from tpd.sources.collection import play

HORIZON = 6


def known() -> TabularDynamics:
    model = small_mdp.environment().model
    assert model is not None
    return TabularDynamics.known(model, small_mdp.outcomes())


def test_forwards_and_backwards_agree() -> None:
    policy = small_mdp.policy()
    exact = ExactSolution(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=HORIZON)
    dynamics = known()
    for state, action in itertools.product(range(6), range(3)):
        future = dynamics.follow(state, action, lambda step, states: policy.probabilities(states), HORIZON)
        np.testing.assert_allclose(future.expected, exact.predict(np.array(state), np.array(action)))
        np.testing.assert_array_equal(future.unknown, 0)


def test_counted_dynamics_know_how_far_they_reach() -> None:
    policy, env = small_mdp.policy(), small_mdp.environment()
    learner = ReplayedFHTD(env, policy, small_mdp.outcomes(), horizon=HORIZON)
    learner.update(play(env, policy, np.random.default_rng(3), episodes=4).transitions)
    table = learner.table()
    assert table.edges is not None
    dynamics = TabularDynamics.counted(table.edges, small_mdp.NUM_ACTIONS)
    for pair in range(6 * small_mdp.NUM_ACTIONS):
        state, action = divmod(pair, small_mdp.NUM_ACTIONS)
        future = dynamics.follow(state, action, lambda step, states: policy.probabilities(states), HORIZON)
        np.testing.assert_allclose(future.expected, table.predict(np.array(state), np.array(action)))
        np.testing.assert_allclose(future.unknown, table.unknown(np.array(state), np.array(action)))
    assert (table.unknown(*np.divmod(table.pairs, 3)) > 0).mean() > 0


def test_another_choice_at_one_step_changes_what_follows() -> None:
    policy, dynamics = small_mdp.policy(), known()

    def last_at_step_two(step: int, states: IntArray) -> FloatArray:
        return np.eye(3)[np.full(len(states), 2)] if step == 2 else policy.probabilities(states)

    own = dynamics.follow(0, 0, lambda step, states: policy.probabilities(states), HORIZON)
    other = dynamics.follow(0, 0, last_at_step_two, HORIZON)
    np.testing.assert_array_equal(own.expected[:2], other.expected[:2])
    assert np.abs(own.expected[2] - other.expected[2]).max() > 0.01


def test_splits_are_sums_over_all_futures() -> None:
    """Of both events, by listing every path of four steps."""
    policy, dynamics, horizon = small_mdp.policy(), known(), 4
    splits = dynamics.splits(1, 2, policy, np.array([0, 1]), 2, horizon)
    paths = [(1.0, np.zeros((0, 2), bool), 1 * 3 + 2, True)]
    for _ in range(horizon):
        longer = []
        for p, seen, pair, alive in paths:
            if not alive:
                longer.append((p, np.vstack([seen, np.zeros((1, 2), bool)]), pair, False))
                continue
            for edge in np.flatnonzero(dynamics.pair == pair):
                now = np.vstack([seen, dynamics.outcome[edge, :2] > 0])
                likely, ends = p * dynamics.probability[edge], dynamics.outcome[edge, -1] > 0
                arrived = int(dynamics.next_state[edge])
                for a, chosen in enumerate(policy.probabilities(np.array([arrived]))[0]):
                    if not ends:
                        longer.append((likely * chosen, now, arrived * 3 + a, True))
                if ends:
                    longer.append((likely, now, pair, False))
        paths = longer
    for t, c, e in itertools.product(range(2), range(2), range(2)):
        met = then = still = 0.0
        for p, seen, _, _ in paths:
            if seen[: t + 1, e].any() or not seen[t].any():  # happened, or had ended
                continue
            ended_now = not seen[t + 1].any()  # the events are a partition
            if ended_now:
                continue
            still += p
            met += p * seen[: t + 1, c].any()
            then += p * (seen[: t + 1, c].any() and seen[t + 1 :, e].any())
        np.testing.assert_allclose(
            [splits.open[t, e], splits.condition[t, c, e], splits.condition_then[t, c, e]], [still, met, then]
        )
