"""Bands: where an expectation lies with a given probability, read from equally plausible alternatives to it.

A band is for the expectation, not for what will happen: an event happens or not, so an interval for that
would nearly always be all of [0, 1].
"""

from typing import NamedTuple

import numpy as np

from tpd.core.types import BoolArray, FloatArray
from tpd.guards.settings import number

LEVEL = 0.9
ENOUGH_DRAWS = 59
"""The ends of a band of 90 % are the third smallest and the third largest of them."""
UNTOLD = 0.8
"""A wider band of a probability says that the data do not tell it."""


class Band(NamedTuple):
    """The ends of a band; NaN where the expectation is unknown."""

    low: FloatArray
    """[batch, ...]"""
    high: FloatArray
    """[batch, ...]"""

    @property
    def width(self) -> FloatArray:
        """[batch, ...]"""
        return np.asarray(self.high - self.low)


def band_of(draws: FloatArray, estimate: FloatArray, known: BoolArray, level: float = LEVEL) -> Band:
    """The band of an estimate [batch, horizon, ...] from draws [draw, batch, horizon, ...].

    Its ends are the draws at positions i / (n + 1) of n draws in order; the estimate lies within. What is
    not known [batch, horizon] has no band.
    """
    number("level", level, 0, 1)
    outside = (1 - level) / 2
    if len(draws) * outside + 1e-9 < 1 - outside:
        raise ValueError(f"{len(draws)} draws are too few for a band of {level:.3g}: all lie within it")
    ordered = np.sort(draws, axis=0)  # several times faster than np.quantile
    low, high = (_at(ordered, share * (len(draws) + 1) - 1) for share in (outside, 1 - outside))
    unknown = np.broadcast_to(
        ~known.reshape(known.shape + (1,) * (estimate.ndim - known.ndim)), estimate.shape
    )
    return Band(
        np.where(unknown, np.nan, np.minimum(low, estimate)),
        np.where(unknown, np.nan, np.maximum(high, estimate)),
    )


def _at(ordered: FloatArray, place: float) -> FloatArray:
    """[...]: between the values [draw, ...] that lie next to a place in their order, counted from 0."""
    below = min(max(0, int(place + 1e-9)), len(ordered) - 1)
    above, share = min(below + 1, len(ordered) - 1), max(0.0, place - below)
    return np.asarray(ordered[below] + share * (ordered[above] - ordered[below]))
