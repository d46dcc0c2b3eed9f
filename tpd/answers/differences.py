"""The few outcomes that account for most of the difference between two explanations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import FloatArray

SHARE = 0.8


class Difference(NamedTuple):
    """How one outcome differs between the fact and its foil."""

    outcome: str
    gain: float | None
    """What it adds to the return of the fact over that of the foil; None if it says nothing of rewards."""
    fact_count: float
    """Its sum over the horizon after the fact: of an event, how often it is expected to happen."""
    foil_count: float
    """The same after the foil."""
    begin: int
    end: int
    """Most of the difference falls from step `begin` to step `end`, both included."""


class Differences:
    """The differences of a whole batch, worked out once."""

    def __init__(self, contrast: Contrast) -> None:
        fact, foil = contrast.fact, contrast.foil
        self.rewarded = fact.legend.reward_bound is not None and foil.legend.reward_bound is not None
        columns = fact.legend.components if self.rewarded else _told_apart(fact.legend)
        if self.rewarded:
            self._steps = (_earned(fact) - _earned(foil))[:, :, columns]
        else:
            self._steps = np.abs(contrast.expected[:, :, columns])
        told = contrast.told.by[:, -1][:, columns]
        self._steps = np.where(told[:, None], self._steps, 0)
        self.left_out = [not row.all() for row in told]
        """[batch]: whether some of it is not learned, so that nothing is said of it"""
        self._names = [fact.legend.names[column] for column in columns]
        self._known: list[bool] = contrast.known.tolist()
        self._gains: list[list[float]] = self._steps.sum(axis=1).tolist()
        self._fact_counts: list[list[float]] = fact.expected[:, :, columns].sum(axis=1).tolist()
        self._foil_counts: list[list[float]] = foil.expected[:, :, columns].sum(axis=1).tolist()

    def main(self, row: int, share: float = SHARE) -> list[Difference]:
        """The fewest outcomes that account for a share of the difference of a row: those for the fact first,
        then those against it, the larger first.

        What is left unsaid could not move the difference of the returns by more than the rest of it. Where
        the outcomes say nothing of rewards, it is the differences at each step that are accounted for. No
        differences where a pair is unknown.
        """
        gains = self._gains[row]
        chosen = sorted(self.gains(row, share), key=lambda name: gains[self._names.index(name)] < 0)
        return [self._difference(row, self._names.index(name), share) for name in chosen]

    def gains(self, row: int, share: float = SHARE) -> dict[str, float]:
        """The same outcomes with what they add, the larger first; without when, which takes longer."""
        if not self._known[row]:
            return {}
        gains = self._gains[row]
        chosen = _largest([abs(gain) for gain in gains], (1 - share) * abs(sum(gains)))
        return {self._names[i]: gains[i] for i in chosen}

    def steps(self, row: int, outcome: str, share: float = SHARE) -> tuple[int, int]:
        """The first and the last step at which most of the difference in an outcome falls."""
        return narrowest(self._steps[row, :, self._names.index(outcome)].tolist(), share)

    def _difference(self, row: int, i: int, share: float) -> Difference:
        return Difference(
            self._names[i],
            self._gains[row][i] if self.rewarded else None,
            self._fact_counts[row][i],
            self._foil_counts[row][i],
            *narrowest(self._steps[row, :, i].tolist(), share),
        )


def _earned(explanation: Explanation) -> FloatArray:
    """[batch, horizon, outcome]: the discounted reward of each step; 0 for outcomes that carry none."""
    return np.asarray(explanation.expected * explanation.legend.rewards * explanation.discounts[:, None])


def _told_apart(legend: Legend) -> list[int]:
    """The events, each once, or all outcomes where there are no events."""
    events = [
        name
        for name in legend.events
        if not (name.startswith(FIRST) and name.removeprefix(FIRST) in legend.events)
    ]
    return [legend.names.index(name) for name in events or legend.names]


def _largest(sizes: Sequence[float], unsaid: float) -> list[int]:
    """The fewest that leave out no more than `unsaid`, the largest first."""
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
    """The first and the last of the fewest steps in a row that alone make a share of the sum.

    Steps that take away from the sum do not count.
    """
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
