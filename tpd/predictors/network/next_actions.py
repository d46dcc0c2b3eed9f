"""The policy's next actions, and expectations of network outputs over them."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy, Rng
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.pair_network import PairNetwork

ROWS_AT_ONCE = 8192


@dataclass(frozen=True)
class NextActions:
    """All possible next actions at a batch of observations; one sampled action each if not discrete."""

    observations: Array
    """[batch, ...]"""
    actions: Array
    """[choice, ...]"""
    rows: IntArray | None
    """[choice]: row of its observation; None if each observation has exactly one choice"""
    probabilities: Tensor
    """[choice]"""
    margins: Array | None = None
    """[batch, 1]: the agent's margins at the observations, if already computed"""

    @classmethod
    def of(cls, policy: Policy, observations: Array, rng: Rng) -> "NextActions":
        """All actions of positive probability; one sample if actions are not discrete."""
        if not isinstance(policy, DiscretePolicy):
            return cls(observations, policy.sample(observations, rng), None, torch.ones(len(observations)))
        return cls.among(observations, policy.probabilities(observations))

    @classmethod
    def among(cls, observations: Array, probabilities: FloatArray) -> "NextActions":
        """All discrete actions of positive probability [batch, num_actions]."""
        rows, actions = np.nonzero(probabilities)
        likely = torch.as_tensor(probabilities[rows, actions], dtype=torch.float32)
        return cls(observations, actions, None if len(rows) == len(observations) else rows, likely)

    def outputs(self, network: OutcomeNetwork | PairNetwork) -> Tensor:
        """[choice, outputs]: the network's outputs for each choice."""
        features = network.features(self.observations, self.actions, self.margins)
        return network.outputs(features if self.rows is None else features[self.rows], self.actions)

    def of_rows(self, values: Tensor) -> Tensor:
        """[choice, ...]: values of observations [batch, ...], repeated for each of their choices."""
        return values if self.rows is None else values[self.rows]

    def mean(self, values: Tensor) -> Tensor:
        """[batch, ...]: the expectation over the choices of each observation."""
        if self.rows is None:
            return values
        mean = values.new_zeros(len(self.observations), *values.shape[1:])
        weight = self.probabilities.to(values).view(-1, *(1,) * (values.dim() - 1))
        return mean.index_add_(0, torch.as_tensor(self.rows, device=values.device), values * weight)


def probabilities_of(policy: DiscretePolicy, observations: Array) -> FloatArray:
    """[batch, num_actions], computed in chunks."""
    starts = range(0, len(observations), ROWS_AT_ONCE)
    parts = [policy.probabilities(observations[start : start + ROWS_AT_ONCE]) for start in starts]
    return np.concatenate(parts).astype(np.float32)


def chosen_by(policy: Policy, observations: Array, actions: Array, rng: Rng) -> BoolArray:
    """[batch]: whether the policy takes this action with certainty; False if it samples its actions."""
    if isinstance(policy, DiscretePolicy):
        probabilities = probabilities_of(policy, observations)
        return np.asarray(probabilities[np.arange(len(actions)), actions] == 1)
    found = np.zeros(len(actions), dtype=np.bool_)
    for start in range(0, len(actions), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        usual = policy.action(observations[rows])
        if not np.array_equal(policy.sample(observations[rows], rng), usual):
            return np.zeros(len(actions), dtype=np.bool_)
        found[rows] = (usual == actions[rows]).reshape(len(usual), -1).all(axis=1)
    return found
