"""Distributions of real-valued outcomes and returns: quantiles, tail probabilities, CVaR.

A real-valued outcome is cut into bins. Each bin is an event, so every learner of events also learns the
distribution. Two things stay unknown: the position of a value within its bin, and what follows an untried
pair. Nothing is guessed for them: every statistic comes as a lower and an upper bound.
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
"""Probabilities that differ by less count as equal."""
INEXACT = 1e-4
"""Tolerance for probabilities that must sum to 1, which may come from float32."""


@dataclass(frozen=True)
class Distribution:
    """A discrete distribution: values and their probabilities; all NaN where it is undefined."""

    values: FloatArray
    """[..., atom], ascending"""
    probabilities: FloatArray
    """[..., atom], of sum 1"""

    def __post_init__(self) -> None:
        sums = self.probabilities.sum(axis=-1)
        amiss = (np.abs(sums - 1) > INEXACT) | (self.probabilities < -INEXACT).any(axis=-1)
        if amiss.any():
            raise ValueError(
                f"probabilities must be non-negative and sum to 1, got {self.probabilities[amiss][0]}"
            )
        lower, upper = self.values[..., :-1], self.values[..., 1:]
        amiss = ((lower > upper) & ~np.isclose(lower, upper)).any(axis=-1)
        if amiss.any():
            raise ValueError(
                f"the values of a distribution must be in ascending order, got {self.values[amiss][0]}"
            )

    @property
    def mean(self) -> FloatArray:
        """[...]"""
        return _weighed_sum(self.values, self.probabilities)

    def quantile(self, level: float) -> FloatArray:
        """[...]: the smallest value v with P(X <= v) >= level."""
        number("level", level, 0, 1)
        reached = self._cumulative >= level - ROUNDING
        first = np.where(reached.any(axis=-1), reached.argmax(axis=-1), self.values.shape[-1] - 1)
        found = np.take_along_axis(self.values, first[..., None], axis=-1)[..., 0]
        return np.where(np.isnan(self._cumulative[..., -1]), np.nan, found)

    def cvar(self, share: float) -> FloatArray:
        """[...]: the conditional value at risk: the mean of the lowest `share` of the distribution."""
        number("share", share, 0, 1, above_low=True)
        in_tail = np.diff(np.minimum(self._cumulative, share), prepend=0, axis=-1)
        return _weighed_sum(self.values, in_tail) / share

    def below(self, value: float) -> FloatArray:
        """[...]: P(X < value)."""
        return np.asarray(np.sum(self.probabilities * (self.values < value), axis=-1))

    def above(self, value: float) -> FloatArray:
        """[...]: P(X > value)."""
        return np.asarray(np.sum(self.probabilities * (self.values > value), axis=-1))

    @property
    def _cumulative(self) -> FloatArray:
        sums = np.cumsum(self.probabilities, axis=-1)
        return np.asarray(sums / sums[..., -1:])


class Bounds(NamedTuple):
    """A lower and an upper bound of a statistic."""

    low: FloatArray
    """[...]"""
    high: FloatArray
    """[...]"""


@dataclass(frozen=True)
class BoundedDistribution:
    """A distribution that is only known to lie between two others, by stochastic order."""

    lowest: Distribution
    """The lower bound: P(X > v) is smallest for every v."""
    highest: Distribution
    """The upper bound: P(X > v) is largest for every v."""
    unknown: FloatArray
    """[...]: probability of having reached an untried pair"""

    @property
    def mean(self) -> Bounds:
        return Bounds(self.lowest.mean, self.highest.mean)

    def quantile(self, level: float) -> Bounds:
        """The smallest value v with P(X <= v) >= level."""
        return Bounds(self.lowest.quantile(level), self.highest.quantile(level))

    def cvar(self, share: float) -> Bounds:
        """The conditional value at risk: the mean of the lowest `share` of the distribution."""
        return Bounds(self.lowest.cvar(share), self.highest.cvar(share))

    def below(self, value: float) -> Bounds:
        """P(X < value)."""
        return Bounds(self.highest.below(value), self.lowest.below(value))

    def above(self, value: float) -> Bounds:
        """P(X > value)."""
        return Bounds(self.lowest.above(value), self.highest.above(value))


@runtime_checkable
class PredictsReturns(Protocol):
    """A predictor that also predicts the distribution of the return over the horizon."""

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return after each pair; None if it was not set to learn return distributions."""


