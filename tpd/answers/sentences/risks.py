"""Finds risks: events with a large penalty."""

import numpy as np

from tpd.answers.sentences.terms import Term
from tpd.core.explanation import Explanation
from tpd.core.types import BoolArray, FloatArray

DECISIVE = 5.0
"""An ending is a risk if its reward is lower than that of other steps by this many times their mean size."""


def risks(explanation: Explanation, every: tuple[Term, ...], ending: BoolArray) -> BoolArray:
    """[batch, term]: which events have a large penalty, by their own reward or by the rewards in rollouts.

    The latter applies to events that end the episode and whose reward belongs to another outcome.
    """
    risky = np.tile([term.risky for term in every], (len(explanation), 1))
    free = [term for term in every if term.is_event and term.weight is None]
    rollouts = explanation.rollouts
    if rollouts is None or not free or explanation.legend.reward_bound is None:
        return risky
    rewards = rollouts @ explanation.legend.rewards
    for term in free:
        happens = rollouts[..., term.column] > 0
        before = happens.any(axis=2, keepdims=True) & (np.cumsum(happens, axis=2) == 0)
        then, _ = _mean_where(happens, rewards)
        other, size = _mean_where(before, rewards)
        risky[:, term.number] = ending[:, term.number] & (then - other < -DECISIVE * size)
    return risky


def _mean_where(chosen: BoolArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[batch]: the mean of chosen values [rollout, batch, step] and of their sizes; NaN if none is chosen."""
    with np.errstate(invalid="ignore"):
        count = chosen.sum(axis=(0, 2))
        return tuple(np.where(chosen, each, 0).sum(axis=(0, 2)) / count for each in (values, np.abs(values)))
