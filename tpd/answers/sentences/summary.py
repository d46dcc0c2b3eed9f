"""What sentences need of an explanation, worked out once for the whole batch."""

import numpy as np

from tpd.answers.sentences.formatting import IMPOSSIBLE
from tpd.answers.sentences.risks import risks
from tpd.answers.sentences.terms import Term, terms
from tpd.core.bands import UNTOLD, Band
from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.intervals import mean_band
from tpd.core.types import Array, BoolArray, FloatArray, IntArray

EARLY, LATE = 0.1, 0.9
"""Quantiles of the time of an event, given that it happens: between them it is said to happen."""


class PairSummaries:
    """The pairs of an explanation, as lists that are quick to read one by one."""

    def __init__(self, explanation: Explanation) -> None:
        legend, horizon = explanation.legend, explanation.horizon
        self.horizon, self.terms = horizon, terms(legend)
        own = [term.column for term in self.terms]
        expected, told = explanation.expected[:, :, own], explanation.told
        weights = np.array([term.weight or 0.0 for term in self.terms])
        discounted = explanation.discount ** np.arange(horizon) @ expected
        self.visits: list[float] = explanation.support.tolist()
        self.worth: list[float] = (discounted @ weights).tolist()
        self.gross: list[float] = np.abs(discounted * weights).sum(axis=1).tolist()
        self.discounted: list[list[float]] = discounted.tolist()
        sums = np.cumsum(expected, axis=1)
        self.count: list[list[float]] = sums[:, -1].tolist()
        self.since: list[list[int]] = _reached(sums, EARLY * sums[:, -1]).tolist()
        self.until: list[list[int]] = _reached(sums, LATE * sums[:, -1]).tolist()
        peak = expected.argmax(axis=1)
        self.peak_step: list[list[int]] = peak.tolist()
        self.peak: list[list[float]] = _taken(expected, peak).tolist()
        self.peak_told: list[list[bool]] = _taken(told.at[:, :, own], peak).tolist()
        self.count_told: list[list[bool]] = told.by[:, -1, own].tolist()
        self.worth_told: list[bool] = told.returns[:, -1].tolist()
        self.end_told: list[bool] = told.ended[:, -1].tolist()
        ending = _ending(explanation)[:, own]
        self.ending: list[list[bool]] = ending.tolist()
        self._occurrences(explanation, ending)
        self.risk: list[list[bool]] = risks(explanation, self.terms, ending).tolist()
        self.counted = explanation.counted
        self.rolled_out = explanation.rollouts is not None
        self.verdicts = _verdicts(explanation)
        self.steps: list[float] = (1 + explanation.running[:, :-1].sum(axis=1)).tolist()
        self.unknown: list[float] = explanation.unknown[:, -1].tolist()
        self.unknown_from: list[int] = (explanation.unknown > TOLERATED).argmax(axis=1).tolist()
        remainder = explanation.remainder
        self.running: list[float] = remainder.running.tolist()
        self.bound: list[float] = remainder.bound.tolist()
        self._what_follows(explanation)

    def _occurrences(self, explanation: Explanation, ending: BoolArray) -> None:
        """Whether and when each event happens for the first time."""
        known, by, band, told = _happened(explanation, self.terms, ending)
        spoken = np.where(known, _spoken(told, by, band), -1)
        at = np.maximum(spoken, 0)
        chance = _taken(by, at)
        self.spoken: list[list[int]] = spoken.tolist()
        self.chance: list[list[float]] = chance.tolist()
        self.chance_told: list[list[bool]] = told[:, -1].tolist()
        self.chance_band: list[list[list[float]]] | None = None
        if band is not None:
            self.chance_band = np.stack([_taken(end, at) for end in band], axis=-1).tolist()
        self.begin: list[list[int]] = _reached(by, EARLY * chance).tolist()
        self.middle: list[list[int]] = _reached(by, 0.5 * chance).tolist()
        self.end: list[list[int]] = _reached(by, LATE * chance).tolist()
        steps = np.diff(by, axis=1, prepend=0)
        steps[np.arange(explanation.horizon)[None, :, None] > at[:, None]] = 0
        mode = steps.argmax(axis=1)
        self.mode: list[list[int]] = mode.tolist()
        share = np.divide(_taken(steps, mode), chance, out=np.zeros_like(chance), where=chance > 0)
        self.mode_share: list[list[float]] = share.tolist()

    def _what_follows(self, explanation: Explanation) -> None:
        """What comes after the horizon, where that is estimated."""
        nothing = np.full(len(explanation), np.nan)
        beyond, band = explanation.beyond, explanation.beyond_band()
        self.beyond: list[float] = (nothing if beyond is None else beyond.mean).tolist()
        self.unended: list[int] = ([0] * len(nothing)) if beyond is None else beyond.unended.tolist()
        self.beyond_band = None if band is None else np.stack(band, axis=-1).tolist()


