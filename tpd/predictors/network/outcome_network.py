"""The outcome network: one part predicts outcomes at every step, another one distributions over steps."""

from dataclasses import asdict
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from tpd.core.types import Array, BoolArray, FloatArray, Policy
from tpd.predictors.network.columns import Columns
from tpd.predictors.network.margins import Margins
from tpd.predictors.network.pair_network import Architecture, PairNetwork

LEAST = 1e-3  # initial probability of events that were never seen


class Channels(NamedTuple):
    """Network outputs grouped by meaning; logits unless said otherwise.

    If the end has a distribution over the steps, `events` and `real` are given that the episode still runs;
    the final ones of `real` are given that it ends at this step.
    """

    partition: Tensor
    """[..., horizon, member + 1]: the last means that the episode has ended"""
    events: Tensor
    """[..., horizon, event]"""
    again: Tensor
    """[..., horizon, event]: that the event happens, given that it has happened before"""
    real: Tensor
    """[..., horizon, outcome]: values, in units of the scale"""
    ending: Tensor | None
    """[..., (event + 1) * horizon + 1]: joint over the event that ends the episode (the last: none of them)
    and the step; the last logit means no end within the horizon"""
    first: Tensor
    """[..., event, horizon + 1]: over the step of the first occurrence; the last logit means never"""


