"""Reward decomposition (Juozapaitis, Koul, Fern, Erwig, Doshi-Velez 2019, IJCAI XAI workshop).

One Q function for each term of the reward, `Q_c(s, a) = E[sum_t discount^t r_c,t]`, over an infinite horizon.
The original learns them for the policy that is greedy in their sum; here the policy is given and fixed, so
they are learned by expected Sarsa. They tell *how much* each term adds to the return, not *when*.
"""

import numpy as np

from tpd.core.outcomes import UNACCOUNTED, OutcomeSet
from tpd.core.types import BoolArray, DiscretePolicy
from tpd.envs import Environment
from tpd.predictors.rivals.discounted_totals import DiscountedTotals


class RewardDecomposition(DiscountedTotals):
    """Q functions of the terms of the reward, as a table."""

    method = "reward decomposition"

    def __init__(
        self, env: Environment, policy: DiscretePolicy, outcomes: OutcomeSet, *, horizon: int
    ) -> None:
        if outcomes.legend.reward_bound is None:
            raise ValueError(f"reward decomposition: {UNACCOUNTED}")
        super().__init__(env, policy, outcomes, horizon=horizon)

    @property
    def tells(self) -> BoolArray:
        """[outcome + 1]: only terms of the reward."""
        return np.array([*(weight is not None for weight in self.outcomes.legend.weights), False])
