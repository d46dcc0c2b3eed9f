"""Reward decomposition (Juozapaitis, Koul, Fern, Erwig, Doshi-Velez 2019, IJCAI XAI workshop).

One Q function for each term of the reward, `Q_c(s, a) = E[sum_t discount^t r_c,t]`, over an infinite horizon.
The original learns them for the policy that is greedy in their sum; here the policy is given and fixed, so
they are learned by expected Sarsa. They tell *how much* each term adds to the return, not *when*.
"""

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import BoolArray, DiscretePolicy, FloatArray
from tpd.envs import Environment
from tpd.predictors.rivals.discounted_totals import DiscountedTotals


class RewardDecomposition(DiscountedTotals):
    """Q functions of the terms of the reward, as a table."""

    method = "reward decomposition"

    def __init__(
        self, env: Environment, policy: DiscretePolicy, outcomes: OutcomeSet, *, horizon: int
    ) -> None:
        if outcomes.legend.reward_bound is None:
            raise ValueError("reward decomposition needs outcomes that account for the reward")
        super().__init__(env, policy, outcomes, horizon=horizon)

    @property
    def tells(self) -> BoolArray:
        """[outcome + 1]: only terms of the reward."""
        return np.array([*(weight is not None for weight in self.outcomes.legend.weights), False])


def minimal_sufficient(differences: FloatArray) -> tuple[BoolArray, BoolArray]:
    """[component] both: the minimal sufficient explanation of a choice (MSX+), and why it is needed (MSX-).

    differences [component]: the value of each reward term for the chosen action, minus its value for the
    other action (RDX); their sum is positive. MSX+ is the smallest set of advantages that together outweigh
    all disadvantages. MSX- is the smallest set of disadvantages that outweigh MSX+ without its smallest
    member.
    """
    differences = np.asarray(differences, dtype=np.float64)
    if (total := differences.sum()) <= 0:
        raise ValueError(f"the chosen action is not the better one: the differences sum to {total:g}")
    gains, losses = np.maximum(differences, 0), np.maximum(-differences, 0)
    advantages = _fewest(gains, losses.sum())
    needed = gains[advantages].sum() - gains[advantages].min()
    return advantages, _fewest(losses, needed) if needed < losses.sum() else losses > 0


def _fewest(amounts: FloatArray, limit: float) -> BoolArray:
    """[component]: the smallest set of amounts whose sum exceeds the limit, largest first."""
    order = np.argsort(-amounts, kind="stable")
    count = int(np.argmax(np.cumsum(amounts[order]) > limit)) + 1
    chosen = np.zeros(len(amounts), dtype=np.bool_)
    chosen[order[:count]] = True
    return chosen
