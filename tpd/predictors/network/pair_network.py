"""A network over state-action pairs: observation encoder, trunk, and heads for the actions."""

from collections.abc import Sequence
from typing import Any, Required, TypedDict

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from tpd.core.types import Array, BoolArray
from tpd.envs.action_parts import ActionParts
from tpd.envs.spaces import to_plain
from tpd.predictors.network.encoders import CategoryEncoder, VectorEncoder, make_encoder, tensors

RANK = 16
"""Rank of the difference between actions."""


class Heads(nn.Module):
    """A linear layer shared by all actions, plus a low-rank difference for each action, initialised to 0."""

    def __init__(self, features: int, num_actions: int, outputs: int) -> None:
        super().__init__()
        self.shared = nn.Linear(features, outputs)
        differing = num_actions if num_actions > 1 else 0
        self.narrow = nn.Linear(features, RANK) if differing else nn.Identity()
        self.difference = nn.Parameter(torch.zeros(differing, outputs, RANK))
        self.offset = nn.Parameter(torch.zeros(differing, outputs))

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """[batch, outputs] for features [batch, features] and action numbers [batch]."""
        shared: Tensor = self.shared(features)
        if not len(self.difference):
            return shared
        order = torch.argsort(actions)
        counts = torch.bincount(actions, minlength=len(self.difference)).tolist()
        groups = torch.split(self.narrow(features)[order], counts)
        differing = [
            functional.linear(group, self.difference[a], self.offset[a])
            for a, group in enumerate(groups)
            if len(group)
        ]
        return shared + torch.cat(differing)[torch.argsort(order)]


class Architecture(TypedDict, total=False):
    """Settings of a `PairNetwork` besides its spaces and outputs."""

    hidden: Required[Sequence[int]]
    hidden_state: int
    margin: bool


class PairNetwork(nn.Module):
    """Maps each pair to `outputs` numbers. Discrete actions have heads; other actions are inputs.

    margin: whether the agent's action margin is an input too (`margins.py`).
    """

    low: Tensor
    high: Tensor

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        outputs: int,
        *,
        hidden: Sequence[int],
        hidden_state: int = 0,
        margin: bool = False,
    ) -> None:
        super().__init__()
        self.settings = {
            "observation_space": to_plain(observation_space),
            "action_space": to_plain(action_space),
            "hidden": list(hidden),
            "hidden_state": hidden_state,
            "margin": margin,
        }
        self.encoder = make_encoder(observation_space, hidden_state)
        size = self.encoder.features_dim
        self.margin = VectorEncoder(1) if margin else None
        if self.margin is not None:
            size += self.margin.features_dim
        self.discrete = isinstance(action_space, spaces.Discrete)
        self.choices: CategoryEncoder | None = None
        if (parts := ActionParts.of(action_space)) is not None:
            self.choices = CategoryEncoder(parts.counts.tolist(), parts.first.tolist())
            size += self.choices.features_dim
        if isinstance(action_space, spaces.Box):
            size += int(np.prod(action_space.shape))
            self.register_buffer("low", torch.as_tensor(action_space.low.ravel(), dtype=torch.float32))
            self.register_buffer("high", torch.as_tensor(action_space.high.ravel(), dtype=torch.float32))
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        self.trunk = nn.Sequential(*layers)
        self.num_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 1
        self.heads = Heads(size, self.num_actions, outputs)
        self.eval()  # no dropout, unless a learner calls train()

    @property
    def device(self) -> torch.device:
        return self.heads.shared.weight.device

    def see(self, observations: Array, margins: Array | None = None) -> None:
        """Update the running scales of observations and margins [batch, 1] with a batch."""
        self.encoder.see(tensors(observations, self.device))
        if self.margin is not None:
            assert margins is not None
            self.margin.see(tensors(margins, self.device))

    @torch.no_grad()
    def unseen(self, observations: Array) -> BoolArray:
        """[batch]: whether an observation is far from all observations seen; False if it cannot tell."""
        return np.asarray(self.encoder.unseen(tensors(observations, self.device)).numpy(force=True))

    def features(
        self, observations: Array, actions: Array | None = None, margins: Array | None = None
    ) -> Tensor:
        """[batch, features] of observations, and of actions and margins [batch, 1] if they are inputs."""
        encoded: Tensor = self.encoder(tensors(observations, self.device))
        if self.margin is not None:
            assert margins is not None
            encoded = torch.cat([encoded, self.margin(tensors(margins, self.device))], dim=1)
        if not self.discrete:
            assert actions is not None
            encoded = torch.cat([encoded, self._given(actions)], dim=1)
        return self.trunk(encoded)  # type: ignore[no-any-return]

    def _given(self, actions: Array) -> Tensor:
        """[batch, features] of actions as inputs: one-hot if they consist of choices, else scaled."""
        if self.choices is not None:
            encoded: Tensor = self.choices(torch.as_tensor(np.asarray(actions), device=self.device))
            return encoded
        flat = torch.as_tensor(actions, dtype=torch.float32, device=self.device).reshape(len(actions), -1)
        span = (self.high - self.low).clamp(min=1e-6)  # some dimensions have no range
        return 2 * (flat - self.low) / span - 1

    def outputs(self, features: Tensor, actions: Array) -> Tensor:
        """[batch, outputs]"""
        numbers = actions if self.discrete else np.zeros(0, dtype=np.int64)
        return self.heads(features, torch.as_tensor(numbers, device=self.device))  # type: ignore[no-any-return]
