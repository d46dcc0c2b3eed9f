"""The return from the horizon to the end of the episode, solved exactly in a tabular model.

Let `T` be the transition matrix between states under the policy, `x` the expected reward of one step, `D` the
transition matrix from pairs to next states, and g the discount. Then the return after the first H steps is
`g^H D T^(H-1) V`, where `V = x + g T V`.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray

MOST_STATES = 20_000
"""The linear system of a larger model is not solved."""


class Edges(NamedTuple):
    """The one-step transitions of all pairs, and the policy in the next states."""

    row: IntArray
    """[edge]: the pair"""
    arrival: IntArray
    """[edge]: the next state"""
    reward: FloatArray
    """[edge]"""
    goes_on: FloatArray
    """[edge]: 0 where the episode ends, else 1"""
    next_rows: IntArray
    """[state, action]: the row of each pair; for untried pairs, the number of pairs"""
    probabilities: FloatArray
    """[state, action]: the policy's probabilities"""


class Episodes:
    """Solves models that share their edges and differ only in the edges' probabilities."""

    def __init__(self, edges: Edges, pairs: int, discount: float, horizon: int) -> None:
        from scipy.sparse import csr_matrix  # takes long to import

        self._edges, self._pairs, self._discount, self._horizon = edges, pairs, discount, horizon
        states = len(edges.next_rows)
        tried = edges.next_rows < pairs
        state, chosen = np.nonzero(tried & (edges.probabilities > 0))
        self._policy = csr_matrix(
            (edges.probabilities[state, chosen], (state, edges.next_rows[state, chosen])), (states, pairs)
        )
        self._untried = np.where(tried, 0, edges.probabilities).sum(axis=1)
        cells, self._cell = np.unique(edges.row * states + edges.arrival, return_inverse=True)
        first = np.searchsorted(cells // states, np.arange(pairs + 1))
        self._lead = csr_matrix((np.zeros(len(cells)), cells % states, first), (pairs, states))

    def returns(self, weight: FloatArray) -> FloatArray:
        """[pair]: the return after the horizon, discounted to step 0; NaN if it is infinite or undefined.

        weight [edge]: the probability of each edge given its pair. Untried pairs count as 0.
        """
        lead, step = self._chain(weight)
        reward = self._policy @ np.bincount(self._edges.row, weight * self._edges.reward, self._pairs)
        value = self._discount**self._horizon * self._later(lead, step, self._summed(step, reward))
        if self._endless.any():
            value[self._later(lead, step, self._endless.astype(np.float64)) > 0] = np.nan
        return value

    def unknown(self, weight: FloatArray) -> FloatArray:
        """[pair]: the discounted probability of reaching an untried pair after the horizon."""
        lead, step = self._chain(weight)
        return self._later(lead, step, self._summed(step, self._untried))

    def _chain(self, weight: FloatArray) -> tuple[Any, Any]:
        """The transition matrices from pairs to next states, and between states under the policy."""
        lead = self._lead.copy()
        lead.data = np.bincount(self._cell, weight * self._edges.goes_on, len(lead.data))
        return lead, self._policy @ lead

    def _summed(self, step: Any, each: FloatArray) -> FloatArray:
        """[state]: the discounted sum of a per-step quantity [state] to the end of the episode."""
        from scipy.sparse import identity
        from scipy.sparse.linalg import splu

        kept = np.flatnonzero(~self._endless)
        if len(kept) < len(each):
            step = step[kept][:, kept]
        total: FloatArray = np.zeros(len(each))
        if len(kept):
            system = identity(len(kept), format="csc") - self._discount * step.tocsc()
            total[kept] = splu(system).solve(each[kept])
        return total

    def _later(self, lead: Any, step: Any, value: FloatArray) -> FloatArray:
        """[pair]: the expectation of a value [state] at the end of the horizon."""
        for _ in range(self._horizon - 1):
            value = step @ value
        return np.asarray(lead @ value)

    @cached_property
    def _endless(self) -> BoolArray:
        """[state]: whether it can reach states from which the episode never ends; False with a discount."""
        states = len(self._edges.next_rows)
        if self._discount < 1:
            return np.zeros(states, dtype=np.bool_)
        goes_on = self._edges.goes_on > 0
        ends = np.bincount(self._edges.row, ~goes_on, self._pairs) > 0
        links = (self._chain(np.ones(len(goes_on)))[1] > 0).astype(np.float64)
        at_end = (self._policy @ ends.astype(np.float64) > 0) | (self._untried > 0)
        return _reaching(links, ~_reaching(links, at_end))


def _reaching(links: Any, goals: BoolArray) -> BoolArray:
    """[state]: whether it is a goal or can reach one through links [state, state]."""
    reached = goals
    while True:
        further = reached | (links @ reached.astype(np.float64) > 0)
        if (further == reached).all():
            return reached
        reached = further
