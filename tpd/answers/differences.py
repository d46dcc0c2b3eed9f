"""Selects the few outcomes that account for most of the difference between two explanations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import FloatArray

SHARE = 0.8


class Difference(NamedTuple):
    """The difference in one outcome between fact and foil."""

    outcome: str
    gain: float | None
    """Its contribution to the return difference, fact minus foil; None without rewards."""
    fact_count: float
    """Its sum over the horizon after the fact; for an event, the expected count."""
    foil_count: float
    """The same after the foil."""
    begin: int
    end: int
    """Most of the difference falls between the steps `begin` and `end`, both included."""


class Differences:
    """The differences of a whole batch, computed once."""

    def __init__(self, contrast: Contrast) -> None:
        fact, foil = contrast.fact, contrast.foil
        self.rewarded = fact.legend.reward_bound is not None and foil.legend.reward_bound is not None
        columns = fact.legend.components if self.rewarded else _told_apart(fact.legend)
        if self.rewarded:
            self._steps = (_earned(fact) - _earned(foil))[:, :, columns]
        else:
            self._steps = np.abs(contrast.expected[:, :, columns])
        told = contrast.told.terms[:, columns]
        self._steps = np.where(told[:, None], self._steps, 0)
        self._names = [fact.legend.names[column] for column in columns]
        missing = ~(told | fact.endless) & (fact.legend.rewards[columns] != 0)
        self.left_out = [[self._names[i] for i in np.flatnonzero(row)] for row in missing]
        """[batch]: the terms of the reward that are left out because they are not learned"""
        self._known: list[bool] = contrast.known.tolist()
        self._gains: list[list[float]] = self._steps.sum(axis=1).tolist()
        self._fact_counts: list[list[float]] = fact.expected[:, :, columns].sum(axis=1).tolist()
        self._foil_counts: list[list[float]] = foil.expected[:, :, columns].sum(axis=1).tolist()

    def main(self, row: int, share: float = SHARE) -> list[Difference]:
        """The smallest set of outcomes that accounts for a share of the difference of a row: those in favour
        of the fact first, then those against it, largest first.

        The outcomes left out change the return difference by at most 1 - share of it. Without rewards, the
        absolute differences at each step are used instead of gains. Empty if a pair is unknown.
        """
        gains = self._gains[row]
        chosen = sorted(self.gains(row, share), key=lambda name: gains[self._names.index(name)] < 0)
        return [self._difference(row, self._names.index(name), share) for name in chosen]

    def gains(self, row: int, share: float = SHARE) -> dict[str, float]:
        """The same outcomes with their gains, largest first; without their steps, which take longer."""
        if not self._known[row]:
            return {}
        gains = self._gains[row]
        chosen = _largest([abs(gain) for gain in gains], (1 - share) * abs(sum(gains)))
        return {self._names[i]: gains[i] for i in chosen}

    def steps(self, row: int, outcome: str, share: float = SHARE) -> tuple[int, int, bool]:
        """The first and last step of the range in which most of the difference in an outcome falls.

        Also whether larger differences of both signs cancel; the range then has most of both.
        """
        steps = self._steps[row, :, self._names.index(outcome)]
        cancel = bool(np.abs(steps).sum() > 3 * abs(steps.sum()))  # the smaller side exceeds the sum
        return *narrowest((np.abs(steps) if cancel else steps).tolist(), share), cancel

    def _difference(self, row: int, i: int, share: float) -> Difference:
        return Difference(
            self._names[i],
            self._gains[row][i] if self.rewarded else None,
            self._fact_counts[row][i],
            self._foil_counts[row][i],
            *narrowest(self._steps[row, :, i].tolist(), share),
        )


def _earned(explanation: Explanation) -> FloatArray:
    """[batch, horizon, outcome]: the discounted reward of each step; 0 for outcomes without reward."""
    return np.asarray(explanation.expected * explanation.legend.rewards * explanation.discounts[:, None])


def _told_apart(legend: Legend) -> list[int]:
    """The columns of all events, without duplicate first occurrences; all outcomes if there are no events."""
    events = [
        name
        for name in legend.events
        if not (name.startswith(FIRST) and name.removeprefix(FIRST) in legend.events)
    ]
    return [legend.names.index(name) for name in events or legend.names]


def _largest(sizes: Sequence[float], unsaid: float) -> list[int]:
    """The indices of the largest sizes, as few as possible, so that the rest sums to at most `unsaid`."""
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    left = sum(sizes)
    enough = unsaid + 1e-12 * left
    chosen = list[int]()
    for i in order:
        if left <= enough:
            break
        chosen.append(i)
        left -= sizes[i]
    return chosen


def narrowest(steps: Sequence[float], share: float) -> tuple[int, int]:
    """First and last step of the shortest range with this share of the sum; opposite signs do not count."""
    total = sum(steps)
    sign = 1 if total >= 0 else -1
    made = [max(sign * step, 0.0) for step in steps]
    wanted = share * abs(total) * (1 - 1e-9)
    best, begin, held = (0, len(steps) - 1), 0, 0.0
    for end, amount in enumerate(made):
        held += amount
        while begin < end and held - made[begin] >= wanted:
            held -= made[begin]
            begin += 1
        if held >= wanted and end - begin < best[1] - best[0]:
            best = begin, end
    return best
