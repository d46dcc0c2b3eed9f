"""How much of the second of two predictors goes into their mixture, by least squares of what was observed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpd.core.outcomes import FIRST
from tpd.core.types import Array, FloatArray

BLOCKS, SURE = 20, 1.5
"""Blocks of windows, and by how many standard errors a mixture must be better than one of its parts."""


@dataclass(frozen=True)
class Windows:
    """Pairs, and what was observed after them, as long as the policy itself acted."""

    observation: Array
    """[batch, ...]"""
    action: Array
    """[batch, ...]"""
    seen: FloatArray
    """[batch, horizon, outcome]"""
    weight: FloatArray
    """[batch, horizon]: how much each step counts, 0 where what is seen is not known"""

    def __len__(self) -> int:
        return len(self.weight)


def groups(names: Sequence[str], together: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The columns that share a weight, so that what is mixed agrees with itself.

    An event goes with its first occurrence. The columns `together` all go with termination, which is the
    column after the names: the events that end an episode, and a partition, which lasts as long as it runs.
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
    """[outcome]: the share of the other prediction [batch, horizon, outcome] in the best mixture.

    The best mixture has the least squared error, which is the Brier score of events, over "at step h"
    and, of first occurrences and termination, "by step h"; clipped to [0, 1]. The first prediction is taken
    alone unless the mixture is better beyond chance: a few windows with a rare event tell nothing.
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
    """Whether gains [window] are more than 0, judged by blocks, since windows that follow are alike."""
    blocks = [block.sum() for block in np.array_split(gains, min(BLOCKS, len(gains)))]
    return len(blocks) > 1 and np.mean(blocks) > SURE * np.std(blocks, ddof=1) / np.sqrt(len(blocks))


def _questions(error: FloatArray, step: FloatArray, once: bool) -> list[tuple[FloatArray, FloatArray]]:
    """Errors and differences [batch, horizon] of what is asked of a column: at step h, and by step h."""
    at = (error, step)
    return [at, (np.cumsum(error, axis=1), np.cumsum(step, axis=1))] if once else [at]


def mixed(one: FloatArray, other: FloatArray, weights: FloatArray) -> FloatArray:
    """[..., outcome]"""
    return np.asarray(one + weights.astype(one.dtype) * (other - one))
