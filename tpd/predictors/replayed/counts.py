"""Counts of transitions, and the tabular model estimated from them."""

import numpy as np

from tpd.core.outcomes import UNACCOUNTED, OutcomeSet
from tpd.core.types import FloatArray, IntArray
from tpd.envs.tabular import TabularModel
from tpd.predictors.pair_table import Edges


class Counts:
    """The count of each distinct (pair, next state, outcomes), called an edge.

    These counts are a sufficient statistic of the transitions. Memory grows with the number of edges, not
    with the number of states.
    """

    def __init__(self, width: int, room: int = 1024) -> None:
        self._allocate(width, room)

    def _allocate(self, width: int, room: int) -> None:
        self._number = 0
        self._slots = np.full(4 * room, -1, dtype=np.int64)
        self._edges = np.empty((room, 2), dtype=np.int64)
        self._outcome = np.empty((room, width), dtype=np.float32)
        self._continuation = np.empty((room, width), dtype=np.float32)
        self._count = np.zeros(room, dtype=np.int64)

    @property
    def edges(self) -> Edges:
        """All edges with their counts."""
        seen = slice(self._number)
        pair, next_state = self._edges[seen].T
        return Edges(pair, next_state, self._outcome[seen], self._continuation[seen], self._count[seen])

    def add(self, pair: IntArray, next_state: IntArray, outcome: FloatArray, goes_on: FloatArray) -> None:
        """Count a batch: arrays [batch] and [batch, outcome]."""
        from tpd.kernels.counts import count_edges  # numba takes long to import

        shape = (len(pair), self._outcome.shape[1])
        if next_state.shape != shape[:1] or outcome.shape != shape or goes_on.shape != shape:
            raise ValueError(f"outcomes must have shape {shape}, got {outcome.shape} and {goes_on.shape}")
        begin, batch = 0, (pair, next_state, outcome, goes_on)
        while begin < len(pair):
            known = self._slots, self._edges, self._outcome, self._continuation, self._count
            begin, self._number = count_edges(*known, self._number, *batch, begin)
            if begin < len(pair):
                self._grow()

    def merge(self, edges: Edges) -> None:
        """Add the counts of other edges, exactly.

        `add` counts each edge once per call. So each edge is added once, and the rest of its count is added
        one binary digit at a time.
        """
        self.add(edges.pair, edges.next_state, edges.outcome, edges.continuation)
        missing, counted = edges.count - 1, self._count
        for digit in range(int(missing.max(initial=0)).bit_length()):
            some = missing >> digit & 1 == 1
            self._count = np.zeros_like(counted)
            self.add(edges.pair[some], edges.next_state[some], edges.outcome[some], edges.continuation[some])
            counted += self._count << digit
        self._count = counted

    def _grow(self) -> None:
        edges = self.edges
        self._allocate(self._outcome.shape[1], 2 * len(self._count))
        self.add(edges.pair, edges.next_state, edges.outcome, edges.continuation)
        self._count[: len(edges.count)] = edges.count


def counted_model(edges: Edges, outcomes: OutcomeSet, num_states: int, num_actions: int) -> TabularModel:
    """The dynamics estimated from counts; untried pairs are invalid actions.

    In a state without any tried action all actions are marked valid, and none has transitions. Initial states
    are not counted: their distribution is 0 everywhere.
    """
    legend = outcomes.legend
    if legend.reward_bound is None:
        raise ValueError(UNACCOUNTED)
    order = np.argsort(edges.pair, kind="stable")
    pair, count = edges.pair[order], edges.count[order]
    visits = np.bincount(pair, count, num_states * num_actions)
    branches = np.bincount(pair, minlength=num_states * num_actions)
    branch = np.arange(len(pair)) - (np.cumsum(branches) - branches)[pair]
    shape = (num_states, num_actions, int(branches.max(initial=1)))
    at = (*np.divmod(pair, num_actions), branch)
    probability, reward = np.zeros(shape), np.zeros(shape)
    next_state, terminated = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    probability[at] = count / visits[pair]
    reward[at] = edges.outcome[order, :-1].astype(np.float64) @ legend.rewards
    next_state[at] = edges.next_state[order]
    terminated[at] = edges.outcome[order, -1] == 1
    tried = (visits > 0).reshape(num_states, num_actions)
    mask = tried | ~tried.any(axis=1, keepdims=True)
    return TabularModel(probability, next_state, reward, terminated, np.zeros(num_states), mask)
