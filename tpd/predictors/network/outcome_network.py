"""The network that predicts outcomes: an encoder, a shared trunk, and heads for every step ahead."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray
from tpd.predictors.network.encoders import (
    RARE,
    FeaturesExtractor,
    VectorEncoder,
    describe_space,
    make_encoder,
    tensors,
)

LEAST_ODDS = 1e-3  # of what was not seen to happen at first


@dataclass(frozen=True)
class Columns:
    """Which columns of the outcomes are predicted how; the last column is termination."""

    partition: tuple[int, ...]
    """Exactly one of these events happens while the episode runs: one softmax."""
    events: tuple[int, ...]
    """Each happens or not: a sigmoid each."""
    real: tuple[int, ...]
    """Real numbers: regression."""

    @classmethod
    def of(cls, outcomes: OutcomeSet) -> "Columns":
        """Softmax for a partition, sigmoids for the other events, regression for the rest."""
        members = set(outcomes.legend.partition)
        kinds: dict[str, list[int]] = {"partition": [], "events": [], "real": []}
        for k, outcome in enumerate(outcomes.outcomes):
            kind = "real" if not outcome.is_event else "partition" if outcome.name in members else "events"
            kinds[kind].append(k)
        kinds["events"].append(len(outcomes.outcomes))
        return cls(tuple(kinds["partition"]), tuple(kinds["events"]), tuple(kinds["real"]))

    @classmethod
    def all_real(cls, width: int) -> "Columns":
        """Everything by regression."""
        return cls((), (), tuple(range(width)))

    @property
    def width(self) -> int:
        return len(self.partition) + len(self.events) + len(self.real)

    @property
    def channels(self) -> int:
        """How many outputs there are for each step ahead: a softmax has one more, for the end."""
        return self.width + bool(self.partition)


class Heads(nn.Module):
    """A linear layer for each action, computed only for the actions asked for."""

    def __init__(self, features: int, num_actions: int, outputs: int) -> None:
        super().__init__()
        layers = [nn.Linear(features, outputs) for _ in range(num_actions)]
        self.weight = nn.Parameter(torch.stack([layer.weight for layer in layers]).detach())
        self.bias = nn.Parameter(torch.stack([layer.bias for layer in layers]).detach())

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """[batch, outputs] for features [batch, features] and the number of an action each."""
        if len(self.weight) == 1:
            return functional.linear(features, self.weight[0], self.bias[0])
        order = torch.argsort(actions)
        counts = torch.bincount(actions, minlength=len(self.weight)).tolist()
        groups = torch.split(features[order], counts)
        outputs = [
            functional.linear(group, self.weight[a], self.bias[a])
            for a, group in enumerate(groups)
            if len(group)
        ]
        return torch.cat(outputs)[torch.argsort(order)]


class OutcomeNetwork(nn.Module):
    """Predicts every outcome at every step ahead; numbered actions have heads, others are inputs."""

    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        columns: Columns,
        *,
        horizon: int,
        hidden: Sequence[int],
        hidden_state: int = 0,
        features_extractor: FeaturesExtractor | None = None,
    ) -> None:
        super().__init__()
        self.columns = columns
        self.horizon = horizon
        self._settings = {
            "observation_space": describe_space(observation_space),
            "action_space": describe_space(action_space),
            "hidden": list(hidden),
            "hidden_state": hidden_state,
            "extracted": features_extractor is not None,
        }
        self.encoder = make_encoder(observation_space, hidden_state, features_extractor)
        size = int(self.encoder.features_dim)  # type: ignore[arg-type]
        self.discrete = isinstance(action_space, spaces.Discrete)
        if isinstance(action_space, spaces.Box):
            size += int(np.prod(action_space.shape))
            self.register_buffer("low", torch.as_tensor(action_space.low.ravel(), dtype=torch.float32))
            self.register_buffer("high", torch.as_tensor(action_space.high.ravel(), dtype=torch.float32))
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        self.trunk = nn.Sequential(*layers)
        num_actions = int(action_space.n) if isinstance(action_space, spaces.Discrete) else 1
        self.heads = Heads(size, num_actions, horizon * columns.channels)
        with torch.no_grad():  # what was not learned yet must not look as if it happened
            bias = self.heads.bias.view(num_actions, horizon, columns.channels)
            self.split(bias)[1].sub_(RARE)
        self.register_buffer("scale", torch.ones(len(columns.real)))

    @torch.no_grad()
    def start_from(self, mean: Tensor) -> None:
        """Expect the mean [channel] of what happens at first, at every step ahead and of every action."""
        partition, events, real = self.split(mean.clamp(min=LEAST_ODDS))[0], *self.split(mean)[1:]
        level = torch.cat([partition.log(), torch.logit(events, eps=LEAST_ODDS), real])
        self.heads.bias.copy_(level.repeat(len(self.heads.bias), self.horizon))

    def description(self) -> dict[str, Any]:
        """How it is built, as plain values."""
        return self._settings | {"columns": asdict(self.columns), "horizon": self.horizon}

    @torch.no_grad()
    def unseen(self, observations: Array) -> BoolArray:
        """[batch]: whether an observation lies nowhere near any that was seen, as far as vectors tell."""
        if not isinstance(self.encoder, VectorEncoder):
            return np.zeros(len(observations), dtype=np.bool_)
        return np.asarray(self.encoder.unseen(tensors(observations)))

    def features(self, observations: Array, actions: Array | None = None) -> Tensor:
        """[batch, features] of observations, with the actions too where they are inputs."""
        encoded: Tensor = self.encoder(tensors(observations))
        if not self.discrete:
            assert actions is not None
            flat = torch.as_tensor(actions, dtype=torch.float32).reshape(len(actions), -1)
            span = (self.high - self.low).clamp(min=1e-6)  # some dimensions have no choice
            scaled = 2 * (flat - self.low) / span - 1
            encoded = torch.cat([encoded, scaled], dim=1)
        return self.trunk(encoded)  # type: ignore[no-any-return]

    def outputs(self, features: Tensor, actions: Array) -> Tensor:
        """[batch, horizon, channel], of which `expected` makes sense."""
        numbers = torch.as_tensor(actions) if self.discrete else torch.zeros(0, dtype=torch.int64)
        outputs: Tensor = self.heads(features, numbers)
        return outputs.view(len(features), self.horizon, self.columns.channels)

    def split(self, outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The outputs [..., channel] of the partition with its end last, of the events, and of the rest."""
        softmax = len(self.columns.partition) + bool(self.columns.partition)
        sizes = [softmax, len(self.columns.events), len(self.columns.real)]
        partition, events, real = torch.split(outputs, sizes, dim=-1)
        return partition, events, real

    def channels(self, outputs: Tensor) -> Tensor:
        """[..., channel]: probabilities for events and the end, scaled values for real outcomes."""
        partition, events, real = self.split(outputs)
        return torch.cat([partition.softmax(dim=-1), events.sigmoid(), real], dim=-1)

    def expected(self, channels: Tensor) -> Tensor:
        """[..., outcome]: the channels in the order of the outcomes, without the end, in true units."""
        partition, events, real = self.split(channels)
        if self.columns.partition:
            partition = partition[..., :-1]
        order = [*self.columns.partition, *self.columns.events, *self.columns.real]
        return torch.cat([partition, events, real * self.scale], dim=-1)[..., np.argsort(order)]
