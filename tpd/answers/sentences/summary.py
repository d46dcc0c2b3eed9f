"""The numbers that sentences need, computed from an explanation once for the whole batch."""

import numpy as np

from tpd.answers.sentences.formatting import CERTAIN, IMPOSSIBLE
from tpd.answers.sentences.terms import Term, terms
from tpd.core.bands import UNTOLD, Band
from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.intervals import mean_band
from tpd.core.types import Array, BoolArray, FloatArray, IntArray

EARLY, LATE = 0.1, 0.9
"""Quantiles of the time of an event, given that it happens; sentences report the range between them."""
DECISIVE = 5.0
"""An ending is a risk if its reward is lower than that of other steps by this many times their mean size."""


class PairSummaries:
    """The numbers of all pairs of an explanation, as lists; `PairSummary` describes each field."""

    def __init__(self, explanation: Explanation) -> None:
        legend, horizon = explanation.legend, explanation.horizon
        self.horizon, self.terms = horizon, terms(legend)
        own = [term.column for term in self.terms]
        expected, told = explanation.expected[:, :, own], explanation.told
        weights, discounted = legend.rewards[own], explanation.discounts @ expected
        self.visits: list[float] = explanation.support.tolist()
        self.worth: list[float] = (discounted @ weights).tolist()
        self.gross: list[float] = np.abs(discounted * weights).sum(axis=1).tolist()
        self.discounted: list[list[float]] = discounted.tolist()
        sums = np.cumsum(expected, axis=1)
        self.count: list[list[float]] = sums[:, -1].tolist()
        certain = (expected >= CERTAIN) & np.array([term.is_event for term in self.terms])
        steps = np.arange(horizon)[:, None]
        first, last = np.where(certain, steps, horizon).min(axis=1), np.where(certain, steps, -1).max(axis=1)
        self.since: list[list[int]] = np.minimum(_reached(sums, EARLY * sums[:, -1]), first).tolist()
        self.until: list[list[int]] = np.maximum(_reached(sums, LATE * sums[:, -1]), last).tolist()
        self.exact: list[list[bool]] = (certain | (expected <= IMPOSSIBLE)).all(axis=1).tolist()
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
        self.risk: list[list[bool]] = _risks(explanation, self.terms, ending).tolist()
        self.counted = explanation.counted
        self.rolled_out = explanation.rollouts is not None
        verdicts = explanation.verdicts
        self.verdicts = None if verdicts is None else verdicts.by[:, -1, :-1].tolist()
        self.endless = explanation.endless
        self.terms_told: list[list[bool]] = told.terms[:, own].tolist()
        self.rewarded = legend.reward_bound is not None
        self.stepwise: list[bool] = np.asarray(told.returns.all(axis=1)).tolist()
        self.rewards: list[list[float]] = (explanation.discounts * (expected @ weights)).tolist()
        self.steps: list[float] = (1 + explanation.running[:, :-1].sum(axis=1)).tolist()
        self.unknown: list[float] = explanation.unknown[:, -1].tolist()
        self.unknown_from: list[int] = (explanation.unknown > TOLERATED).argmax(axis=1).tolist()
        remainder = explanation.remainder
        self.running: list[float] = remainder.running.tolist()
        self.bound: list[float] = remainder.bound.tolist()
        self._what_follows(explanation)

    def _occurrences(self, explanation: Explanation, ending: BoolArray) -> None:
        """Probability and time of each event's first occurrence."""
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
        """The return after the horizon, if it is estimated."""
        nothing = np.full(len(explanation), np.nan)
        beyond, band = explanation.beyond, explanation.beyond_band()
        self.beyond: list[float] = (nothing if beyond is None else beyond.mean).tolist()
        self.unended: list[int] = ([0] * len(nothing)) if beyond is None else beyond.unended.tolist()
        self.beyond_band = None if band is None else np.stack(band, axis=-1).tolist()


