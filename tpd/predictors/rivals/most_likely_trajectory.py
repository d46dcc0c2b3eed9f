"""The most likely trajectory (van der Waa, van Diggelen, van den Bosch, Neerincx 2018, IJCAI XAI workshop).

Each step takes the most frequent transition of the counted model and the policy's most likely action, so
every event is said to happen or not, and never with a probability. A foil is a policy of its own: it keeps
deviating, that is, it goes on with the foil's action wherever that was tried.
"""

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import DiscretePolicy
from tpd.envs import Environment
from tpd.guards.settings import whole_number
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD


class MostLikelyTrajectory(ReplayedFHTD):
    """One trajectory for each pair.

    foil_steps: for how many steps a foil keeps its action; None for all of them, as in the original. With 1
    it answers the question that the other predictors answer.
    """

    def __init__(
        self,
        env: Environment,
        policy: DiscretePolicy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        foil_steps: int | None = None,
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
        return PairTable(chain.num_actions, chain.pairs, expected, chain.visits, unknown)
