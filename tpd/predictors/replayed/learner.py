"""The fixed point of FHTD on replayed transitions: counts transitions and solves the counts exactly."""

import copy

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


class ReplayedFHTD:
    """Predicts what FHTD converges to if all transitions seen so far are replayed for ever.

    Counts transitions, and solves the counts backwards over the horizon when a prediction is needed and
    counts or policy have changed.
    """

    tie = 0.0

    def __init__(
        self, env: Environment, policy: DiscretePolicy, outcomes: OutcomeSet, *, horizon: int
    ) -> None:
        self.policy, self.outcomes = policy, outcomes
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
        """A new learner for the same policy and outcomes, without counts."""
        other = copy.copy(self)
        other._counts, other._table = Counts(self.outcomes.width), None
        return other

    def merge(self, other: "ReplayedFHTD") -> None:
        """Add the counts of another learner."""
        self._counts.merge(other._counts.edges)
        self._table = None

    def state(self) -> State:
        """The counts."""
        return vars(self._counts.edges)

    def restore(self, state: State) -> None:
        """Continue with those counts."""
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
        """[batch, horizon, outcome]; 0 for untried pairs, whose support is 0."""
        return self.table().predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: visits of each pair."""
        return self.table().support(observations, actions)

    def table(self) -> PairTable:
        """Every tried pair, solved for the current policy."""
        if self._table is None or self._policy_changed():
            self._table = self._solve()
        return self._table

    def solved(self) -> PairTable:
        """The current table."""
        return self.table()

    def _policy_changed(self) -> bool:
        version = getattr(self.policy, "version", None)
        if version is not None and version == self._solved_version:  # faster than to compare probabilities
            return False
        return not np.array_equal(self.policy.probabilities(self._next_states), self._solved_for)

    def _solve(self) -> PairTable:
        """Solve the counts. An extra row stands for all untried pairs, and an extra column for the
        probability of having reached one: in the extra row it is 1 at every step.
        """
        chain = self._chain()
        edges, pairs = chain.edges, len(chain.pairs)
        solution = np.zeros(self._require_room(pairs + 1))
        solution[-1, :, -1] = 1
        outcome = np.pad(edges.outcome, ((0, 0), (0, 1)))
        goes_on = np.pad(edges.continuation, ((0, 0), (0, 1)), "edge")  # ends with the episode
        policy = chain.next_rows, chain.next_probabilities
        solve_backwards(chain.row, chain.arrival, chain.weight, outcome, goes_on, *policy, solution)
        expected, into_unknown = solution[:-1, :, :-1], solution[:-1, :, -1]
        return CountedTable(self._num_actions, chain.pairs, expected, chain.visits, into_unknown, edges)

    def _chain(self) -> PairChain:
        """The pair chain of the counts and the current policy, which is remembered."""
        chain = PairChain.of(self._counts.edges, self.policy, self._num_actions)
        self._next_states, self._solved_for = chain.next_states, chain.next_probabilities
        self._solved_version = getattr(self.policy, "version", None)
        return chain

    def _require_room(self, pairs: int) -> tuple[int, int, int]:
        """The shape of the solution for this number of pairs; raises if it is too large."""
        shape = (pairs, self.horizon, self.outcomes.width + 1)
        instead = "use a shorter horizon or fewer outcomes"
        require_memory("the table of visited pairs", shape, "float64", instead)
        return shape