class PairSummary:
    """The numbers of one pair, with its name in sentences. Lists are indexed by term."""

    def __init__(self, summaries: PairSummaries, row: int, name: str) -> None:
        self.name = name
        self.horizon = summaries.horizon
        self.terms = summaries.terms
        self.visits = summaries.visits[row]
        self.known = self.visits > 0
        self.worth = summaries.worth[row]
        """The expected return to the horizon."""
        self.gross = summaries.gross[row]
        """The sum of the |contributions| of all outcomes to the return."""
        self.count = summaries.count[row]
        """[term]: sum over the horizon; for an event, the expected count."""
        self.since = summaries.since[row]
        """[term]: the step by which 10 % of that sum is reached, or the event's first certain step."""
        self.until = summaries.until[row]
        """[term]: the step by which 90 % of that sum is reached, or the event's last certain step."""
        self.exact = summaries.exact[row]
        """[term]: whether the event is certain or impossible at every step."""
        self.discounted = summaries.discounted[row]
        """[term]: the discounted sum."""
        self.peak = summaries.peak[row]
        """[term]: the largest expected value at one step."""
        self.peak_step = summaries.peak_step[row]
        """[term]: the step of the peak."""
        self.peak_told = summaries.peak_told[row]
        """[term]: whether the value at the peak may be reported (learned or not judged)."""
        self.count_told = summaries.count_told[row]
        """[term]: whether the sum may be reported."""
        self.spoken = summaries.spoken[row]
        """[term]: the step that the reported probability refers to ("by step h"); -1 if unknown.

        It is the first step at which the probability, in whole percent, equals that at the horizon.
        """
        self.chance_told = summaries.chance_told[row]
        """[term]: whether the probability within the horizon may be reported."""
        self.chance = summaries.chance[row]
        """[term]: probability that the event has happened by step `spoken`."""
        self.chance_band = None if summaries.chance_band is None else summaries.chance_band[row]
        """[term, 2]: its band, if there are bands."""
        self.begin = summaries.begin[row]
        """[term]: the `EARLY` quantile of the first occurrence's step, given that it happens."""
        self.middle = summaries.middle[row]
        """[term]: the median of the first occurrence's step."""
        self.end = summaries.end[row]
        """[term]: the `LATE` quantile."""
        self.mode = summaries.mode[row]
        """[term]: the most likely step."""
        self.mode_share = summaries.mode_share[row]
        """[term]: probability of that step, given that the event happens."""
        self.risk = summaries.risk[row]
        """[term]: whether it is an event with a large penalty."""
        self.worth_told = summaries.worth_told[row]
        """Whether the return may be reported (learned or not judged)."""
        self.end_told = summaries.end_told[row]
        """Whether the probability of termination may be reported."""
        self.counted = summaries.counted
        """Whether visits of this pair were counted."""
        self.rolled_out = summaries.rolled_out
        """Whether the numbers come from rollouts."""
        self.verdict = None if summaries.verdicts is None else summaries.verdicts[row]
        """[outcome]: the verdict on the sum over the horizon, as a number; None without verdicts."""
        self.endless = summaries.endless
        """Whether returns are over an infinite horizon, and outcomes have no values at single steps."""
        self.rewarded = summaries.rewarded
        """Whether the outcomes account for the reward."""
        self.terms_told = summaries.terms_told[row]
        """[term]: whether its contribution to the return may be reported."""
        self.rewards = summaries.rewards[row] if summaries.stepwise[row] else None
        """[horizon]: the discounted reward of each step; None where it may not be reported at every step."""
        self.ending = summaries.ending[row]
        """[term]: whether it happens only at the end of the episode, and so at most once."""
        self.steps = summaries.steps[row]
        """The expected number of steps of the episode within the horizon."""
        self.running = summaries.running[row]
        """Probability that the episode still runs after the horizon."""
        self.bound = summaries.bound[row]
        """The largest possible |return| of the unexplained part."""
        self.beyond = summaries.beyond[row]
        """The estimated return after the horizon; NaN without an estimate."""
        self.beyond_band = None if summaries.beyond_band is None else summaries.beyond_band[row]
        """[2]: its band, if there are samples of it."""
        self.unended = summaries.unended[row]
        """The number of steps after which a rollout was cut off before the episode ended; else 0."""
        self.unknown = summaries.unknown[row]
        """Probability of having reached an untried pair by the last step."""
        self.unknown_from = summaries.unknown_from[row]
        """The first step at which that probability exceeds `TOLERATED`."""
        self.foreseen = self.unknown <= TOLERATED

    def foresees(self, step: int) -> bool:
        """Whether the future up to a step is known, except for `TOLERATED` probability."""
        return self.foreseen or step < self.unknown_from