class PairSummary:
    """One pair, by the name that sentences give it. Lists are of terms."""

    def __init__(self, summaries: PairSummaries, row: int, name: str) -> None:
        self.name = name
        self.horizon = summaries.horizon
        self.terms = summaries.terms
        self.visits = summaries.visits[row]
        self.known = self.visits > 0
        self.worth = summaries.worth[row]
        """The expected return to the horizon."""
        self.gross = summaries.gross[row]
        """The same, with gains and losses of each outcome counted as gains."""
        self.count = summaries.count[row]
        """[term]: summed over the steps; of an event, how often it is expected."""
        self.since = summaries.since[row]
        """[term]: the step by which a tenth of that has happened."""
        self.until = summaries.until[row]
        """[term]: the step by which nine tenths of that have happened."""
        self.discounted = summaries.discounted[row]
        """[term]: the sum with later steps discounted."""
        self.peak = summaries.peak[row]
        """[term]: the most that is expected at one step."""
        self.peak_step = summaries.peak_step[row]
        """[term]: that step."""
        self.peak_told = summaries.peak_told[row]
        """[term]: whether what is expected at that step is learned, or nobody has judged it."""
        self.count_told = summaries.count_told[row]
        """[term]: the same of the sum over all steps."""
        self.spoken = summaries.spoken[row]
        """[term]: the step up to which it is said how likely an event happens; -1 if that is not known.

        It is the one by which the probability reads as at the end, in whole percent.
        """
        self.chance_told = summaries.chance_told[row]
        """[term]: whether the probability that it happens at all is learned, or nobody has judged it."""
        self.chance = summaries.chance[row]
        """[term]: how likely the event has happened by that step."""
        self.chance_band = None if summaries.chance_band is None else summaries.chance_band[row]
        """[term, 2]: where that lies, if there are draws."""
        self.begin = summaries.begin[row]
        """[term]: the early quantile of when it first happens, given that it does."""
        self.middle = summaries.middle[row]
        """[term]: the median of that."""
        self.end = summaries.end[row]
        """[term]: the late quantile."""
        self.mode = summaries.mode[row]
        """[term]: the most likely step."""
        self.mode_share = summaries.mode_share[row]
        """[term]: how likely it is that step, given that it happens."""
        self.risk = summaries.risk[row]
        """[term]: whether it is an event with a large penalty."""
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
        """[term]: whether it happens only as the episode ends, and so not more than once."""
        self.steps = summaries.steps[row]
        """How many steps the episode is expected to take, as far as it is explained."""
        self.running = summaries.running[row]
        """How likely it runs on after the last step explained."""
        self.bound = summaries.bound[row]
        """The largest possible |value| of what is not explained."""
        self.beyond = summaries.beyond[row]
        """The estimated return after the last step explained; NaN if there is no estimate."""
        self.beyond_band = None if summaries.beyond_band is None else summaries.beyond_band[row]
        """[2]: where that lies, if there are draws."""
        self.unended = summaries.unended[row]
        """For how many steps the episode was followed, if it did not end within them; else 0."""
        self.unknown = summaries.unknown[row]
        """How likely it has come to what was never tried by the last step."""
        self.unknown_from = summaries.unknown_from[row]
        """The first step at which that is more than a few percent."""
        self.foreseen = self.unknown <= TOLERATED

    def foresees(self, step: int) -> bool:
        """Whether all that may happen up to a step is known, but for a few percent."""
        return self.foreseen or step < self.unknown_from


def _happened(
    explanation: Explanation, every: tuple[Term, ...], ending: BoolArray
) -> tuple[BoolArray, FloatArray, Band | None, BoolArray]:
    """Whether it is known [batch, term] how likely each event has happened by step h [batch, horizon, term].

    Also its band, and whether it may be told. Known are first occurrences that were explained, events that
    end the episode, which happen but once, and all events that were rolled out.
    """
    events = np.array([term.is_event for term in every])
    asked = np.array([term.first is not None for term in every])
    columns = [term.column if term.first is None else term.first for term in every]
    by = np.cumsum(explanation.expected[:, :, columns], axis=1)
    band, told = None, explanation.told.by[:, :, columns]
    if explanation.banded:
        band = Band(*(end[:, :, columns] for end in explanation.sum_band()))
    counted = events & ~asked
    if explanation.rollouts is not None and counted.any():
        seen = explanation.rollouts[..., [term.column for term in every if counted[term.number]]]
        seen = np.maximum.accumulate(seen, axis=2)
        by[:, :, counted] = seen.mean(axis=0)
        assert band is not None
        for end, found in zip(band, mean_band(seen, np.True_, explanation.certain), strict=True):
            end[:, :, counted] = found
    known = events & (asked | (explanation.rollouts is not None) | ending)
    return known, by, band, told


def _spoken(told: BoolArray, by: FloatArray, band: Band | None) -> IntArray:
    """[batch, term]: the step up to which probabilities [batch, horizon, term] are spoken of; -1 for none.

    Where one is not learned up to its plateau, it is the last step up to which it is. Where the band is too
    wide to say anything at the plateau, it is the next step with a narrower one.
    """
    plateau, horizon = _plateau(by), by.shape[1]
    if band is not None:
        later = np.arange(horizon)[None, :, None] >= plateau[:, None]
        narrow = (band.high - band.low <= UNTOLD) & later
        plateau = np.where(narrow.any(axis=1), narrow.argmax(axis=1), plateau)
    last_told = np.where(told.any(axis=1), horizon - 1 - told[:, ::-1].argmax(axis=1), -1)
    at_end = _taken(told, plateau) & told[:, -1]
    return np.where(at_end, plateau, last_told)


def _taken(values: Array, steps: IntArray) -> Array:
    """[batch, term]: of values [batch, horizon, term] those at the steps [batch, term]."""
    return np.asarray(np.take_along_axis(values, steps[:, None], axis=1)[:, 0])


def _reached(sums: FloatArray, amount: FloatArray) -> IntArray:
    """[batch, term]: the first step at which sums [batch, horizon, term] reach an amount [batch, term]."""
    return np.asarray((sums >= (amount * (1 - 1e-9))[:, None]).argmax(axis=1))


def _verdicts(explanation: Explanation) -> list[list[int]] | None:
    """[batch][outcome]: on sums up to the last step."""
    return None if explanation.verdicts is None else explanation.verdicts.by[:, -1, :-1].tolist()


def _plateau(likely: FloatArray) -> IntArray:
    """[batch, term]: from which step on a growing probability [batch, horizon, term] reads the same."""
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
