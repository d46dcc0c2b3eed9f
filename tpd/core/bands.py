"""Bands: intervals that contain an expectation with a given probability, computed from posterior samples.

A band is for the expectation, not for the single outcome that will be observed: an event happens or not, so
an interval for the observation would nearly always be all of [0, 1].
"""

from typing import NamedTuple

import numpy as np

from tpd.core.types import BoolArray, FloatArray
from tpd.guards.settings import number

LEVEL = 0.9
ENOUGH_DRAWS = 59
"""Posterior samples for a 90 % band: its ends are the third smallest and the third largest of these."""
UNTOLD = 0.8
"""If the band of a probability is wider than this, the data do not determine the probability."""


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
    """The band of an estimate [batch, horizon, ...] from posterior samples [draw, batch, horizon, ...].

    The i-th smallest of n samples is taken as the quantile i / (n + 1); the ends are interpolated between
    samples. The band is widened to contain the estimate. It is NaN where `known` [batch, horizon] is False.
    """
    number("level", level, 0, 1)
    outside = (1 - level) / 2
    if len(draws) * outside + 1e-9 < 1 - outside:
        least = np.ceil((1 - outside) / outside - 1e-6)
        raise ValueError(
            f"{len(draws)} posterior samples are too few for a {level:.3g} band: request at least "
            f"{least:.0f} (draws=)"
        )
    ordered = np.sort(draws, axis=0)  # several times faster than np.quantile
    low, high = (_at(ordered, share * (len(draws) + 1) - 1) for share in (outside, 1 - outside))
    unknown = ~known.reshape(known.shape + (1,) * (estimate.ndim - known.ndim))
    ends = np.minimum(low, estimate), np.maximum(high, estimate)
    return Band(*(np.where(unknown, np.nan, end) for end in ends))


def _at(ordered: FloatArray, place: float) -> FloatArray:
    """[...]: the sorted values [draw, ...] at a fractional index from 0, by linear interpolation."""
    below = min(max(0, int(place + 1e-9)), len(ordered) - 1)
    above, share = min(below + 1, len(ordered) - 1), max(0.0, place - below)
    return np.asarray(ordered[below] + share * (ordered[above] - ordered[below]))
