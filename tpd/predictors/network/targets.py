"""Targets and losses of the outcome network."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tpd.predictors.network.outcome_network import OutcomeNetwork, still_running


class Targets(NamedTuple):
    """Training targets for a batch of pairs."""

    outcome: Tensor
    """[batch, horizon, outcome]: expected future outcomes, or value functions, in the network's order"""
    weight: Tensor | None = None
    """[batch, horizon]: weight of each step, 0 where the target is unknown; None for equal weights"""


class Losses(NamedTuple):
    """Losses of the two parts of a network."""

    steps: Tensor
    """[batch]"""
    times: Tensor
    """[batch]"""


def losses(network: OutcomeNetwork, outputs: Tensor, target: Targets) -> Losses:
    """Cross-entropy for events, squared error for the rest; summed over outcomes, averaged over steps.

    Repetitions of an event are weighted by the target probability that it has happened before, other outcomes
    by the target probability that the episode still runs or, for final ones, ends.
    """
    channels, wanted = network.channels(outputs), network.columns.split(target.outcome)
    running = given = torch.ones_like(target.outcome[..., :1])
    if channels.ending is not None:
        running = still_running(wanted.end)
        given = network.condition(running, wanted.end)
    steps = _binary(channels.events, wanted.events, running)
    if network.columns.partition:
        ended = (1 - wanted.partition.sum(dim=-1, keepdim=True)).clamp(min=0)
        likely = channels.partition.log_softmax(dim=-1)
        steps = steps - (torch.cat([wanted.partition, ended], dim=-1) * likely).sum(dim=-1)
    if network.columns.again:
        first = wanted.first[..., network.columns.before]
        before = torch.cumsum(first, dim=-2) - first
        steps = steps + _binary(channels.again, (wanted.again - first).clamp(min=0), before)
    if network.columns.real:
        real = wanted.real / network.scale
        squares = (given * channels.real - 2 * real) * channels.real + real**2
        steps = steps + squares.sum(dim=-1) / 2
    steps = steps if target.weight is None else steps * target.weight
    known = None if target.weight is None else (target.weight > 0).to(steps.dtype)
    times = torch.zeros_like(steps[:, 0])
    if channels.ending is not None:
        by_none = (wanted.end - wanted.ending.sum(dim=-1, keepdim=True)).clamp(min=0)
        endings = torch.cat([wanted.ending, by_none], dim=-1).transpose(1, 2)
        times = times + _over_time(channels.ending, endings, known)
    for e in range(wanted.first.shape[-1]):
        times = times + _over_time(channels.first[:, e], wanted.first[:, None, :, e], known)
    return Losses(steps.sum(dim=1) / network.horizon, times)


def _binary(logits: Tensor, happens: Tensor, weight: Tensor) -> Tensor:
    """[...]: weighted cross-entropy summed over events [..., event]; `happens` is weight times target."""
    never = torch.zeros_like(logits)
    softplus = functional.binary_cross_entropy_with_logits(logits, never, reduction="none")  # the fastest
    return (weight * softplus - happens * logits).sum(dim=-1)


def _over_time(logits: Tensor, happens: Tensor, known: Tensor | None) -> Tensor:
    """[batch]: cross-entropy of a distribution over steps, given logits [batch, event * horizon + 1].

    happens: [batch, event, horizon], target probabilities. If only some steps are known [batch, horizon], the
    remaining mass is right-censored: the event does not happen within the known steps.
    """
    likely = logits.log_softmax(dim=-1)
    if known is None:
        happens = happens.flatten(1)
        rest = (1 - happens.sum(dim=1, keepdim=True)).clamp(min=0)
        return -(torch.cat([happens, rest], dim=1) * likely).sum(dim=-1)
    happens = happens * known[:, None]
    rest = (1 - happens.sum(dim=(1, 2))).clamp(min=0)
    never = torch.zeros_like(rest)[:, None]
    over = torch.cat([known[:, None].expand_as(happens).flatten(1), never], dim=1) > 0
    survives = torch.logsumexp(likely.masked_fill(over, -torch.inf), dim=-1)
    return -(happens.flatten(1) * likely[:, :-1]).sum(dim=-1) - rest * survives
