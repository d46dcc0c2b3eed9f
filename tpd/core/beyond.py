"""What comes after the horizon: the rest of the return, estimated to the end of the episode."""

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
    """The return after the last step explained, discounted to the first; NaN where it is not estimated."""

    mean: FloatArray
    """[batch]"""
    draws: FloatArray
    """[draw, batch]: of a model or rollout each, in the order of those of the explanation; may be fewer"""
    certain: BoolArray
    """[batch]: whether nothing is left to chance or to learning"""
    unended: IntArray
    """[batch]: where the episode was followed but did not end, for how many steps in all; else 0"""

    def __getitem__(self, index: Index) -> "Beyond":
        return Beyond(self.mean[index], self.draws[:, index], self.certain[index], self.unended[index])

    @property
    def estimated(self) -> BoolArray:
        """[batch]"""
        return np.isfinite(self.mean)


@runtime_checkable
class SeesBeyond(Predictor, Protocol):
    """A predictor that can tell the return after its horizon, to the end of the episode."""

    def beyond(
        self, observations: Array, actions: Array, policy: Policy, legend: Legend, draws: int
    ) -> Beyond | None:
        """[batch]; None where it cannot."""


def nothing_left(batch: int) -> Beyond:
    """Of episodes that are over within the horizon."""
    nothing = np.zeros(batch)
    return Beyond(nothing, nothing[None], nothing == 0, nothing.astype(np.int64))


def all_beyond(parts: Sequence[Beyond | None]) -> Beyond | None:
    """Those of all parts, if all have them."""
    held = [part for part in parts if part is not None]
    if len(held) < len(parts):
        return None
    drawn = alike([part.draws for part in held])
    return Beyond(
        np.concatenate([part.mean for part in held]),
        np.concatenate(drawn, axis=1),
        np.concatenate([part.certain for part in held]),
        np.concatenate([part.unended for part in held]),
    )


def alike(drawn: Sequence[FloatArray]) -> list[FloatArray]:
    """As many draws [draw, batch] of each: the fewest, but for what is certain and was followed once."""
    few = min((len(one) for one in drawn if len(one) > 1), default=max(map(len, drawn)))
    return [one[:few] if len(one) > 1 else np.broadcast_to(one, (few, one.shape[1])) for one in drawn]


class Whole(NamedTuple):
    """A difference of returns over the whole episode, where that is estimated, else to the horizon."""

    mean: FloatArray
    """[batch]"""
    band: Band | None
    """[batch]; None where there are no draws"""
    estimated: BoolArray
    """[batch]: whether what comes after the horizon is part of it"""
    rest_differs: BoolArray
    """[batch]: whether it is, and the band of how that differs excludes 0"""


def mean_of_both(within: FloatArray, beyond: FloatArray, level: float = LEVEL) -> Band:
    """[batch]: of the mean of rollouts within the horizon [rollout, batch] plus that of what follows.

    Only the first few were followed [few, batch]. They are part of the many, so with n of which m went on,
    the variance of the sum of both means is Var(within) / n + Var(beyond) / m + 2 Cov(within, beyond) / n.
    Student's t with m - 1 degrees of freedom; what was followed once is certain.
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
