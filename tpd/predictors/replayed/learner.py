"""FHTD replayed to convergence: count the transitions, and solve the counts exactly."""

import copy
from typing import Protocol, runtime_checkable

import numpy as np

from tpd.core.outcomes import Observed, OutcomeSet
from tpd.core.pairs import pair_of
from tpd.core.types import Array, DiscretePolicy, FloatArray, IntArray, State, Transitions
from tpd.envs import Environment
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import whole_number
from tpd.guards.sizes import require_memory
from tpd.kernels.counts import solve_backwards
from tpd.predictors.pair_table import Edges, PairTable
from tpd.predictors.replayed.counts import Counts
from tpd.predictors.replayed.pair_chain import PairChain
from tpd.predictors.replayed.posterior import CountedTable
from tpd.predictors.tabular import check_numbers


@runtime_checkable
class VersionedPolicy(DiscretePolicy, Protocol):
    """A policy that counts its changes, so that it need not be compared state by state."""

    @property
    def version(self) -> int:
        """Another number whenever the policy may have changed."""


class ReplayedFHTD:
    """What FHTD converges to if the transitions seen so far are replayed for ever.

    Solved backwards over the horizon when an answer is wanted and something has changed since.
    """

    tie = 0.0

    def __init__(
        self, env: Environment, policy: DiscretePolicy, outcomes: OutcomeSet, *, horizon: int
    ) -> None:
        self.policy = policy
        self.outcomes = outcomes
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self._require_room(pairs=1)
        self._num_states, self._num_actions = env.table_shape()
        self._counts = Counts(outcomes.width)
        self._table: PairTable | None = None
        self._next_states: IntArray = np.empty(0, dtype=np.int64)
        self._solved_for: FloatArray = np.empty(0)
        self._solved_version: int | None = None

    def update(self, transitions: Transitions) -> None:
        """Count a batch."""
        outcome, continuation = self.outcomes.observe(transitions)
        check_numbers(transitions, self._num_states, self._num_actions)
        pair = pair_of(transitions.observation, transitions.action, self._num_actions)
        self._counts.add(pair, transitions.next_observation, outcome, continuation)
        self._table = None

    def empty(self) -> "ReplayedFHTD":
        """Another one, for the same policy and outcomes, that has seen nothing."""
        other = copy.copy(self)
        other._counts, other._table = Counts(self.outcomes.width), None
        return other

    def merge(self, other: "ReplayedFHTD") -> None:
        """Count all that the other one has counted."""
        self._counts.merge(other._counts.edges)
        self._table = None

    def state(self) -> State:
        """The counts."""
        return vars(self._counts.edges)

    def restore(self, state: State) -> None:
        """Go on counting from there."""
        stored, counts = CheckedArrays(state), Counts(self.outcomes.width)
        due = counts.edges
        count = stored.like("count", due.count, rows=None, low=1)
        rows, states = len(count), self._num_states
        edges = Edges(
            stored.like("pair", due.pair, rows=rows, low=0, high=states * self._num_actions - 1),
            stored.like("next_state", due.next_state, rows=rows, low=0, high=states - 1),
            stored.like("outcome", due.outcome, rows=rows),
            stored.like("continuation", due.continuation, rows=rows),
            count,
        )
        self.outcomes.check_observed(Observed(edges.outcome, edges.continuation))
        counts.merge(edges)
        self._counts, self._table = counts, None

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]; 0 for pairs never tried, whose support is 0."""
        return self.table().predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often each pair was tried."""
        return self.table().support(observations, actions)

    def table(self) -> PairTable:
        """Every pair that was tried, solved for the policy as it is now."""
        if self._table is None or self._policy_changed():
            self._table = self._solve()
        return self._table

    def solved(self) -> PairTable:
        """The answers as they are now."""
        return self.table()

    def _policy_changed(self) -> bool:
        if isinstance(self.policy, VersionedPolicy) and self.policy.version == self._solved_version:
            return False
        return not np.array_equal(self.policy.probabilities(self._next_states), self._solved_for)

    def _solve(self) -> PairTable:
        """Solve the counts, with one row more for all that was never tried and one column more for how
        likely the future has come to it: where it starts there, that is certain, and stays so.
        """
        chain = self._chain()
        edges, pairs = chain.edges, len(chain.pairs)
        solution = np.zeros(self._require_room(pairs + 1))
        solution[-1, :, -1] = 1
        solve_backwards(
            chain.row,
            chain.arrival,
            chain.weight,
            np.pad(edges.outcome, ((0, 0), (0, 1))),
            np.pad(edges.continuation, ((0, 0), (0, 1)), "edge"),  # as long as the episode, the last outcome
            chain.next_rows,
            chain.next_probabilities,
            solution,
        )
        expected, into_unknown = solution[:-1, :, :-1], solution[:-1, :, -1]
        return CountedTable(self._num_actions, chain.pairs, expected, chain.visits, into_unknown, edges)

    def _chain(self) -> PairChain:
        """What was counted, with the policy as it is now, which is remembered."""
        chain = PairChain.of(self._counts.edges, self.policy, self._num_actions)
        self._next_states, self._solved_for = chain.next_states, chain.next_probabilities
        self._solved_version = self.policy.version if isinstance(self.policy, VersionedPolicy) else None
        return chain

    def _require_room(self, pairs: int) -> tuple[int, int, int]:
        """The shape of the solution for so many pairs, refused if it is too large."""
        shape = (pairs, self.horizon, self.outcomes.width + 1)
        require_memory("the table of pairs seen", shape, "float64", "use a shorter horizon or fewer outcomes")
        return shape
