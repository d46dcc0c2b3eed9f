"""How much of the second of two predictors goes into their mixture, by least squares of what was observed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpd.core.outcomes import FIRST
from tpd.core.types import Array, FloatArray


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
    and, of first occurrences and termination, "by step h"; clipped to [0, 1]. One prediction is as good
    as the other where they are the same: the first is then taken.
    """
    weights = np.zeros(one.shape[2])
    once = [*(name.startswith(FIRST) for name in names), True]
    for columns in shared:
        agreement = difference = 0.0
        for column in columns:
            error, step = windows.seen[..., column] - one[..., column], (other - one)[..., column]
            for wrong, apart in _questions(error, step, once[column]):
                agreement += float((windows.weight * wrong * apart).sum(dtype=np.float64))
                difference += float((windows.weight * apart**2).sum(dtype=np.float64))
        if difference > 0:
            weights[list(columns)] = np.clip(agreement / difference, 0, 1)
    return weights


def _questions(error: FloatArray, step: FloatArray, once: bool) -> list[tuple[FloatArray, FloatArray]]:
    """Errors and differences [batch, horizon] of what is asked of a column: at step h, and by step h."""
    at = (error, step)
    return [at, (np.cumsum(error, axis=1), np.cumsum(step, axis=1))] if once else [at]


def mixed(one: FloatArray, other: FloatArray, weights: FloatArray) -> FloatArray:
    """[..., outcome]"""
    return np.asarray(one + weights.astype(one.dtype) * (other - one))
