"""The Markov chain over state-action pairs, from the counted model and the policy."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tpd.core.pairs import locate
from tpd.core.types import DiscretePolicy, FloatArray, IntArray
from tpd.predictors.pair_table import Edges


@dataclass(frozen=True)
class PairChain:
    """The tried pairs (one extra row: all untried ones), their transitions, and the policy in next states."""

    num_actions: int
    pairs: IntArray
    """[pair]: state * num_actions + action, ascending"""
    visits: FloatArray
    """[pair]"""
    edges: Edges
    row: IntArray
    """[edge]: row of its pair"""
    weight: FloatArray
    """[edge]: its probability given the pair, by counts"""
    arrival: IntArray
    """[edge]: index of its next state in `next_states`"""
    next_states: IntArray
    """[next state]"""
    next_rows: IntArray
    """[next state, action]: row of the pair; for untried pairs, the number of pairs"""
    next_probabilities: FloatArray
    """[next state, action]: the policy's probabilities"""

    @classmethod
    def of(cls, edges: Edges, policy: DiscretePolicy, num_actions: int) -> "PairChain":
        """The chain of these counts and the current policy."""
        pairs, row = np.unique(edges.pair, return_inverse=True)
        visits = np.bincount(row, edges.count, len(pairs)).astype(np.float64)
        next_states, arrival = np.unique(edges.next_state, return_inverse=True)
        found, tried = locate(pairs, next_states[:, None] * num_actions + np.arange(num_actions))
        return cls(
            num_actions=num_actions,
            pairs=pairs,
            visits=visits,
            edges=edges,
            row=row,
            weight=edges.count / visits[row],
            arrival=arrival,
            next_states=next_states,
            next_rows=np.where(tried, found, len(pairs)),
            next_probabilities=policy.probabilities(next_states),
        )

    def mean(self, values: FloatArray) -> FloatArray:
        """[pair, ...]: the expectation of values [edge, ...] after each pair."""
        means = np.zeros((len(self.pairs), *values.shape[1:]))
        np.add.at(means, self.row, self.weight.reshape(-1, *(1,) * (values.ndim - 1)) * values)
        return means

    def transition_matrix(self, continuation: FloatArray) -> Any:
        """[pair, pair + 1], sparse: probabilities of the next pair; `continuation` [edge] is 0 at an end."""
        from scipy import sparse  # takes long to import

        actions = range(self.num_actions)
        likely = (self.weight * continuation)[:, None] * self.next_probabilities[self.arrival]
        follower = self.next_rows[self.arrival]
        size = len(self.pairs), len(self.pairs) + 1
        entries = [(likely[:, a], (self.row, follower[:, a])) for a in actions]
        matrix = sum(sparse.csc_matrix(entry, shape=size) for entry in entries)
        matrix.eliminate_zeros()
        return matrix