class OutcomeNetwork(nn.Module):
    """Predicts every outcome at every step ahead.

    First occurrences and termination happen at most once. A second network predicts each as one distribution
    over steps. An event that can repeat has `P(at h) = F_h + G_{h-1} sigmoid(r_h)`, where F is the
    distribution of its first occurrence, G its cumulative sum and r an output for each step. So
    `F_h <= P(at h) <= P(by h) <= 1` for any weights. Other outcomes are predicted given that the episode
    still runs, and multiplied by the probability that it does; those that are 0 except at termination, given
    that it ends at this step.

    margin: whether the agent's action margin is an input; if so, predicting needs the agent (see `ask`).
    """

    scale: Tensor
    final: Tensor

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        columns: Columns,
        *,
        horizon: int,
        **architecture: Unpack[Architecture],
    ) -> None:
        super().__init__()
        self.columns, self.horizon = columns, horizon
        self.margin = architecture.get("margin", False)
        self._margins: Margins | None = None
        both = observation_space, action_space
        steps, times = horizon * columns.channels, columns.times(horizon)
        self.steps = PairNetwork(*both, steps, **architecture) if steps else None
        self.times = PairNetwork(*both, times, **architecture) if times else None
        self.discrete = self.parts[0].discrete
        self.register_buffer("scale", torch.ones(len(columns.real)))
        final = torch.tensor([k in columns.final for k in columns.real], dtype=torch.bool)
        self.register_buffer("final", final, persistent=False)
        self.start_from(np.zeros(columns.width), np.ones(len(columns.real)))

    @property
    def parts(self) -> tuple[PairNetwork, ...]:
        """The networks that it consists of: per step, and over steps; without those that have no outputs."""
        return tuple(part for part in (self.steps, self.times) if part is not None)

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    @torch.no_grad()
    def start_from(self, mean: FloatArray, scale: FloatArray) -> None:
        """Initialise biases so that the mean outcome [outcome] is predicted for every step and action.

        scale: the typical size of real-valued outcomes [real].
        """
        columns, rate = self.columns, torch.as_tensor(mean, dtype=torch.float32).clamp(LEAST, 1 - LEAST)
        self.scale.copy_(torch.as_tensor(scale))
        members = rate[list(columns.partition)]
        end = [torch.tensor([LEAST])] if columns.partition else []
        at = [*columns.events, *(at for at, _ in columns.again)]
        real = torch.as_tensor(mean, dtype=torch.float32)[list(columns.real)] / self.scale.cpu()
        level = torch.cat([members.log(), *(part.log() for part in end), torch.logit(rate[at]), real])
        if self.steps is not None:
            self.steps.heads.shared.bias.copy_(level.repeat(self.horizon))
        if self.times is not None:
            endings = [group[0] for group in columns.ending] + [columns.width - 1]
            groups = [rate[endings]] if columns.over_time else []
            groups += [rate[[k]] for k in columns.first]
            bias = [_geometric(group, self.horizon) for group in groups]
            self.times.heads.shared.bias.copy_(torch.cat(bias))

    def description(self) -> dict[str, Any]:
        """The architecture, as plain values."""
        return self.parts[0].settings | {"columns": asdict(self.columns), "horizon": self.horizon}

    @property
    def complete(self) -> bool:
        """Whether it has the agent, if margins are an input."""
        return not self.margin or self._margins is not None

    def ask(self, policy: Policy) -> None:
        """Use this policy to compute margins."""
        self._margins = Margins(policy)

    def margins_at(self, observations: Array) -> FloatArray | None:
        """[batch, 1]: the agent's margins; None if they are not an input."""
        if not self.margin:
            return None
        if self._margins is None:
            raise ValueError(
                "this explainer has the agent's action values as an input: load it with its agent, "
                "tpd.load(folder, agent=...)"
            )
        return self._margins(observations)

    def see(self, observations: Array) -> None:
        """Update the running scales of observations with a batch."""
        margins = self.margins_at(observations)
        for part in self.parts:
            part.see(observations, margins)

    def unseen(self, observations: Array) -> BoolArray:
        """[batch]: whether an observation is far from all observations seen; known for vectors only."""
        return self.parts[0].unseen(observations)

    def features(
        self, observations: Array, actions: Array | None = None, margins: Array | None = None
    ) -> Tensor:
        """[batch, features] of both parts; margins [batch, 1]: the agent's margins if already computed."""
        margins = self.margins_at(observations) if margins is None else margins
        return torch.cat([part.features(observations, actions, margins) for part in self.parts], dim=1)

    def outputs(self, features: Tensor, actions: Array) -> Tensor:
        """[batch, outputs] of both parts."""
        sizes = [features.shape[1] // len(self.parts)] * len(self.parts)
        both = zip(self.parts, torch.split(features, sizes, dim=1), strict=True)
        return torch.cat([part.outputs(its, actions) for part, its in both], dim=1)

    def channels(self, outputs: Tensor) -> Channels:
        """The outputs [..., outputs] grouped by meaning."""
        columns, horizon = self.columns, self.horizon
        steps, ending, first = torch.split(
            outputs,
            [
                horizon * columns.channels,
                columns.times(horizon) - len(columns.first) * (horizon + 1),
                len(columns.first) * (horizon + 1),
            ],
            dim=-1,
        )
        softmax = len(columns.partition) + bool(columns.partition)
        sizes = [softmax, len(columns.events), len(columns.again), len(columns.real)]
        steps = steps.view(*steps.shape[:-1], horizon, columns.channels)
        partition, events, again, real = torch.split(steps, sizes, dim=-1)
        first = first.view(*first.shape[:-1], len(columns.first), horizon + 1)
        return Channels(partition, events, again, real, ending if columns.over_time else None, first)

    def expected(self, outputs: Tensor) -> Tensor:
        """[..., horizon, outcome]: expected outcomes in the network's order (`columns.order`), unscaled."""
        columns, channels = self.columns, self.channels(outputs)
        first = channels.first.softmax(dim=-1)[..., :-1].transpose(-1, -2)
        running = given = torch.ones_like(outputs[..., :1, None])
        last = list[Tensor]()
        if channels.ending is not None:
            ends = channels.ending.softmax(dim=-1)[..., :-1]
            ends = ends.reshape(*ends.shape[:-1], -1, self.horizon).transpose(-1, -2)
            groups = [e for e, group in enumerate(columns.ending) for _ in group]
            end = ends.sum(dim=-1, keepdim=True).clamp(max=1)
            running, last = still_running(end), [ends[..., groups], end]
            given = self.condition(running, end)
        found = [
            channels.partition.softmax(dim=-1)[..., : len(columns.partition)],
            running * channels.events.sigmoid(),
            given * channels.real * self.scale,
            first,
            _again(first[..., columns.before], channels.again.sigmoid()),
        ]
        return torch.cat([*found, *last], dim=-1)

    def condition(self, running: Tensor, end: Tensor) -> Tensor:
        """[..., horizon, real or 1]: the probability of what each real-valued outcome is predicted given.

        running, end: [..., horizon, 1], the probabilities that the episode has not ended before each step,
        and that it ends there.
        """
        return torch.where(self.final, end, running) if self.columns.final else running


def still_running(end: Tensor) -> Tensor:
    """[..., horizon, 1]: the probability that the episode has not ended before each step."""
    return (1 - torch.cumsum(end, dim=-2) + end).clamp(0, 1)


def _again(first: Tensor, again: Tensor) -> Tensor:
    """[..., horizon, event]: P(at h), from first occurrences and the probability of repetition."""
    before = torch.cumsum(first, dim=-2) - first
    return (first + before.clamp(0, 1) * again).clamp(max=1)


def _geometric(rates: Tensor, horizon: int) -> Tensor:
    """[event * horizon + 1]: logits of the first event and its step, if each has a constant rate."""
    alive = torch.log1p(-rates.sum().clamp(max=0.99))
    when = rates.log()[:, None] + alive * torch.arange(horizon)
    return torch.cat([when.flatten(), (alive * horizon)[None]])