def _happened(
    explanation: Explanation, every: tuple[Term, ...], ending: BoolArray
) -> tuple[BoolArray, FloatArray, Band | None, BoolArray]:
    """P(event by step h) [batch, horizon, term], and whether it is known [batch, term].

    Also returns its band, and whether it may be reported. It is known for explained first occurrences, for
    events that end the episode (they happen at most once), and for all events in rollouts.
    """
    events = np.array([term.is_event for term in every])
    asked = np.array([term.first is not None for term in every])
    columns = [term.column if term.first is None else term.first for term in every]
    by = np.cumsum(explanation.expected[:, :, columns], axis=1)
    band, told = None, explanation.told.by[:, :, columns]
    if explanation.banded:
        band = explanation.sum_band(columns=columns)
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
    """[batch, term]: the step at which probabilities [batch, horizon, term] are reported; -1 for none.

    It is the step at which the probability reaches its plateau. If that is not learned, it is the last
    learned step. If the band at the plateau is too wide, it is the next step with a narrower band.
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
    """[batch, term]: values [batch, horizon, term] at the steps [batch, term]."""
    return np.asarray(np.take_along_axis(values, steps[:, None], axis=1)[:, 0])


def _reached(sums: FloatArray, amount: FloatArray) -> IntArray:
    """[batch, term]: the first step at which sums [batch, horizon, term] reach an amount [batch, term]."""
    return np.asarray((sums >= (amount * (1 - 1e-9))[:, None]).argmax(axis=1))


def _plateau(likely: FloatArray) -> IntArray:
    """[batch, term]: the first step at which probabilities [batch, horizon, term] read as the final one.

    `percent` prints one decimal below 1 %, "< 0.1 %" and "> 99 %".
    """
    read = np.round(100 * likely)
    small = np.where(likely < 0.001, 0.05, np.round(1000 * likely) / 10)
    read = np.where((likely > IMPOSSIBLE) & (likely < 0.01), small, np.where(likely > 0.99, 99.5, read))
    read = np.where(likely >= 1 - IMPOSSIBLE, 100, read)
    return np.asarray((read == read[:, -1:]).argmax(axis=1))


def _ending(explanation: Explanation) -> BoolArray:
    """[batch, outcome]: whether it happens only with termination, except for `TOLERATED` of its count."""
    ended = 1 - explanation.running - explanation.unknown
    endings = np.diff(ended, axis=1, prepend=0)[:, :, None]
    excess = np.maximum(explanation.expected - endings, 0).sum(axis=1)
    return np.asarray(excess <= TOLERATED * explanation.expected.sum(axis=1))


def _risks(explanation: Explanation, every: tuple[Term, ...], ending: BoolArray) -> BoolArray:
    """[batch, term]: which events have a large penalty, by their own reward or by the rewards in rollouts.

    The latter applies to events that end the episode and whose reward belongs to another outcome.
    """
    risky = np.tile([term.risky for term in every], (len(explanation), 1))
    free = [term for term in every if term.is_event and term.weight is None]
    rollouts = explanation.rollouts
    if rollouts is None or not free or explanation.legend.reward_bound is None:
        return risky
    rewards = rollouts @ explanation.legend.rewards
    for term in free:
        happens = rollouts[..., term.column] > 0
        before = happens.any(axis=2, keepdims=True) & (np.cumsum(happens, axis=2) == 0)
        then, _ = _mean_where(happens, rewards)
        other, size = _mean_where(before, rewards)
        risky[:, term.number] = ending[:, term.number] & (then - other < -DECISIVE * size)
    return risky


def _mean_where(chosen: BoolArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[batch]: the mean of chosen values [rollout, batch, step] and of their sizes; NaN if none is chosen."""
    with np.errstate(invalid="ignore"):
        count = chosen.sum(axis=(0, 2))
        return tuple(np.where(chosen, each, 0).sum(axis=(0, 2)) / count for each in (values, np.abs(values)))
