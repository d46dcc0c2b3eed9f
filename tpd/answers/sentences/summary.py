"""What sentences need of an explanation, worked out once for the whole batch."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tpd.answers.sentences.formatting import IMPOSSIBLE
from tpd.core.bands import UNTOLD, Band
from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import Array, BoolArray, FloatArray, IntArray


class Term(NamedTuple):
    """An outcome as sentences speak of it."""

    name: str
    column: int
    first: int | None
    """The column of its first occurrence, if that is explained."""
    weight: float | None
    is_event: bool
    fills: bool
    """Whether it is an event that is rewarded, or one of those of which one happens at each step."""


@lru_cache
def terms(legend: Legend) -> tuple[Term, ...]:
    """The outcomes, each joined with its first occurrence."""
    columns = {name: column for column, name in enumerate(legend.names)}
    found = []
    for name, column in columns.items():
        plain = name.removeprefix(FIRST) if name in legend.events else name
        if plain == name or plain not in columns:
            first = columns.get(FIRST + name) if plain == name else column
            rewarded = legend.weights[column] is not None
            fills = name in legend.events and (name in legend.partition or rewarded)
            found.append(Term(plain, column, first, legend.weights[column], name in legend.events, fills))
    return tuple(found)


class PairSummaries:
    """The pairs of an explanation, as lists that are quick to read one by one."""

    def __init__(self, explanation: Explanation) -> None:
        expected, legend = explanation.expected, explanation.legend
        discounted = explanation.discount ** np.arange(explanation.horizon) @ expected
        remainder = explanation.remainder
        self.horizon = explanation.horizon
        self.terms = terms(legend)
        self.visits: list[float] = explanation.support.tolist()
        self.worth: list[float] = (discounted @ [weight or 0.0 for weight in legend.weights]).tolist()
        self.discounted: list[list[float]] = discounted.tolist()
        self.count: list[list[float]] = expected.sum(axis=1).tolist()
        self.peak_step: list[list[int]] = expected.argmax(axis=1).tolist()
        self.peak: list[list[float]] = expected.max(axis=1).tolist()
        sums, told = np.cumsum(expected, axis=1), explanation.told
        sum_band = explanation.sum_band() if explanation.banded else None
        spoken = _spoken(explanation, sums, sum_band)
        self.spoken: list[list[int]] = spoken.tolist()
        self.spoken_sum: list[list[float]] = _taken(sums, np.maximum(spoken, 0)).tolist()
        self.peak_told: list[list[bool]] = _taken(told.at, expected.argmax(axis=1)).tolist()
        self.count_told: list[list[bool]] = told.by[:, -1].tolist()
        self.worth_told: list[bool] = told.returns[:, -1].tolist()
        self.end_told: list[bool] = told.ended[:, -1].tolist()
        self.counted = explanation.counted
        self.rolled_out = explanation.rollouts is not None
        self.verdicts = _verdicts(explanation)
        self.ending: list[list[bool]] = _ending(explanation).tolist()
        self.steps: list[float] = (1 + explanation.running[:, :-1].sum(axis=1)).tolist()
        self.unknown: list[float] = explanation.unknown[:, -1].tolist()
        self.unknown_from: list[int] = (explanation.unknown > TOLERATED).argmax(axis=1).tolist()
        self.peak_band, self.count_band = None, None
        if sum_band is not None:
            self.peak_band, self.count_band = _bands(explanation, sums, spoken, sum_band)
        self.running: list[float] = remainder.running.tolist()
        self.bound: list[float] = remainder.bound.tolist()


class PairSummary:
    """One pair, by the name that sentences give it."""

    def __init__(self, summaries: PairSummaries, row: int, name: str) -> None:
        self.name = name
        self.horizon = summaries.horizon
        self.terms = summaries.terms
        self.visits = summaries.visits[row]
        self.known = self.visits > 0
        self.worth = summaries.worth[row]
        """The expected return to the horizon."""
        self.count = summaries.count[row]
        """[outcome]: summed over the steps; of an event, how often it is expected."""
        self.discounted = summaries.discounted[row]
        """[outcome]: the same with later steps discounted."""
        self.peak = summaries.peak[row]
        """[outcome]: the most that is expected at one step."""
        self.peak_step = summaries.peak_step[row]
        """[outcome]: that step."""
        self.peak_band = None if summaries.peak_band is None else summaries.peak_band[row]
        """[outcome]: where the expectation at that step lies, if there are draws."""
        self.count_band = None if summaries.count_band is None else summaries.count_band[row]
        """[outcome]: where the sum lies, of a first occurrence by its plateau, if there are draws."""
        self.peak_told = summaries.peak_told[row]
        """[outcome]: whether what is expected at that step is learned, or nobody has judged it."""
        self.count_told = summaries.count_told[row]
        """[outcome]: the same of the sum over all steps."""
        self.spoken = summaries.spoken[row]
        """[outcome]: the step up to which the sum is spoken of; -1 where it is not learned up to any.

        Of a first occurrence it is the one by which the sum reads as at the end, in whole percent.
        """
        self.spoken_sum = summaries.spoken_sum[row]
        """[outcome]: the sum up to that step."""
        self.worth_told = summaries.worth_told[row]
        """Whether the return is learned, or nobody has judged it."""
        self.end_told = summaries.end_told[row]
        """The same of the end of the episode."""
        self.counted = summaries.counted
        """Whether there are visits of this pair to speak of."""
        self.rolled_out = summaries.rolled_out
        """Whether it was asked of the simulator."""
        self.verdict = None if summaries.verdicts is None else summaries.verdicts[row]
        """[outcome]: the verdict on the sum at the end, as a number; None if there is none."""
        self.ending = summaries.ending[row]
        """[outcome]: whether it happens only as the episode ends, and so not more than once."""
        self.steps = summaries.steps[row]
        """How many steps the episode is expected to take, as far as it is explained."""
        self.running = summaries.running[row]
        """How likely it runs on after the last step explained."""
        self.bound = summaries.bound[row]
        """The largest possible |value| of what is not explained."""
        self.unknown = summaries.unknown[row]
        """How likely it has come to what was never tried by the last step."""
        self.unknown_from = summaries.unknown_from[row]
        """The first step at which that is more than a few percent."""
        self.foreseen = self.unknown <= TOLERATED

    def foresees(self, step: int) -> bool:
        """Whether all that may happen up to a step is known, but for a few percent."""
        return self.foreseen or step < self.unknown_from


Ends = list[list[list[float]]]
"""[batch, outcome, 2]: the low and the high end of bands."""


def _bands(explanation: Explanation, sums: FloatArray, spoken: IntArray, sum_band: Band) -> tuple[Ends, Ends]:
    """Of the largest expectation of each outcome at one step, and of its sum by the step spoken of.

    That is the plateau of a first occurrence, and the last step foreseen for all others; NaN where the sum
    reaches its plateau only later.
    """
    firsts = np.array([name.startswith(FIRST) for name in explanation.legend.names])
    last = np.maximum(explanation.foreseen.sum(axis=1) - 1, 0)[:, None]
    spoken = np.where(firsts, spoken, np.maximum(_plateau(sums), last))
    at = explanation.expected.argmax(axis=1), np.maximum(spoken, 0)
    peaks, counts = (
        np.stack([_taken(end, steps) for end in band], axis=-1).tolist()
        for band, steps in zip((explanation.band(), sum_band), at, strict=True)
    )
    return peaks, counts


def _spoken(explanation: Explanation, sums: FloatArray, band: Band | None) -> IntArray:
    """[batch, outcome]: the step by which sums [batch, horizon, outcome] are spoken of; -1 for none.

    Where the sum is not learned up to its plateau, it is the last step up to which it is. Where the band is
    too wide to say anything at the plateau, it is the next step with a narrower one.
    """
    told, plateau, horizon = explanation.told.by, _plateau(sums), explanation.horizon
    if band is not None:
        later = np.arange(horizon)[None, :, None] >= plateau[:, None]
        narrow = (band.high - band.low <= UNTOLD) & later
        plateau = np.where(narrow.any(axis=1), narrow.argmax(axis=1), plateau)
    last_told = np.where(told.any(axis=1), horizon - 1 - told[:, ::-1].argmax(axis=1), -1)
    at_end = _taken(told, plateau) & told[:, -1]
    return np.where(at_end, plateau, last_told)


def _taken(values: Array, steps: IntArray) -> Array:
    """[batch, outcome]: of values [batch, horizon, outcome] those at the steps [batch, outcome]."""
    return np.asarray(np.take_along_axis(values, steps[:, None], axis=1)[:, 0])


def _verdicts(explanation: Explanation) -> list[list[int]] | None:
    """[batch][outcome]: on sums up to the last step."""
    return None if explanation.verdicts is None else explanation.verdicts.by[:, -1, :-1].tolist()


def _plateau(likely: FloatArray) -> IntArray:
    """[batch, outcome]: from which step on a growing probability [batch, horizon, outcome] reads the same."""
    read = np.round(100 * likely)
    read = np.where((likely > IMPOSSIBLE) & (likely < 0.01), 0.5, np.where(likely > 0.99, 99.5, read))
    read = np.where(likely >= 1 - IMPOSSIBLE, 100, read)
    return np.asarray((read == read[:, -1:]).argmax(axis=1))


def _ending(explanation: Explanation) -> BoolArray:
    """[batch, outcome]: whether its steps leave no doubt but a few percent that the episode ends with it."""
    ended = 1 - explanation.running - explanation.unknown
    endings = np.diff(ended, axis=1, prepend=0)[:, :, None]
    excess = np.maximum(explanation.expected - endings, 0).sum(axis=1)
    return np.asarray(excess <= TOLERATED * explanation.expected.sum(axis=1))
