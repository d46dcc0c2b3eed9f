"""FHTD replayed to convergence: count what was seen, and solve the counts exactly."""

from dataclasses import dataclass

import numpy as np

from tpd.checks import whole_number
from tpd.envs import Environment
from tpd.kernels import count_edges, solve_backwards
from tpd.outcomes import OutcomeSet
from tpd.types import Array, FloatArray, IntArray, Policy, Transitions


class Counts:
    """How often each (pair, next state, outcome) was seen: all that replaying transitions can teach.

    Each such combination is an edge. The arrays grow as edges appear, whatever the number of states.
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
    def pair(self) -> IntArray:
        """[edge]"""
        return self._edges[: self._number, 0]

    @property
    def next_state(self) -> IntArray:
        """[edge]"""
        return self._edges[: self._number, 1]

    @property
    def outcome(self) -> FloatArray:
        """[edge, outcome]"""
        return self._outcome[: self._number]

    @property
    def continuation(self) -> FloatArray:
        """[edge, outcome]"""
        return self._continuation[: self._number]

    @property
    def count(self) -> IntArray:
        """[edge]"""
        return self._count[: self._number]

    def add(
        self, pair: IntArray, next_state: IntArray, outcome: FloatArray, continuation: FloatArray
    ) -> None:
        """Count a batch: arrays [batch] and [batch, outcome]."""
        begin = 0
        while begin < len(pair):
            begin, self._number = count_edges(
                self._slots,
                self._edges,
                self._outcome,
                self._continuation,
                self._count,
                self._number,
                pair,
                next_state,
                outcome,
                continuation,
                begin,
            )
            if begin < len(pair):
                self._grow()

    def _grow(self) -> None:
        edges = self.pair, self.next_state, self.outcome, self.continuation
        count = self.count
        self._allocate(self._outcome.shape[1], 2 * len(self._count))
        self.add(*edges)
        self._count[: len(count)] = count


@dataclass(frozen=True)
class Solution:
    """The outcomes expected of every pair that was tried, for one policy."""

    pairs: IntArray
    """[pair], ascending"""
    visits: IntArray
    """[pair]"""
    expected: FloatArray
    """[pair, horizon, outcome]"""
    next_states: IntArray
    """[next state]: where the policy was asked"""
    policy: FloatArray
    """[next state, action]: what it answered"""


class ReplayedFHTD:
    """What FHTD converges to if the transitions seen so far are replayed for ever.

    Solved backwards over the horizon when an answer is wanted and something has changed since.
    """

    def __init__(self, env: Environment, policy: Policy, outcomes: OutcomeSet, *, horizon: int) -> None:
        self.policy = policy
        self.outcomes = outcomes
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self._shape = env.table_shape()
        self._counts = Counts(outcomes.width)
        self._solution: Solution | None = None

    def update(self, transitions: Transitions) -> None:
        """Count a batch."""
        outcome, continuation = self.outcomes.observe(transitions)
        pair = self._pair(transitions.observation, transitions.action)
        self._counts.add(pair, transitions.next_observation, outcome, continuation)
        self._solution = None

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]; 0 for pairs never tried, whose support is 0."""
        solution = self._solve()
        row, tried = self._find(solution, observations, actions)
        expected = np.zeros((*row.shape, self.horizon, self.outcomes.width))
        expected[tried] = solution.expected[row[tried]]
        return expected

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often each pair was tried."""
        solution = self._solve()
        row, tried = self._find(solution, observations, actions)
        visits = np.zeros(row.shape)
        visits[tried] = solution.visits[row[tried]]
        return visits

    def table(self) -> tuple[FloatArray, FloatArray]:
        """Every prediction [state, action, horizon, outcome] and its support [state, action]."""
        states, actions = np.indices(self._shape)
        return self.predict(states, actions), self.support(states, actions)

    def _pair(self, observations: Array, actions: Array) -> IntArray:
        return np.asarray(observations * self._shape[1] + actions)

    def _find(self, solution: Solution, observations: Array, actions: Array) -> tuple[IntArray, Array]:
        """The row of each pair in the solution, and whether it is there."""
        return _locate(solution.pairs, self._pair(observations, actions))

    def _solve(self) -> Solution:
        known = self._solution
        if known is not None and np.array_equal(known.policy, self.policy.probabilities(known.next_states)):
            return known
        counts = self._counts
        pairs, pair_of_edge = np.unique(counts.pair, return_inverse=True)
        next_states, next_of_edge = np.unique(counts.next_state, return_inverse=True)
        visits = np.bincount(pair_of_edge, counts.count, len(pairs)).astype(np.int64)
        policy = self.policy.probabilities(next_states)
        actions = np.arange(self._shape[1])
        row, tried = _locate(pairs, self._pair(next_states[:, None], actions))
        expected = np.zeros((len(pairs), self.horizon, self.outcomes.width))
        solve_backwards(
            pair_of_edge,
            next_of_edge,
            counts.count / visits[pair_of_edge],
            counts.outcome,
            counts.continuation,
            np.where(tried, row, -1),
            policy,
            expected,
        )
        self._solution = Solution(pairs, visits, expected, next_states, policy)
        return self._solution


def _locate(ascending: IntArray, values: IntArray) -> tuple[IntArray, Array]:
    """Where each value stands in an ascending array, and whether it is there."""
    if len(ascending) == 0:
        return np.zeros(values.shape, dtype=np.int64), np.zeros(values.shape, dtype=np.bool_)
    position = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return position, ascending[position] == values
