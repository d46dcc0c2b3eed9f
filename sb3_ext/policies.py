"""An SB3 model as a black-box policy."""

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from torch.distributions import Categorical

from tpd.types import Array, FloatArray, IntArray


class SB3Policy:
    """A model with discrete actions, trained or still in training.

    Actor-critic models have probabilities of their own. Value-based ones are taken at their
    deterministic best: what they explore while training is not what they would do.
    """

    def __init__(self, model: BaseAlgorithm) -> None:
        if not isinstance(model.action_space, spaces.Discrete):
            raise TypeError(f"only discrete actions have probabilities, got {model.action_space}")
        self.model = model
        self.discount = float(getattr(model, "gamma", 1.0))
        self._num_actions = int(model.action_space.n)

    def probabilities(self, observations: Array) -> FloatArray:
        """[batch, num_actions]"""
        policy = self.model.policy
        if isinstance(policy, ActorCriticPolicy):
            with torch.no_grad():
                tensor, _ = policy.obs_to_tensor(observations)
                distribution = policy.get_distribution(tensor).distribution
            assert isinstance(distribution, Categorical)
            return np.asarray(distribution.probs.numpy(force=True), dtype=np.float64)
        return np.eye(self._num_actions)[self.action(observations)]

    def action(self, observations: Array) -> IntArray:
        """[batch]: the most likely action."""
        actions, _ = self.model.predict(observations, deterministic=True)
        return np.asarray(actions, dtype=np.int64)

    def action_values(self, observations: Array) -> FloatArray | None:
        """[batch, num_actions], where the model learns action values."""
        q_net = getattr(self.model, "q_net", None)
        if q_net is None:
            return None
        with torch.no_grad():
            tensor, _ = q_net.obs_to_tensor(observations)
            return np.asarray(q_net(tensor).numpy(force=True), dtype=np.float64)
