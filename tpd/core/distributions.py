"""Distributions of real-valued outcomes and returns, and what is read from them: quantiles, tails, risk.

A real-valued outcome is cut into bins, which are events, so whatever learns events learns its distribution.
What is not known, be it where in its bin a value lies or what follows a pair never tried, is not guessed:
every figure comes as the lowest and the highest that it may be.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from tpd.core.explanation import Explanation
from tpd.core.outcomes import Outcome, OutcomeError, OutcomeSet, event
from tpd.core.types import Array, BoolArray, FloatArray, Transitions
from tpd.guards.settings import number

ROUNDING = 1e-9
"""Probabilities that differ by less are the same."""
INEXACT = 1e-4
"""By as much probabilities may miss their sum, for they may come from float32."""


@dataclass(frozen=True)
class Distribution:
    """Values, and how likely each is; NaN throughout where there is nothing to speak of."""

    values: FloatArray
    """[..., atom], ascending"""
    probabilities: FloatArray
    """[..., atom], of sum 1"""

    def __post_init__(self) -> None:
        sums = self.probabilities.sum(axis=-1)
        amiss = (np.abs(sums - 1) > INEXACT) | (self.probabilities < -INEXACT).any(axis=-1)
        if amiss.any():
            raise ValueError(
                f"probabilities must be 0 or more and of sum 1, got {self.probabilities[amiss][0]}"
            )
        lower, upper = self.values[..., :-1], self.values[..., 1:]
        amiss = ((lower > upper) & ~np.isclose(lower, upper)).any(axis=-1)
        if amiss.any():
            raise ValueError(f"the values of a distribution must ascend, got {self.values[amiss][0]}")

    @property
    def mean(self) -> FloatArray:
        """[...]"""
        return _weighed_sum(self.values, self.probabilities)

    def quantile(self, level: float) -> FloatArray:
        """[...]: the smallest value that is not exceeded with this probability."""
        number("level", level, 0, 1)
        reached = self._cumulative >= level - ROUNDING
        first = np.where(reached.any(axis=-1), reached.argmax(axis=-1), self.values.shape[-1] - 1)
        found = np.take_along_axis(self.values, first[..., None], axis=-1)[..., 0]
        return np.where(np.isnan(self._cumulative[..., -1]), np.nan, found)

    def cvar(self, share: float) -> FloatArray:
        """[...]: the conditional value at risk, which is the mean of the lowest share of the values."""
        number("share", share, 0, 1, above_low=True)
        in_tail = np.diff(np.minimum(self._cumulative, share), prepend=0, axis=-1)
        return _weighed_sum(self.values, in_tail) / share

    def below(self, value: float) -> FloatArray:
        """[...]: the probability of less than the value."""
        return np.asarray(np.sum(self.probabilities * (self.values < value), axis=-1))

    def above(self, value: float) -> FloatArray:
        """[...]: the probability of more than the value."""
        return np.asarray(np.sum(self.probabilities * (self.values > value), axis=-1))

    @property
    def _cumulative(self) -> FloatArray:
        sums = np.cumsum(self.probabilities, axis=-1)
        return np.asarray(sums / sums[..., -1:])


class Bounds(NamedTuple):
    """The lowest and the highest that a figure may be."""

    low: FloatArray
    """[...]"""
    high: FloatArray
    """[...]"""


@dataclass(frozen=True)
class BoundedDistribution:
    """A distribution that is known as far as that it lies between two others."""

    lowest: Distribution
    """No value can be less likely to be exceeded."""
    highest: Distribution
    """No value can be more likely to be exceeded."""
    unknown: FloatArray
    """[...]: probability that the future has come to what was never tried"""

    @property
    def mean(self) -> Bounds:
        return Bounds(self.lowest.mean, self.highest.mean)

    def quantile(self, level: float) -> Bounds:
        """The smallest value that is not exceeded with this probability."""
        return Bounds(self.lowest.quantile(level), self.highest.quantile(level))

    def cvar(self, share: float) -> Bounds:
        """The conditional value at risk, which is the mean of the lowest share of the values."""
        return Bounds(self.lowest.cvar(share), self.highest.cvar(share))

    def below(self, value: float) -> Bounds:
        """The probability of less than the value."""
        return Bounds(self.highest.below(value), self.lowest.below(value))

    def above(self, value: float) -> Bounds:
        """The probability of more than the value."""
        return Bounds(self.lowest.above(value), self.highest.above(value))


@runtime_checkable
class PredictsReturns(Protocol):
    """Whatever knows how the return over the horizon is distributed."""

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return after each pair; None where it was not asked to learn that."""


