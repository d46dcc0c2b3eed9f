"""The return after the horizon, estimated to the end of the episode."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from tpd.core.bands import LEVEL, Band
from tpd.core.intervals import student
from tpd.core.outcomes import Legend
from tpd.core.types import Array, BoolArray, FloatArray, Index, IntArray, Policy, Predictor


@dataclass(frozen=True)
class Beyond:
    """The return after the horizon, discounted to step 0; NaN where it is not estimated."""

    mean: FloatArray
    """[batch]"""
    draws: FloatArray
    """[draw, batch]: one value for each posterior sample or rollout, in the order of the explanation's own;
    there may be fewer than the explanation has"""
    certain: BoolArray
    """[batch]: whether the value is exact: neither random nor learned"""
    unended: IntArray
    """[batch]: the number of steps after which a rollout was cut off before the episode ended; else 0"""

    def __getitem__(self, index: Index) -> "Beyond":
        return Beyond(self.mean[index], self.draws[:, index], self.certain[index], self.unended[index])

    @property
    def estimated(self) -> BoolArray:
        """[batch]"""
        return np.isfinite(self.mean)


@runtime_checkable
class SeesBeyond(Predictor, Protocol):
    """A predictor that can estimate the return from its horizon to the end of the episode."""

    def beyond(
        self, observations: Array, actions: Array, policy: Policy, legend: Legend, draws: int
    ) -> Beyond | None:
        """[batch]; None if it cannot estimate this."""


def nothing_left(batch: int) -> Beyond:
    """The `Beyond` of episodes that end within the horizon: exactly 0."""
    nothing = np.zeros(batch)
    return Beyond(nothing, nothing[None], nothing == 0, nothing.astype(np.int64))


def all_beyond(parts: Sequence[Beyond | None]) -> Beyond | None:
    """The parts concatenated, or None if any part is None."""
    held = [part for part in parts if part is not None]
    if len(held) < len(parts):
        return None
    mean, certain, unended = (
        np.concatenate([getattr(part, name) for part in held]) for name in ("mean", "certain", "unended")
    )
    return Beyond(mean, np.concatenate(alike([part.draws for part in held]), axis=1), certain, unended)


def alike(drawn: Sequence[FloatArray]) -> list[FloatArray]:
    """Cut all arrays [draw, batch] to the smallest number of draws.

    An array with a single draw is certain: it is repeated and does not count as the smallest.
    """
    few = min((len(one) for one in drawn if len(one) > 1), default=max(map(len, drawn)))
    return [one[:few] if len(one) > 1 else np.broadcast_to(one, (few, one.shape[1])) for one in drawn]


class Whole(NamedTuple):
    """A difference of returns over the whole episode where that is estimated, else up to the horizon."""

    mean: FloatArray
    """[batch]"""
    band: Band | None
    """[batch]; None without posterior samples and rollouts"""
    estimated: BoolArray
    """[batch]: whether the return after the horizon is included"""
    rest_differs: BoolArray
    """[batch]: whether it is included and the band of the difference after the horizon excludes 0"""


def mean_of_both(within: FloatArray, beyond: FloatArray, level: float = LEVEL) -> Band:
    """[batch]: the band of mean return within the horizon [rollout, batch] plus mean return beyond it.

    Only the first few rollouts were continued beyond the horizon [few, batch]. If m of n were continued, the
    variance of the sum of both means is Var(within) / n + Var(beyond) / m + 2 Cov(within, beyond) / n.
    The band uses Student's t with m - 1 degrees of freedom. With m = 1 the part beyond is certain.
    """
    from scipy import special  # takes long to import

    many, few = len(within), len(beyond)
    mean = within.mean(axis=0) + beyond.mean(axis=0)
    if few < 2:
        return student(within + beyond, level) if many > 1 else Band(mean, mean)
    variance = beyond.var(axis=0, ddof=1) / few
    if many > 1:
        some = within[:few] - within[:few].mean(axis=0)
        covariance = (some * (beyond - beyond.mean(axis=0))).sum(axis=0) / (few - 1)
        variance = variance + (within.var(axis=0, ddof=1) + 2 * covariance) / many
    reach = special.stdtrit(few - 1, (1 + level) / 2) * np.sqrt(np.maximum(variance, 0))
    return Band(mean - reach, mean + reach)
