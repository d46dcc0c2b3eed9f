"""Temporal reward decomposition (Towers, Du, Freeman, Norman 2024), for a fixed policy.

Bin i < N - 1 is `discount^i E[r_i]`, the expected reward i steps ahead. The last bin sums all later rewards,
`E[sum_{i >= N-1} discount^i r_i]`, so the bins sum to Q. It tells when reward is expected, but not which
events it comes from, unless the reward is the only outcome.
"""

import numpy as np

from tpd.core.efo import powers
from tpd.core.outcomes import UNACCOUNTED, OutcomeSet
from tpd.core.types import Array, DiscretePolicy, FloatArray
from tpd.core.verdicts import Verdict, Verdicts
from tpd.envs import Environment
from tpd.kernels.counts import solve_backwards
from tpd.predictors.pair_table import LimitedTable, PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.rivals.discounted_totals import check_discount, limits, solve_totals


def carrier_of(outcomes: OutcomeSet) -> tuple[int, float]:
    """The outcome whose column holds the whole reward, and its weight: the first with a weight other than 0.

    Returns are weighted sums of outcomes, so one outcome can stand for the whole reward.
    """
    if outcomes.legend.reward_bound is None:
        raise ValueError(f"temporal reward decomposition: {UNACCOUNTED}")
    worth = [(k, weight) for k, weight in enumerate(outcomes.legend.weights) if weight]
    if not worth:
        raise ValueError("temporal reward decomposition needs a reward, but all outcomes have reward 0")
    return worth[0]


def temporal_limits(outcomes: OutcomeSet, horizon: int) -> Verdicts:
    """[1, ...]: returns are predicted; an outcome only if it alone makes up the reward."""
    told = limits(horizon, np.zeros(outcomes.width, dtype=np.bool_))
    told.returns[:, :-1] = Verdict.NOT_JUDGED
    if sum(weight is not None for weight in outcomes.legend.weights) == 1:
        carrier, _ = carrier_of(outcomes)
        told.at[:, :-1, carrier] = told.by[:, :-1, carrier] = Verdict.NOT_JUDGED
    return told


class TemporalReward(ReplayedFHTD):
    """A table of the expected reward at every step and of its tail."""

    def __init__(
        self, env: Environment, policy: DiscretePolicy, outcomes: OutcomeSet, *, horizon: int
    ) -> None:
        super().__init__(env, policy, outcomes, horizon=horizon)
        self.discount = check_discount(policy.discount, "temporal reward decomposition")
        self._carrier, self._weight = carrier_of(outcomes)

    @property
    def limits(self) -> Verdicts:
        """[1, ...]"""
        return temporal_limits(self.outcomes, self.horizon)

    def bins(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon]: discounted expected reward of each step; the last bin sums all later steps."""
        expected = self.predict(observations, actions)[..., self._carrier]
        return np.asarray(self._weight * expected * powers(self.discount, self.horizon))

    def _solve(self) -> PairTable:
        chain = self._chain()
        edges, pairs = chain.edges, chain.pairs
        reward = edges.outcome[:, :-1].astype(np.float64) @ self.outcomes.legend.rewards
        goes_on = edges.continuation[:, -1:].astype(np.float64)
        total = solve_totals(chain, self.discount, reward[:, None], goes_on).outcome
        value = np.einsum("sa,sa->s", chain.next_probabilities, np.append(total, 0)[chain.next_rows])
        with_tail = reward + self.discount * goes_on[:, 0] * value[chain.arrival]
        solution = np.zeros((len(pairs) + 1, self.horizon, 3))
        solution[-1, :, -1] = 1
        outcome = np.stack([reward, with_tail, np.zeros_like(reward)], axis=1)
        goes_on = np.repeat(goes_on, 3, axis=1)
        policy = chain.next_rows, chain.next_probabilities
        solve_backwards(chain.row, chain.arrival, chain.weight, outcome, goes_on, *policy, solution)
        rewards, tails, unknown = np.moveaxis(solution[:-1], -1, 0)
        expected = np.zeros((len(pairs), self.horizon, self.outcomes.width))
        expected[:, :, self._carrier] = np.append(rewards[:, :-1], tails[:, -1:], axis=1)
        expected[:, :, self._carrier] /= self._weight
        expected[:, -1, -1] = 1 - unknown[:, -1]
        return LimitedTable(chain.num_actions, pairs, expected, chain.visits, unknown, limits=self.limits)
