"""The most likely trajectory (van der Waa, van Diggelen, van den Bosch, Neerincx 2018, IJCAI XAI workshop).

Each step takes the most frequent transition of the counted model and the policy's most likely action. So
every event is predicted to happen or not, without a probability. In the original, a foil is a policy of its
own: it repeats the foil's action in later states too, wherever that action was tried (`foil_steps=None`).
"""

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import DiscretePolicy
from tpd.envs import Environment
from tpd.guards.settings import whole_number
from tpd.predictors.abilities import ONE_TRAJECTORY
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD


class MostLikelyTrajectory(ReplayedFHTD):
    """Predicts the most likely trajectory of each pair.

    foil_steps: number of steps in which a foil takes its action; None for all steps, as in the original. Only
    with 1, it predicts the same quantity as the other predictors.
    """

    def __init__(
        self,
        env: Environment,
        policy: DiscretePolicy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        foil_steps: int | None = 1,
    ) -> None:
        super().__init__(env, policy, outcomes, horizon=horizon)
        kept = horizon if foil_steps is None else foil_steps
        self.foil_steps = whole_number("foil_steps", kept, at_least=1)

    def _solve(self) -> PairTable:
        chain = self._chain()
        pairs, actions = len(chain.pairs), chain.pairs % chain.num_actions
        order = np.lexsort([-chain.weight, chain.row])  # the most frequent edge of each pair first
        likeliest = order[np.flatnonzero(np.diff(chain.row[order], prepend=-1))]
        chosen = chain.next_probabilities.argmax(axis=1)
        foil = self.policy.probabilities(chain.pairs // chain.num_actions).argmax(axis=1) != actions
        expected = np.zeros((*self._require_room(pairs)[:2], self.outcomes.width))
        unknown, current = np.zeros((pairs, self.horizon)), np.arange(pairs)
        going_on = np.ones((pairs, self.outcomes.width))
        for h in range(self.horizon):
            lost = current == pairs
            edge = likeliest[np.where(lost, 0, current)]
            expected[:, h] = np.where(lost[:, None], 0, going_on * chain.edges.outcome[edge])
            unknown[:, h] = lost * going_on[:, -1]
            going_on = np.where(lost[:, None], going_on, going_on * chain.edges.continuation[edge])
            arrival = chain.arrival[edge]
            after = chain.next_rows[arrival, chosen[arrival]]
            deviating = chain.next_rows[arrival, actions]
            stays = foil & (h + 1 < self.foil_steps) & (deviating < pairs)
            current = np.where(lost, pairs, np.where(stays, deviating, after))
        repeated = f"; a foil is repeated for {self.foil_steps} steps" if self.foil_steps > 1 else ""
        return PairTable(
            chain.num_actions, chain.pairs, expected, chain.visits, unknown, remark=ONE_TRAJECTORY + repeated
        )
