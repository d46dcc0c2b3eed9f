"""Exact expected future outcomes, by dynamic programming over known tabular dynamics."""

import numpy as np

from tpd.core.beyond import Beyond
from tpd.core.outcomes import Legend, OutcomeSet
from tpd.core.pairs import pair_of
from tpd.core.types import Array, DiscretePolicy, FloatArray, Policy, Rng
from tpd.envs import Environment
from tpd.envs.tabular import TabularModel
from tpd.guards.settings import whole_number
from tpd.guards.sizes import require_memory
from tpd.predictors.cases import Cases
from tpd.predictors.pair_table import PairTable
from tpd.predictors.whole_episode import MOST_STATES, Edges, Episodes
from tpd.sources.collection import play


class ExactSolution:
    """The exact predictor: solves backwards over the horizon, again whenever the policy has changed.

    The dynamics are those of the environment, unless a model is given.
    """

    tie = 0.0

    def __init__(
        self,
        env: Environment,
        policy: DiscretePolicy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        model: TabularModel | None = None,
    ) -> None:
        model = env.model if model is None else model
        if model is None:
            raise ValueError(f"{env.id} has no table P to solve: use explainer=auto or evaluation=forecasts")
        if outcomes.info_keys:
            raise ValueError(
                f"the exact solution uses the table P, which has no info, but outcomes read info keys "
                f"{', '.join(outcomes.info_keys)}: use explainer=replayed and evaluation=none"
            )
        self.env, self.policy = env, policy
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self._states = np.arange(model.num_states)
        self._shape = (model.num_states, model.num_actions)
        size = (*self._shape, self.horizon, outcomes.width)
        instead = "use a shorter horizon, or explainer=replayed and evaluation=none"
        require_memory("the exact solution", size, "float64", instead)
        transitions, probability = model.transitions()
        self._pair = np.ravel_multi_index((transitions.observation, transitions.action), self._shape)
        self._next_state = transitions.next_observation
        outcome, continuation = outcomes.observe(transitions)
        self._immediate = self._per_pair(probability[:, None] * outcome)
        self._carried = probability[:, None] * continuation
        self._probability, self._outcome, self._goes_on = probability, outcome[:, :-1], continuation[:, -1]
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
        o = self._immediate
        solution = np.empty((*self._shape, self.horizon, o.shape[2]))
        solution[:, :, 0] = o
        for h in range(1, self.horizon):
            v = np.einsum("sa,sak->sk", policy, o)
            o = self._per_pair(self._carried * v[self._next_state])
            solution[:, :, h] = o
        return solution

    def _solved(self) -> FloatArray:
        """[state, action, horizon, outcome], for the current policy."""
        policy = self.policy.probabilities(self._states)
        if self._solved_for is None or not np.array_equal(policy, self._solved_for):
            self._solution, self._solved_for = np.empty(0), None  # frees memory before solving again
            self._solution, self._solved_for = self._solve(policy), policy
        return self._solution

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        return self._solved()[observations, actions]

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: infinite, because nothing is estimated."""
        return np.full(np.shape(observations), np.inf)

    def beyond(
        self, observations: Array, actions: Array, policy: Policy, legend: Legend, draws: int
    ) -> Beyond | None:
        """The exact return after the horizon; NaN if it is undiscounted and the episode may never end."""
        assert isinstance(policy, DiscretePolicy)
        states, choices = self._shape
        if states > MOST_STATES:
            return None
        reward, next_rows = self._outcome @ legend.rewards, np.arange(states * choices).reshape(self._shape)
        probabilities = policy.probabilities(self._states)
        edges = Edges(self._pair, self._next_state, reward, self._goes_on, next_rows, probabilities)
        episodes = Episodes(edges, states * choices, policy.discount, self.horizon)
        value = episodes.returns(self._probability)[pair_of(observations, actions, choices)]
        certain = np.isfinite(value)
        return Beyond(value, np.zeros((0, len(value))), certain, np.zeros(len(value), dtype=np.int64))

    def cases(self, episodes: int, rng: Rng) -> Cases:
        """Every pair visited in episodes of the policy, and all other valid actions there as foils."""
        steps, num_actions = play(self.env, self.policy, rng, episodes=episodes).transitions, self._shape[1]
        pairs, visits = np.unique(pair_of(steps.observation, steps.action, num_actions), return_counts=True)
        state, action = np.divmod(pairs, num_actions)
        others = self.env.mask(state)
        others[np.arange(len(others)), action] = False
        row, foil = np.nonzero(others)
        states, actions = np.append(state, state[row]), np.append(action, foil)
        own = np.arange(len(states)) < len(state)
        return Cases(states, actions, own, np.append(visits, visits[row]), self.predict(states, actions))

    def table(self) -> PairTable:
        """The solution for every pair."""
        solved = self._solved()
        pairs = np.arange(solved.shape[0] * solved.shape[1])
        expected = solved.reshape(len(pairs), *solved.shape[2:])
        return PairTable(self._shape[1], pairs, expected, np.full(len(pairs), np.inf))
