"""Rollouts in a learned model, without a planner (Chua, Calandra, McAllister, Levine 2018, PETS).

For discrete states the learned model is the counted one; `explainer=model` is the same method for vectors,
with an ensemble of networks. Predictions are means over `rollouts` rollouts of each pair, so they have
sampling noise in addition to the error of the counts. With more rollouts they approach `explainer=replayed`.
"""

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, FloatArray, IntArray, Rng
from tpd.envs import Environment
from tpd.guards.settings import whole_number
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.pair_chain import PairChain

AT_ONCE = 200_000
"""Rollouts that are made together."""


class ModelRollouts(ReplayedFHTD):
    """Means over rollouts of the policy in the counted model."""

    def __init__(
        self,
        env: Environment,
        policy: DiscretePolicy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        rollouts: int = 200,
        seed: int = 0,
    ) -> None:
        super().__init__(env, policy, outcomes, horizon=horizon)
        self.rollouts = whole_number("rollouts", rollouts, at_least=1)
        self._seed = whole_number("seed", seed, at_least=0)

    def _solve(self) -> PairTable:
        chain, rng = self._chain(), generator(self._seed, "model rollouts")
        pairs = len(chain.pairs)
        solution = np.zeros(self._require_room(pairs))
        some = max(1, AT_ONCE // self.rollouts)
        for start in range(0, pairs, some):
            rows = np.arange(start, min(start + some, pairs))
            solution[rows] = self._roll_out(chain, rows, rng)
        expected, unknown = solution[..., :-1], solution[..., -1]
        return PairTable(chain.num_actions, chain.pairs, expected, chain.visits, unknown)

    def _roll_out(self, chain: PairChain, rows: IntArray, rng: Rng) -> FloatArray:
        """[row, horizon, outcome + 1]: means; the last is the probability of an untried pair by step h."""
        order = np.argsort(chain.row, kind="stable")
        # each pair has an interval of length 1, divided among its edges
        ends = np.cumsum(chain.weight[order])
        likely = np.cumsum(chain.next_probabilities, axis=1)
        pairs, current = len(chain.pairs), np.repeat(rows, self.rollouts)
        going_on = np.ones((len(current), self.outcomes.width))
        means = np.empty((len(rows), self.horizon, self.outcomes.width + 1))
        for h in range(self.horizon):
            lost = current == pairs
            place = np.where(lost, 0, current) + rng.random(len(current))
            edge = order[np.minimum(np.searchsorted(ends, place), len(order) - 1)]
            seen = np.where(lost[:, None], 0, going_on * chain.edges.outcome[edge])
            unknown = (lost * going_on[:, -1])[:, None]
            seen = np.concatenate([seen, unknown], axis=1).reshape(len(rows), self.rollouts, -1)
            means[:, h] = seen.mean(axis=1)
            going_on = np.where(lost[:, None], going_on, going_on * chain.edges.continuation[edge])
            arrival = chain.arrival[edge]
            action = (likely[arrival] <= rng.random(len(current))[:, None] * likely[arrival, -1:]).sum(axis=1)
            current = np.where(lost, pairs, chain.next_rows[arrival, np.minimum(action, likely.shape[1] - 1)])
        return means
