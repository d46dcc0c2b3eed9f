"""Reward decomposition (Juozapaitis, Koul, Fern, Erwig, Doshi-Velez 2019, IJCAI XAI workshop).

One Q function for each term of the reward, `Q_c(s, a) = E[sum_t discount^t r_c,t]`, over an infinite horizon.
The original learns them for the policy that is greedy in their sum; here the policy is given and fixed, so
they are learned by expected Sarsa. They tell *how much* each term adds to the return, not *when*.
"""

import numpy as np

from tpd.core.types import BoolArray
from tpd.predictors.rivals.discounted_totals import DiscountedTotals


class RewardDecomposition(DiscountedTotals):
    """Q functions of the terms of the reward, as a table."""

    method = "reward decomposition"
    needs_reward = True

    @property
    def tells(self) -> BoolArray:
        """[outcome + 1]: only terms of the reward."""
        return np.array([*(weight is not None for weight in self.outcomes.legend.weights), False])