def with_unknown(values: FloatArray, mass: FloatArray, bound: float) -> BoundedDistribution:
    """[batch]: of values [batch, atom] with their mass [batch, atom + 1], of which the last is unknown.

    What is unknown may be anything within the bound.
    """
    ends = np.full((len(values), 1), bound)
    lowest = Distribution(np.hstack([-ends, values]), np.roll(mass, 1, axis=1))
    return BoundedDistribution(lowest, Distribution(np.hstack([values, ends]), mass), mass[:, -1])


@dataclass(frozen=True)
class StepDistribution(BoundedDistribution):
    """What an outcome will be at step h, given that the episode comes to that step: [batch, horizon]."""

    ended: FloatArray
    """[batch, horizon]: probability that the episode has terminated before"""


def binned(outcome: Outcome, cuts: Sequence[float]) -> list[Outcome]:
    """The outcome as events, one for each bin between its bounds and the cuts, of which one happens."""
    edges = [outcome.low, *map(float, cuts), outcome.high]
    if outcome.is_event or not all(low < high for low, high in pairwise(edges)):
        raise OutcomeError(
            f"bins of {outcome.name!r} need a real-valued outcome and cuts that ascend between its bounds, "
            f"{outcome.low:g} and {outcome.high:g}, got {list(cuts)}"
        )
    return [
        event(
            _bin_name(outcome.name, low, high, last=high == outcome.high),
            partial(_falls_into, outcome=outcome, low=low, high=high),
            info_keys=outcome.info_keys,
        )
        for low, high in pairwise(edges)
    ]


def with_bins(
    outcomes: Sequence[Outcome],
    bins: Mapping[str, Sequence[float]],
    partition: bool = False,
    accounts_for_reward: bool = False,
    first: Sequence[str] = (),
) -> OutcomeSet:
    """A set of outcomes, and the bins of those that are named with the cuts between their bins.

    The bins of a single outcome are a partition if the set has no other events.
    """
    by_name = {outcome.name: outcome for outcome in outcomes}
    for name in bins:
        if name not in by_name:
            raise OutcomeError(f"bins: there is no outcome {name!r}; there are {', '.join(by_name)}")
    events = [bin_ for name, cuts in bins.items() for bin_ in binned(by_name[name], cuts)]
    return OutcomeSet([*outcomes, *events], partition, accounts_for_reward, first)


def distribution(explanation: Explanation, name: str) -> StepDistribution:
    """The distribution of a binned outcome at each step ahead, from the probabilities of its bins.

    What is unknown may be any value, and may have ended or not; NaN where the episode has surely ended.
    """
    columns, low, high = _bins(explanation.legend.names, name)
    known = np.clip(explanation.expected[:, :, columns], 0, None)
    unknown = explanation.unknown
    ended = np.clip(1 - known.sum(axis=2) - unknown, 0, 1)
    happens = known.sum(axis=2) + unknown
    shape = (*happens.shape, 1)
    share = np.full((*happens.shape, len(columns) + 1), np.nan)
    np.divide(np.dstack([unknown, known]), happens[..., None], out=share, where=happens[..., None] > ROUNDING)
    lowest = Distribution(np.tile(np.concatenate([low[:1], low]), shape), share)
    highest = Distribution(np.tile(np.concatenate([high, high[-1:]]), shape), np.roll(share, -1, axis=2))
    return StepDistribution(lowest, highest, unknown, ended)


def _falls_into(transitions: Transitions, outcome: Outcome, low: float, high: float) -> BoolArray:
    """[batch]: values are float32, so the edges have to be before they are compared."""
    values = outcome.values(transitions)
    below = values <= np.float32(high) if high == outcome.high else values < np.float32(high)
    return np.asarray((values >= np.float32(low)) & below)


def _bin_name(name: str, low: float, high: float, last: bool) -> str:
    ends = ", ".join(np.format_float_positional(edge, trim="-") for edge in (low, high))
    return f"{name} in [{ends}{']' if last else ')'}"


def _bins(names: Sequence[str], name: str) -> tuple[list[int], FloatArray, FloatArray]:
    """The columns of an outcome's bins, and their edges [bin] as their names say."""
    pattern = re.compile(re.escape(name) + r" in \[(\S+), (\S+)[)\]]")
    found = {column: match for column, each in enumerate(names) if (match := pattern.fullmatch(each))}
    if not found:
        raise ValueError(f"there are no bins of {name!r} among {', '.join(names)}")
    edges = np.array([[float(end) for end in match.groups()] for match in found.values()])
    return list(found), edges[:, 0], edges[:, 1]


def _weighed_sum(values: FloatArray, weights: FloatArray) -> FloatArray:
    """[...]: the sum over the last axis, in which what weighs nothing is left out even if infinite."""
    terms = np.zeros(np.broadcast_shapes(values.shape, weights.shape))
    np.multiply(values, weights, out=terms, where=weights != 0)
    return np.asarray(terms.sum(axis=-1))
