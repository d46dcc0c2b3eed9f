"""Mixture weights of two predictors, by least squares on observed outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpd.core.outcomes import FIRST
from tpd.core.types import Array, FloatArray

BLOCKS, SURE = 20, 1.5
"""Number of blocks of windows; number of standard errors by which a mixture must beat the first predictor."""


@dataclass(frozen=True)
class Windows:
    """Pairs, and the outcomes observed after them while the policy chose the actions."""

    observation: Array
    """[batch, ...]"""
    action: Array
    """[batch, ...]"""
    seen: FloatArray
    """[batch, horizon, outcome]"""
    weight: FloatArray
    """[batch, horizon]: the weight of each step; 0 where the outcomes were not observed"""

    def __len__(self) -> int:
        return len(self.weight)


def groups(names: Sequence[str], together: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Groups of columns that share a mixture weight, so that the mixture stays consistent.

    An event shares its weight with its first occurrence. The columns `together` (events that end an episode,
    and members of a partition) share theirs with termination, the column after the names.
    """
    ending = sorted({*together, len(names)})
    found = [tuple(ending)]
    for column, name in enumerate(names):
        if column in ending or (name.startswith(FIRST) and name.removeprefix(FIRST) in names):
            continue
        first = [names.index(FIRST + name)] if FIRST + name in names else []
        found.append((column, *first))
    return tuple(found)


def fitted_weights(
    windows: Windows,
    one: FloatArray,
    other: FloatArray,
    names: Sequence[str],
    shared: Sequence[Sequence[int]],
) -> FloatArray:
    """[outcome]: the weight of the prediction `other` [batch, horizon, outcome] in the best mixture.

    The best mixture minimises the squared error (for events, the Brier score) of "at step h" and, for first
    occurrences and termination, also of "by step h". Weights are clipped to [0, 1]. A weight is 0 unless the
    mixture is significantly better: a few windows with a rare event prove nothing.
    """
    weights = np.zeros(one.shape[2])
    once = [*(name.startswith(FIRST) for name in names), True]
    for columns in shared:
        agreement, difference = np.zeros(len(windows)), np.zeros(len(windows))
        for column in columns:
            error, step = windows.seen[..., column] - one[..., column], (other - one)[..., column]
            for wrong, apart in _questions(error, step, once[column]):
                agreement += (windows.weight * wrong * apart).sum(axis=1, dtype=np.float64)
                difference += (windows.weight * apart**2).sum(axis=1, dtype=np.float64)
        if difference.any():
            share = np.clip(agreement.sum() / difference.sum(), 0, 1)
            if _beyond_chance(share * (2 * agreement - share * difference)):
                weights[list(columns)] = share
    return weights


def _beyond_chance(gains: FloatArray) -> bool:
    """Whether the mean gain [window] is significantly above 0, by blocks, as adjacent windows correlate."""
    blocks = [block.sum() for block in np.array_split(gains, min(BLOCKS, len(gains)))]
    return len(blocks) > 1 and np.mean(blocks) > SURE * np.std(blocks, ddof=1) / np.sqrt(len(blocks))


def _questions(error: FloatArray, step: FloatArray, once: bool) -> list[tuple[FloatArray, FloatArray]]:
    """Errors and differences [batch, horizon] of a column at step h and, if it happens once, by step h."""
    at = (error, step)
    return [at, (np.cumsum(error, axis=1), np.cumsum(step, axis=1))] if once else [at]


def mixed(one: FloatArray, other: FloatArray, weights: FloatArray) -> FloatArray:
    """[..., outcome]"""
    return np.asarray(one + weights.astype(one.dtype) * (other - one))
