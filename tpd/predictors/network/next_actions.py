"""What the policy does next, and what a network says of that."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tpd.core.types import Array, DiscretePolicy, IntArray, Policy
from tpd.predictors.network.outcome_network import OutcomeNetwork


@dataclass(frozen=True)
class NextActions:
    """Every action that the policy may take at some observations, or one drawn where it has no numbers."""

    observations: Array
    """[batch, ...]"""
    actions: Array
    """[choice, ...]"""
    rows: IntArray | None
    """[choice]: of which observation; None where each has one choice"""
    probabilities: Tensor
    """[choice]"""

    @classmethod
    def of(cls, policy: Policy, observations: Array, rng: np.random.Generator) -> "NextActions":
        """All that have a probability; where actions are not numbered, one as the policy draws it."""
        if not isinstance(policy, DiscretePolicy):
            return cls(observations, policy.sample(observations, rng), None, torch.ones(len(observations)))
        probabilities = policy.probabilities(observations)
        rows, actions = np.nonzero(probabilities)
        likely = torch.as_tensor(probabilities[rows, actions], dtype=torch.float32)
        return cls(observations, actions, None if len(rows) == len(observations) else rows, likely)

    def outputs(self, network: OutcomeNetwork) -> Tensor:
        """[choice, horizon, channel]: what the network gives for each choice."""
        features = network.features(self.observations, self.actions)
        return network.outputs(features if self.rows is None else features[self.rows], self.actions)

    def of_rows(self, values: Tensor) -> Tensor:
        """[choice, ...]: what is known of each observation [batch, ...], at each of its choices."""
        return values if self.rows is None else values[self.rows]

    def mean(self, values: Tensor) -> Tensor:
        """[batch, ...]: the expectation over the choices of each observation."""
        if self.rows is None:
            return values
        mean = torch.zeros(len(self.observations), *values.shape[1:])
        weight = self.probabilities.view(-1, *(1,) * (values.dim() - 1))
        return mean.index_add_(0, torch.as_tensor(self.rows), values * weight)
