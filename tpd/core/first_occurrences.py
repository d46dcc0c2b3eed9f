"""Makes predicted probabilities consistent: first occurrences, events, exclusive events, termination."""

from collections.abc import Sequence

import numpy as np

from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import FloatArray

ROUNDING = 1e-6


def reconciled(expected: FloatArray, legend: Legend) -> FloatArray:
    """[..., horizon, outcome]: `expected` changed so that `F_h <= P(at h) <= P(by h) <= 1` for every event.

    `P(at h)` is not changed. Step by step, the probability `F_h` of the first occurrence is clipped: at most
    `P(at h)`, at least `P(at h) - P(by h-1)`, and at most `1 - P(by h-1)`.
    """
    moved: FloatArray | None = None
    for column, name in enumerate(legend.names):
        if not name.startswith(FIRST):
            continue
        first, event = expected[..., column], name.removeprefix(FIRST)
        at = expected[..., legend.names.index(event)] if event in legend.names else None
        fitting = _fitting(first, at)
        if np.abs(fitting - first).max(initial=0) > ROUNDING:
            moved = expected.copy() if moved is None else moved
            moved[..., column] = fitting
    return expected if moved is None else moved


def _fitting(first: FloatArray, at: FloatArray | None) -> FloatArray:
    """[..., horizon]: first occurrences that are consistent with the event itself, if that is explained."""
    fitting, happened = np.empty_like(first), np.zeros_like(first[..., 0])
    for h in range(first.shape[-1]):
        most, least = 1 - happened, np.zeros_like(happened)
        if at is not None:
            now = np.clip(at[..., h], 0, 1)
            most, least = np.minimum(most, now), np.maximum(0, now - happened)
        fitting[..., h] = np.clip(first[..., h], least, most)
        happened = happened + fitting[..., h]
    return fitting


def before_the_end(expected: FloatArray, legend: Legend) -> FloatArray:
    """[..., horizon, outcome + 1]: `expected` with P(event at h) clipped to P(episode still runs at h).

    The last column is termination. Events of a partition sum to P(still runs) already and are not changed.
    """
    running = still_running(expected)
    apart = [name for name in legend.events if name.removeprefix(FIRST) not in legend.partition]
    events = [legend.names.index(name) for name in apart]
    beyond = expected[..., events] > running + ROUNDING
    if not beyond.any():
        return expected
    moved = expected.copy()
    moved[..., events] = np.where(beyond, running, expected[..., events])
    return moved


def at_most_one(expected: FloatArray, exclusive: Sequence[int]) -> FloatArray:
    """[..., horizon, outcome + 1]: `expected`, where exclusive events sum to at most P(still runs at h).

    exclusive: the columns of events of which at most one happens at a step. Where their sum is too large, all
    of them are scaled by the same factor. The last column is termination.
    """
    columns = list(exclusive)
    running, total = still_running(expected), expected[..., columns].sum(axis=-1, keepdims=True)
    beyond = total > running + ROUNDING
    if not beyond.any():
        return expected
    scale = np.divide(running, total, out=np.ones_like(total), where=beyond)
    moved = expected.copy()
    moved[..., columns] *= scale
    return moved


def still_running(expected: FloatArray) -> FloatArray:
    """[..., horizon, 1]: the probability that the episode still runs at step h."""
    ends = expected[..., -1]
    return np.clip(1 - (np.cumsum(ends, axis=-1) - ends), 0, 1)[..., None]
