"""Posterior samples of expected outcomes: models drawn from the Dirichlet posterior of the counts."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tpd.core.beyond import Beyond
from tpd.core.explanation import TOLERATED
from tpd.core.outcomes import Legend
from tpd.core.pairs import locate, pair_of
from tpd.core.seeding import generator
from tpd.core.types import Array, DiscretePolicy, FloatArray, Policy
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.dirichlet_prior import successors
from tpd.predictors.tabular_dynamics import TabularDynamics
from tpd.predictors.whole_episode import MOST_STATES, Edges, Episodes


class Posterior:
    """Samples models of the dynamics from the Dirichlet posterior of the counts, and solves each one.

    The seed is a checksum of the counts. So explanations from the same data share their posterior samples,
    and explanations from other data do not.
    """

    def __init__(self, table: PairTable, policy: DiscretePolicy) -> None:
        self.table = table
        self._successors = successors(table)
        assert table.edges is not None
        self._seed = table.edges.checksum
        states, self._next = np.unique(self._successors.next_state, return_inverse=True)
        row, tried = locate(table.pairs, states[:, None] * table.num_actions + np.arange(table.num_actions))
        self._next_rows = np.where(tried, row, len(table.pairs))
        self._probabilities = policy.probabilities(states)

    def draws(self, count: int) -> Iterator[FloatArray]:
        """Expected outcomes [pair, horizon, outcome] of every pair of the table, for each sampled model.

        Each array is overwritten by the next. Untried pairs count as 0, as in the table.
        """
        from tpd.kernels.counts import solve_backwards  # numba takes long to import

        of, policy = self._successors, (self._next_rows, self._probabilities)
        solution = np.empty((len(self.table.pairs) + 1, *self.table.expected.shape[1:]), np.float32)
        for weight in self._weights(count):
            solution[:] = 0
            solve_backwards(of.row, self._next, weight, of.outcome, of.continuation, *policy, solution)
            yield solution[:-1]

    def dynamics(self, count: int) -> Iterator[TabularDynamics]:
        """The same models as `TabularDynamics`, to be propagated forwards."""
        of, pairs = self._successors, self.table.pairs
        for weight in self._weights(count):
            yield TabularDynamics(
                pairs[of.row], of.next_state, weight, of.outcome, of.continuation, self.table.num_actions
            )

    def _weights(self, count: int) -> Iterator[FloatArray]:
        """[successor]: the probability of each successor given its pair, for each sampled model."""
        rng, of = generator(self._seed, "posterior"), self._successors
        for _ in range(count):
            drawn = rng.standard_gamma(of.amount)
            yield drawn / np.bincount(of.row, drawn, len(self.table.pairs))[of.row]

    def rests(self, count: int, rewards: FloatArray, discount: float) -> Iterator[FloatArray]:
        """[pair]: the return after the horizon, in each of the models of `draws`."""
        of = self._successors
        reward, goes_on = of.outcome[:, :-1] @ rewards, of.continuation[:, -1]
        edges = Edges(of.row, self._next, reward, goes_on, self._next_rows, self._probabilities)
        episodes = Episodes(edges, len(self.table.pairs), discount, self.table.horizon)
        for weight in self._weights(count):
            yield episodes.returns(weight)


@dataclass(frozen=True)
class CountedTable(PairTable):
    """A table with the counts it was solved from, which can draw posterior samples."""

    def draws(self, observations: Array, actions: Array, policy: Policy, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: posterior samples of the expected outcomes."""
        assert isinstance(policy, DiscretePolicy)
        row, known = locate(self.pairs, pair_of(observations, actions, self.num_actions))
        drawn = np.zeros((count, *row.shape, *self.expected.shape[1:]), np.float32)
        for one, expected in zip(drawn, Posterior(self, policy).draws(count), strict=True):
            one[known] = expected[row[known]]
        return drawn

    def beyond(
        self, observations: Array, actions: Array, policy: Policy, legend: Legend, draws: int
    ) -> Beyond | None:
        """The return after the horizon, by solving the counted model to the end; None if it is too large.

        NaN if the discounted probability of reaching an untried pair exceeds `TOLERATED`, or if the episode
        may never end and nothing is discounted.
        """
        seen = self.edges
        assert isinstance(policy, DiscretePolicy)
        assert seen is not None
        states, arrival = np.unique(seen.next_state, return_inverse=True)
        if len(states) > MOST_STATES:
            return None
        rewards = legend.rewards
        row = np.searchsorted(self.pairs, seen.pair)
        found, tried = locate(self.pairs, states[:, None] * self.num_actions + np.arange(self.num_actions))
        following = np.where(tried, found, len(self.pairs))
        reward, goes_on = seen.outcome[:, :-1] @ rewards, seen.continuation[:, -1]
        edges = Edges(row, arrival, reward, goes_on, following, policy.probabilities(states))
        episodes = Episodes(edges, len(self.pairs), policy.discount, self.horizon)
        share = seen.count / self.visits[row]
        asked, known = locate(self.pairs, pair_of(observations, actions, self.num_actions))
        unknown = self.unknown(observations, actions)[:, -1] + episodes.unknown(share)[asked]
        mean = np.where(known & (unknown <= TOLERATED), episodes.returns(share)[asked], np.nan)
        drawn = Posterior(self, policy).rests(draws, rewards, policy.discount) if draws else ()
        values = [np.where(np.isfinite(mean), one[asked], np.nan) for one in drawn]
        never = np.zeros(len(mean), dtype=np.int64)
        return Beyond(mean, np.reshape(values, (draws, len(mean))), never > 0, never)
