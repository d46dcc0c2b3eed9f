"""The exact expected future outcomes, by dynamic programming over a known model."""

import numpy as np

from tpd.checks import whole_number
from tpd.envs import Environment
from tpd.memory import require
from tpd.outcomes import OutcomeSet
from tpd.pair_table import PairTable
from tpd.types import Array, FloatArray, Policy


class ExactSolution:
    """Solves backwards over the horizon; again whenever the policy has changed."""

    def __init__(self, env: Environment, policy: Policy, outcomes: OutcomeSet, *, horizon: int) -> None:
        if env.model is None:
            raise ValueError(f"{env.id} publishes no table P, so its outcomes cannot be solved exactly")
        if outcomes.info_keys:
            raise ValueError(
                f"outcomes that read info ({', '.join(outcomes.info_keys)}) cannot be solved from a table "
                "of dynamics, which has none: use evaluation=none"
            )
        self.policy = policy
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self._states = np.arange(env.model.num_states)
        self._shape = (env.model.num_states, env.model.num_actions)
        size = (*self._shape, self.horizon, outcomes.width)
        require("the exact solution", size, "float64", "use evaluation=none, or a shorter horizon")
        transitions, probability = env.model.transitions()
        self._pair = np.ravel_multi_index((transitions.observation, transitions.action), self._shape)
        self._next_state = transitions.next_observation
        outcome, continuation = outcomes.observe(transitions)
        self._immediate = self._per_pair(probability[:, None] * outcome)
        self._carried = probability[:, None] * continuation
        self._solved_for: FloatArray | None = None
        self._solution: FloatArray = np.empty(0)

    def _per_pair(self, terms: FloatArray) -> FloatArray:
        """Sum the transitions [transition, outcome] of each pair: [state, action, outcome]."""
        starts = np.flatnonzero(np.diff(self._pair, prepend=-1))
        sums = np.zeros((self._shape[0] * self._shape[1], terms.shape[1]))
        sums[self._pair[starts]] = np.add.reduceat(terms, starts, axis=0)
        return sums.reshape(*self._shape, -1)

    def _solve(self, policy: FloatArray) -> FloatArray:
        """`O_h(s, a) = sum_s' p(s' | s, a) O_{h-1}(s', pi)`, from the immediate outcome `O_0`."""
        o = [self._immediate]
        for _ in range(1, self.horizon):
            v = np.einsum("sa,sak->sk", policy, o[-1])
            o.append(self._per_pair(self._carried * v[self._next_state]))
        return np.stack(o, axis=2)

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        policy = self.policy.probabilities(self._states)
        if self._solved_for is None or not np.array_equal(policy, self._solved_for):
            self._solution, self._solved_for = self._solve(policy), policy
        return self._solution[observations, actions]

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: infinite, for nothing here is estimated."""
        return np.full(np.shape(observations), np.inf)

    def table(self) -> PairTable:
        """Every pair there is."""
        states, actions = (index.ravel() for index in np.indices(self._shape))
        expected, support = self.predict(states, actions), self.support(states, actions)
        return PairTable(self._shape[1], np.arange(len(states)), expected, support)
