"""An ensemble of probabilistic one-step models: change of the observation, termination, and reward."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tpd.core.types import BoolArray, FloatArray
from tpd.predictors.model.scales import ATOMS, Scales

LEAST_LOG_VARIANCE, MOST_LOG_VARIANCE = -14.0, 4.0
LEAST_SHARE = 1e-4  # smoothing of the fraction of terminations


class Batch(NamedTuple):
    """A batch of transitions, [member, row, ...]."""

    observation: Tensor
    action: Tensor
    after: Tensor
    reward: Tensor
    end: Tensor
    """1 where the episode terminates, else 0"""


class Noise(NamedTuple):
    """The random numbers of one simulated step."""

    normal: Tensor
    """[member, row, observation]"""
    flag: Tensor
    """[member, row, observation]: in [0, 1]"""
    kind: Tensor
    """[member, row]: in [0, 1], selects the kind of reward"""
    reward: Tensor
    """[member, row]: standard normal"""


class Step(NamedTuple):
    """One simulated step."""

    observation: Tensor
    """[member, row, observation]: the next observation"""
    end: Tensor
    """[member, row]: probability that the episode terminates with this step"""
    reward: Tensor
    """[2, member, row]: reward if the episode goes on, and if it terminates"""


class Perceptrons(nn.Module):
    """Multilayer perceptrons of equal shape, one for each ensemble member, evaluated together."""

    def __init__(self, members: int, sizes: Sequence[int]) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for before, after in pairwise(sizes):
            reach = 1 / math.sqrt(before)
            weight = torch.empty(members, before, after).uniform_(-reach, reach)
            if after is sizes[-1]:
                weight *= 0.1
            self.weights.append(nn.Parameter(weight))
            self.biases.append(nn.Parameter(torch.zeros(members, 1, after)))

    def forward(self, values: Tensor) -> Tensor:
        """[member, row, output] of [member, row, input]."""
        last = len(self.weights) - 1
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values, weight)
            if number < last:
                values = functional.silu(values)
        return values


class WorldModel(nn.Module):
    """Samples the next observation, and predicts termination and reward of that transition.

    The change of the observation is Gaussian with diagonal covariance; binary numbers are Bernoulli.
    Termination and reward depend on the observations before and after the step. The reward is one of the
    recurring values or Gaussian, with separate parameters for terminal steps.
    """

    def __init__(self, observed: int, acted: int, members: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.observed, self.acted, self.members, self.hidden = observed, acted, members, tuple(hidden)
        self.scales = Scales(observed)
        self.change = Perceptrons(members, [observed + acted, *hidden, 3 * observed])
        half = [max(1, width // 2) for width in hidden]  # simple functions of a transition
        self.result = Perceptrons(members, [3 * observed + acted, *half, 1 + 2 * (ATOMS + 3)])

    @torch.no_grad()
    def measure(self, observation: FloatArray, after: FloatArray, reward: FloatArray, end: BoolArray) -> None:
        """Measure the scales on transitions [batch, ...], and initialise the termination rate."""
        self.scales.measure(observation, after, reward, end)
        share = float(end.mean())
        self.result.biases[-1][..., 0] = math.log((share + LEAST_SHARE) / (1 - share + LEAST_SHARE))

    def step(self, observation: Tensor, action: Tensor, noise: Noise) -> Step:
        """Simulate one step for observations and actions [member, row, ...]."""
        mean, log_variance, flag = self._change(observation, action)
        moved = observation + self.scales.change(mean + noise.normal * (log_variance / 2).exp())
        after = self.scales.settle(moved, noise.flag < flag.sigmoid())
        end, kinds, reward_mean, reward_log_variance = self._result(observation, action, after)
        number = (kinds.softmax(dim=-1).cumsum(dim=-1) < noise.kind[None, ..., None]).sum(dim=-1)
        drawn = reward_mean + noise.reward * (reward_log_variance / 2).exp()
        return Step(after, end.sigmoid(), self.scales.reward(number.clamp(max=ATOMS), drawn))

    def losses(self, batch: Batch, beta: float) -> Tensor:
        """[member, row]: the summed losses of all predictions; with beta=0 the negative log-likelihood."""
        observation, action, after, reward, end = batch
        mean, log_variance, flag = self._change(observation, action)
        gaussian = _gaussian_loss(mean, log_variance, self.scales.unchange(after - observation), beta)
        flags = (after == self.scales.high).float()
        binary = functional.binary_cross_entropy_with_logits(flag, flags, reduction="none")
        change = torch.where(self.scales.is_flag, binary, gaussian).sum(dim=-1)
        ends, kinds, reward_mean, reward_log_variance = self._result(observation, action, after)
        ending = functional.binary_cross_entropy_with_logits(ends, end, reduction="none")
        number, value = self.scales.kind_of(reward, end)
        kind = functional.cross_entropy(_branch(kinds, end).movedim(-1, 1), number, reduction="none")
        size = _gaussian_loss(_branch(reward_mean, end), _branch(reward_log_variance, end), value, beta)
        return change + ending + kind + torch.where(number == ATOMS, size, 0.0)

    def _change(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[member, row, observation] each: mean and log variance of the change, and logit of binary ones."""
        outputs = self.change(torch.cat([self.scales.inputs(observation), action], dim=-1))
        mean, log_variance, flag = outputs.chunk(3, dim=-1)
        return mean, _bounded(log_variance), flag

    def _result(self, before: Tensor, action: Tensor, after: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Logit of termination [member, row]; then, each [2, member, row, ...] for steps without and with
        termination: logits of the kinds of reward, and mean and log variance of other rewards.
        """
        scales = self.scales
        change = scales.unchange(after - before)
        outputs = self.result(torch.cat([scales.inputs(before), action, scales.inputs(after), change], -1))
        branches = torch.stack(outputs[..., 1:].chunk(2, dim=-1))
        kinds, mean, log_variance = branches[..., :-2], branches[..., -2], branches[..., -1]
        kinds = kinds.masked_fill(~scales.kinds[:, None, None], -math.inf)
        return outputs[..., 0], kinds, mean, _bounded(log_variance)


def _branch(values: Tensor, end: Tensor) -> Tensor:
    """[member, row, ...] of [2, member, row, ...]: the second at termination, else the first."""
    which = (end > 0).view(*end.shape, *(1,) * (values.dim() - 3))
    return torch.where(which, values[1], values[0])


def _bounded(log_variance: Tensor) -> Tensor:
    """A soft clip between the smallest and the largest log variance."""
    below = MOST_LOG_VARIANCE - functional.softplus(MOST_LOG_VARIANCE - log_variance)
    return LEAST_LOG_VARIANCE + functional.softplus(below - LEAST_LOG_VARIANCE)


def _gaussian_loss(mean: Tensor, log_variance: Tensor, true: Tensor, beta: float) -> Tensor:
    """The beta-NLL (Seitzer et al., 2022): beta=0 is the NLL, a larger beta is closer to squared error."""
    loss = ((true - mean) ** 2 * (-log_variance).exp() + log_variance) / 2
    weighted: Tensor = loss * (beta * log_variance.detach()).exp()
    return weighted