def with_unknown(values: FloatArray, mass: FloatArray, bound: float) -> BoundedDistribution:
    """[batch]: a distribution over values [batch, atom] with probability mass [batch, atom + 1].

    The last column is unknown mass. It may lie anywhere in [-bound, bound].
    """
    ends = np.full((len(values), 1), bound)
    lowest = Distribution(np.hstack([-ends, values]), np.roll(mass, 1, axis=1))
    return BoundedDistribution(lowest, Distribution(np.hstack([values, ends]), mass), mass[:, -1])


@dataclass(frozen=True)
class StepDistribution(BoundedDistribution):
    """The distribution [batch, horizon] of an outcome at step h, given that the episode reaches step h."""

    ended: FloatArray
    """[batch, horizon]: probability that the episode has terminated before step h"""


def binned(outcome: Outcome, cuts: Sequence[float]) -> list[Outcome]:
    """The outcome as events, one for each bin between its bounds and the cuts. Exactly one happens."""
    edges = [outcome.low, *map(float, cuts), outcome.high]
    if outcome.is_event or not all(low < high for low, high in pairwise(edges)):
        raise OutcomeError(
            f"bins of {outcome.name!r} need a real-valued outcome and ascending cuts between its bounds, "
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
    """A set of outcomes, plus bins for some of them: `bins` maps an outcome's name to its cuts.

    The bins of a single outcome are a partition if the set has no other events.
    """
    by_name = {outcome.name: outcome for outcome in outcomes}
    for name in bins:
        if name not in by_name:
            raise OutcomeError(f"bins: there is no outcome {name!r}; the outcomes are {', '.join(by_name)}")
    events = [bin_ for name, cuts in bins.items() for bin_ in binned(by_name[name], cuts)]
    return OutcomeSet([*outcomes, *events], partition, accounts_for_reward, first)


def distribution(explanation: Explanation, name: str) -> StepDistribution:
    """The distribution of a binned outcome at each step ahead, from the probabilities of its bins.

    Unknown mass may take any value, and its episode may have ended. NaN where the episode has surely ended.
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
    """[batch]: whether the outcome lies in the bin. Edges are cast to float32, as outcome values are."""
    values = outcome.values(transitions)
    below = values <= np.float32(high) if high == outcome.high else values < np.float32(high)
    return np.asarray((values >= np.float32(low)) & below)


def _bin_name(name: str, low: float, high: float, last: bool) -> str:
    ends = ", ".join(np.format_float_positional(edge, trim="-") for edge in (low, high))
    return f"{name} in [{ends}{']' if last else ')'}"


def _bins(names: Sequence[str], name: str) -> tuple[list[int], FloatArray, FloatArray]:
    """The columns of an outcome's bins, and their lower and upper edges [bin], parsed from their names."""
    pattern = re.compile(re.escape(name) + r" in \[(\S+), (\S+)[)\]]")
    found = {column: match for column, each in enumerate(names) if (match := pattern.fullmatch(each))}
    if not found:
        raise ValueError(f"{name!r} has no bins; the outcomes are {', '.join(names)}")
    edges = np.array([[float(end) for end in match.groups()] for match in found.values()])
    return list(found), edges[:, 0], edges[:, 1]


def _weighed_sum(values: FloatArray, weights: FloatArray) -> FloatArray:
    """[...]: the weighted sum over the last axis; terms of weight 0 are skipped even if infinite."""
    terms = np.zeros(np.broadcast_shapes(values.shape, weights.shape))
    np.multiply(values, weights, out=terms, where=weights != 0)
    return np.asarray(terms.sum(axis=-1))
