"""Replayed FHTD: the fixed point of replaying what was seen, kept as sparse counts."""

from typing import Any

import numpy as np
import psutil
import pytest

from tests.support import small_mdp
from tests.support.learning import HORIZON, batches, exact
from tpd.core.outcomes import Outcome, OutcomeSet
from tpd.core.pairs import pair_numbers
from tpd.core.types import DiscretePolicy, Transitions, concatenate
from tpd.envs import Environment
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.counts import Counts
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.step_sizes import polynomial
from tpd.predictors.tabular import TabularFHTD


def learner(policy: DiscretePolicy) -> ReplayedFHTD:
    return ReplayedFHTD(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=HORIZON)


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_error_falls_with_the_square_root_of_the_data(stochastic: bool) -> None:
    policy = small_mdp.policy(stochastic)
    errors = []
    for steps in (10_000, 1_000_000):
        learned = learner(policy)
        for batch in batches(policy, steps):
            learned.update(batch)
        errors.append(np.sqrt(np.square(small_mdp.dense(learned.table()) - exact(policy)).mean()))
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < 0.005


def test_is_where_replaying_the_same_transitions_ends() -> None:
    """FHTD over the same batch again and again, with ever smaller steps, comes to the same answer."""
    policy = small_mdp.policy()
    replayed = learner(policy)
    stepwise = TabularFHTD(
        small_mdp.environment(),
        policy,
        small_mdp.outcomes(),
        horizon=HORIZON,
        form="efo",
        discount=1.0,
        step_size=polynomial(0.9),
        dtype="float64",
    )
    batch = concatenate(list(batches(policy, 2_000)))
    replayed.update(batch)
    rng = np.random.default_rng(0)
    for _ in range(1500):
        stepwise.update(batch[rng.permutation(len(batch))])
    assert np.abs(small_mdp.dense(stepwise.table()) - small_mdp.dense(replayed.table())).max() < 0.01
    assert np.abs(small_mdp.dense(replayed.table()) - exact(policy)).max() > 0.03


def test_narrow_numbers_of_states_are_as_good_as_wide_ones() -> None:
    """100 states x 4 actions are more pairs than a byte can number."""
    pairs = PairTable(4, np.arange(400), np.arange(400.0)[:, None, None], np.arange(400.0))
    states, actions = np.arange(100, dtype=np.uint8), np.full(100, 3, dtype=np.uint8)
    wide = 4 * np.arange(100) + 3
    np.testing.assert_array_equal(pairs.support(states, actions), wide)
    np.testing.assert_array_equal(pairs.predict(states, actions)[:, 0, 0], wide)
    np.testing.assert_array_equal(pair_numbers(states, actions, 4), wide)


def test_batches_and_order_do_not_matter() -> None:
    policy = small_mdp.policy()
    whole, parts = learner(policy), learner(policy)
    batch = concatenate(list(batches(policy, 5_000)))
    whole.update(batch)
    for part in np.array_split(np.random.default_rng(0).permutation(len(batch)), 7):
        parts.update(batch[part])
    np.testing.assert_allclose(small_mdp.dense(whole.table()), small_mdp.dense(parts.table()), atol=1e-12)
    np.testing.assert_array_equal(whole.table().visits, parts.table().visits)


def test_untried_pairs_are_unknown() -> None:
    policy = small_mdp.policy()
    learned = learner(policy)
    assert len(learned.table().pairs) == 0
    batch = concatenate(list(batches(policy, 1_000)))
    learned.update(batch[batch.action != 2])
    states = np.arange(small_mdp.NUM_STATES)
    assert (learned.support(states, np.full(len(states), 2)) == 0).all()
    assert not learned.predict(states, np.full(len(states), 2)).any()
    assert learned.table().visits.sum() == (batch.action != 2).sum()


def test_a_changed_policy_is_answered_without_new_data() -> None:
    probabilities = np.eye(small_mdp.NUM_ACTIONS)[np.zeros(small_mdp.NUM_STATES, dtype=int)]
    policy = TabularPolicy(probabilities, 0.9)
    learned = learner(policy)
    for batch in batches(policy, 500_000):
        learned.update(batch)
    before = small_mdp.dense(learned.table())
    probabilities[:] = np.eye(small_mdp.NUM_ACTIONS)[1]
    after = small_mdp.dense(learned.table())
    assert np.abs(after - exact(policy)).max() < 0.02
    assert np.abs(after - before).max() > 0.05


def test_outcomes_that_vary_with_the_same_states_are_averaged() -> None:
    policy = small_mdp.policy()
    noisy = OutcomeSet([Outcome("noise", lambda t: t.reward, 0, 1)])
    learned = ReplayedFHTD(small_mdp.environment(), policy, noisy, horizon=2)
    batch = concatenate(list(batches(policy, 20_000)))
    rewards = np.random.default_rng(0).random(len(batch))
    learned.update(type(batch)(**{**vars(batch), "reward": rewards}))
    pair = (batch.observation == 1) & (batch.action == 0)
    here = np.array([1]), np.array([0])
    assert learned.predict(*here)[0, 0, 0] == pytest.approx(rewards[pair].mean(), abs=1e-6)
    assert learned.support(*here) == pair.sum()


def test_counts_grow_and_lose_nothing() -> None:
    rng = np.random.default_rng(0)
    counts = Counts(width=2, room=4)
    pair, next_state = rng.integers(50, size=20_000), rng.integers(40, size=20_000)
    outcome = rng.integers(3, size=(20_000, 2)).astype(np.float32)
    for part in np.array_split(np.arange(20_000), 13):
        counts.add(pair[part], next_state[part], outcome[part], outcome[part])
    e = counts.edges
    found = {
        (p, s, *o): n for p, s, o, n in zip(e.pair, e.next_state, e.outcome.tolist(), e.count, strict=True)
    }
    rows, expected = np.unique(np.column_stack([pair, next_state, outcome]), axis=0, return_counts=True)
    assert found == {tuple(row): n for row, n in zip(rows.tolist(), expected, strict=True)}


def test_a_horizon_that_is_too_long_for_a_single_pair_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"needs .* use a shorter horizon"):
        ReplayedFHTD(small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=10**15)


def test_too_many_pairs_are_refused_when_they_are_known() -> None:
    """One pair takes a tenth of the free memory, and a million were tried."""
    outcomes = small_mdp.outcomes()
    horizon = psutil.virtual_memory().available // (10 * 8 * (outcomes.width + 1))
    count = 10**6
    learned = ReplayedFHTD(
        Environment("tests.sources.test_exploration:Vast-v0"), Anything(), outcomes, horizon=horizon
    )
    states, nothing = np.arange(count), np.zeros(count, dtype=bool)
    learned.update(Transitions(states, np.zeros(count, dtype=int), states, states % 2.0, nothing, nothing))
    with pytest.raises(ValueError, match=r"1000001 x .* needs"):
        learned.table()


class Anything(TabularPolicy):
    """Knows every state."""

    def __init__(self) -> None:
        super().__init__(np.array([[0.5, 0.5]]), 0.99)

    def probabilities(self, observations: Any) -> Any:
        return np.full((len(observations), 2), 0.5)
