"""What the policy does next, and what a network says of that."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.pair_network import PairNetwork

ROWS_AT_ONCE = 8192


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
    margins: Array | None = None
    """[batch, 1]: of the agent at the observations, if they are known already"""

    @classmethod
    def of(cls, policy: Policy, observations: Array, rng: np.random.Generator) -> "NextActions":
        """All that have a probability; where actions are not numbered, one as the policy draws it."""
        if not isinstance(policy, DiscretePolicy):
            return cls(observations, policy.sample(observations, rng), None, torch.ones(len(observations)))
        return cls.among(observations, policy.probabilities(observations))

    @classmethod
    def among(cls, observations: Array, probabilities: FloatArray) -> "NextActions":
        """All numbered actions that have a probability [batch, num_actions]."""
        rows, actions = np.nonzero(probabilities)
        likely = torch.as_tensor(probabilities[rows, actions], dtype=torch.float32)
        return cls(observations, actions, None if len(rows) == len(observations) else rows, likely)

    def outputs(self, network: OutcomeNetwork | PairNetwork) -> Tensor:
        """[choice, outputs]: what the network gives for each choice."""
        features = network.features(self.observations, self.actions, self.margins)
        return network.outputs(features if self.rows is None else features[self.rows], self.actions)

    def of_rows(self, values: Tensor) -> Tensor:
        """[choice, ...]: what is known of each observation [batch, ...], at each of its choices."""
        return values if self.rows is None else values[self.rows]

    def mean(self, values: Tensor) -> Tensor:
        """[batch, ...]: the expectation over the choices of each observation."""
        if self.rows is None:
            return values
        mean = values.new_zeros(len(self.observations), *values.shape[1:])
        weight = self.probabilities.to(values).view(-1, *(1,) * (values.dim() - 1))
        return mean.index_add_(0, torch.as_tensor(self.rows, device=values.device), values * weight)


def probabilities_of(policy: DiscretePolicy, observations: Array) -> FloatArray:
    """[batch, num_actions], so many observations at a time."""
    starts = range(0, len(observations), ROWS_AT_ONCE)
    parts = [policy.probabilities(observations[start : start + ROWS_AT_ONCE]) for start in starts]
    return np.concatenate(parts).astype(np.float32)


def chosen_by(policy: Policy, observations: Array, actions: Array, rng: np.random.Generator) -> BoolArray:
    """[batch]: where the policy is sure to take this very action; nowhere, if it draws its actions."""
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
