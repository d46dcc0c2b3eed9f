"""Tabular fixed-horizon TD (FHTD) learning, as in the paper."""

import numpy as np

from tpd.core.efo import check_decomposition, decompose
from tpd.core.outcomes import OutcomeSet
from tpd.core.pairs import pair_of
from tpd.core.types import Array, DiscretePolicy, FloatArray, State, Transitions
from tpd.envs import Environment
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import number, numbered, one_of, whole_number
from tpd.guards.sizes import require_memory
from tpd.kernels.learning import fhtd_update
from tpd.predictors.pair_table import PairTable
from tpd.predictors.step_sizes import StepSize


def check_numbers(transitions: Transitions, num_states: int, num_actions: int) -> None:
    """Refuse states and actions outside the table, which would be mistaken for others."""
    numbered("observations", transitions.observation, num_states)
    numbered("actions", transitions.action, num_actions)
    numbered("next observations", transitions.next_observation, num_states)


class TabularFHTD:
    """Tabular FHTD: each transition updates all horizons and outcomes of its pair.

    form "fhgvf" learns value functions `Q_h` and decomposes them, as the paper does; "efo" learns
    the outcomes `O_h` directly. The update is linear, so both predict the same, up to rounding.

    An untried pair counts as a future in which nothing happens. How much of a prediction comes from untried
    pairs is not tracked, because that would cost one more outcome in every update. ReplayedFHTD tracks it.
    """

    tie = 0.0

    def __init__(
        self,
        env: Environment,
        policy: DiscretePolicy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        step_size: StepSize,
        form: str = "fhgvf",
        discount: float = 1.0,
        dtype: str = "float32",
    ) -> None:
        self.horizon = horizon = whole_number("horizon", horizon, at_least=1)
        self.form = one_of("form", form, ("fhgvf", "efo"))
        self.discount = number("discount", discount, 0, 1, above_low=True)
        one_of("dtype", dtype, ("float32", "float64"))
        if form == "fhgvf":
            check_decomposition(discount, horizon, np.dtype(dtype))
        self.policy, self.outcomes, self.step_size = policy, outcomes, step_size
        num_states, num_actions = env.table_shape()
        shape = (num_states, num_actions, outcomes.width, horizon)
        require_memory("a table", shape, dtype, "use explainer=replayed, which stores only visited pairs")
        self._values = np.zeros(shape, dtype)
        self._visits = np.zeros((num_states, num_actions), dtype=np.int64)
        self._next_probabilities = np.zeros((num_states, num_actions))

    def update(self, transitions: Transitions) -> None:
        """One pass over the batch, in order, with the current policy."""
        observed = self.outcomes.observe(transitions)
        check_numbers(transitions, *self._visits.shape)
        arrived = np.zeros(len(self._visits), dtype=np.bool_)
        arrived[transitions.next_observation] = True
        states = np.flatnonzero(arrived)
        self._next_probabilities[states] = self.policy.probabilities(states)
        batch = transitions.observation, transitions.action, transitions.next_observation, *observed
        cumulative = self.form == "fhgvf"
        rates = *self.step_size, self.discount if cumulative else 1.0
        fhtd_update(self._values, self._visits, *batch, self._next_probabilities, *rates, cumulative)

    def state(self) -> State:
        """The table, and the visits of each pair."""
        return {"values": self._values, "visits": self._visits}

    def restore(self, state: State) -> None:
        """Continue with that table."""
        stored = CheckedArrays(state)
        values, visits = stored.like("values", self._values), stored.like("visits", self._visits, low=0)
        self._values[:], self._visits[:] = values, visits

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        values = np.moveaxis(self._values[observations, actions], -1, -2)
        return values if self.form == "efo" else decompose(values, self.discount, axis=-2)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: visits of each pair."""
        return self._visits[observations, actions].astype(np.float64)

    def table(self) -> PairTable:
        """Every pair that was tried."""
        states, actions = np.nonzero(self._visits)
        num_actions = self._visits.shape[1]
        pairs = pair_of(states, actions, num_actions)
        return PairTable(num_actions, pairs, self.predict(states, actions), self.support(states, actions))
