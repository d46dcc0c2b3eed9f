"""Forecasts against what really happened, in fresh episodes of the policy.

A window is a step of an episode together with a number of steps ahead: one forecast, one observation.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import BoolArray, Episodes, FloatArray, IntArray, Transitions
from tpd.predictors.explainer import Explainer

TERMINATED = "terminated"
ALL = "all"
BINS = 10
CELLS = 2_000_000  # predictions held at once
BLOCKS = 500  # resampled instead of single episodes where there are more
RESAMPLES = 200
CONSTANT = 1e-12  # of the mean square: less variance than that is rounding of float32


@dataclass(frozen=True)
class Scores:
    """How good the forecasts are, for a row of horizons or of ranges of them."""

    windows: IntArray
    """[row]"""
    base_rate: FloatArray
    """[row, outcome]: mean of what was observed"""
    score: FloatArray
    """[row, outcome]: mean of (forecast - observed)², the Brier score of events"""
    reference: FloatArray
    """[row, outcome]: the same for forecasts of the base rate at each horizon"""
    skill: FloatArray
    """[row, outcome]: 1 - score / reference; NaN where what happens is always the same"""


@dataclass(frozen=True)
class Reliability:
    """How often events happened that were forecast with much the same probability.

    Forecasts fall into bins of equal width, those outside of [0, 1] into the outermost.
    """

    windows: IntArray
    """[..., bin]; 0 for outcomes that are no events"""
    forecast: FloatArray
    """[..., bin]: mean forecast; NaN where there are no windows"""
    frequency: FloatArray
    """[..., bin]: share of windows in which the event happened"""


@dataclass(frozen=True)
class ForecastSkill:
    """What came of the forecasts, by outcome and by how far ahead they look."""

    names: tuple[str, ...]
    """[outcome]"""
    is_event: tuple[bool, ...]
    """[outcome]"""
    ranges: tuple[str, ...]
    """[range]: the steps ahead, as "5-14"; the last one is all of them"""
    by_horizon: Scores
    """[horizon, outcome]"""
    by_range: Scores
    """[range, outcome]"""
    skill_error: FloatArray
    """[range, outcome]: standard error of the skill, by a bootstrap over episodes"""
    bins: Reliability
    """[range, outcome, bin]"""
    unknown: float
    """Share of steps whose pair has no support; they are left out."""

    def metrics(self) -> dict[str, float]:
        """Flat names and values: `<event>/brier` and `<event>/skill` over all horizons, and so on."""
        table = dict[str, float]()
        for k, (name, is_event) in enumerate(zip(self.names, self.is_event, strict=True)):
            table[f"{name}/{'brier' if is_event else 'score'}"] = float(self.by_range.score[-1, k])
            table[f"{name}/skill"] = float(self.by_range.skill[-1, k])
        overall = {
            "windows": float(self.by_range.windows[-1]),
            "unknown": self.unknown,
            "skill": self.mean_skill,
        }
        return table | {f"forecasts/{name}": value for name, value in overall.items()}

    @property
    def mean_skill(self) -> float:
        """Over all horizons, and over the outcomes of which something can be known; NaN if there are none."""
        known = self.by_range.skill[-1][~np.isnan(self.by_range.skill[-1])]
        return float(known.mean()) if len(known) else float("nan")

    def frame(self) -> pd.DataFrame:
        """A row for each outcome and range."""
        shape = (len(self.names), len(self.ranges))
        columns = {
            "outcome": np.repeat(self.names, shape[1]),
            "range": np.tile(self.ranges, shape[0]),
            "base_rate": self.by_range.base_rate.T.ravel(),
            "score": self.by_range.score.T.ravel(),
            "reference": self.by_range.reference.T.ravel(),
            "skill": self.by_range.skill.T.ravel(),
            "skill_error": self.skill_error.T.ravel(),
            "windows": np.tile(self.by_range.windows, shape[0]),
        }
        return pd.DataFrame(columns)

    def reliability(self, name: str, steps: str = ALL) -> Reliability:
        """[bin]: how far one event happened as often as forecast."""
        b, k = self.ranges.index(steps), self.names.index(name)
        return Reliability(self.bins.windows[b, k], self.bins.forecast[b, k], self.bins.frequency[b, k])


def forecast_skill(explainer: Explainer, outcomes: OutcomeSet, episodes: Episodes) -> ForecastSkill:
    """Compare what is expected of every pair met with what then happened.

    After a termination nothing happens any more, which is an observation too. After an episode was
    cut nobody knows, so those windows are left out, and so is every window that a time limit would
    have cut had the episode not terminated before: to keep only those that did would be a choice by
    what happened.
    """
    if explainer.legend.names != outcomes.legend.names:
        raise ValueError(
            f"the explainer forecasts {explainer.legend.names}, the outcomes are {outcomes.legend.names}"
        )
    names, is_event = [o.name for o in outcomes.outcomes], [o.is_event for o in outcomes.outcomes]
    if TERMINATED not in names:
        names.append(TERMINATED)
        is_event.append(True)
    predictor, course = explainer.predictor, _Course(outcomes, episodes)
    tally = _Tally(len(episodes), predictor.horizon, np.array(is_event))
    known_steps = 0
    for steps in course.portions(max(1, CELLS // (predictor.horizon * outcomes.width))):
        pairs = episodes.transitions[steps]
        known = np.asarray(predictor.support(pairs.observation, pairs.action) > 0)
        known_steps += int(known.sum())
        if known.any():
            forecast = predictor.predict(pairs.observation[known], pairs.action[known])
            _check_finite(forecast, pairs[known])
            tally.add(course, steps[known], forecast[:, :, : len(names)])
    ranges = step_ranges(predictor.horizon)
    starts = [steps.start for steps in ranges]
    sums = tally.sums.sum(axis=0)
    return ForecastSkill(
        names=tuple(names),
        is_event=tuple(is_event),
        ranges=(*(f"{steps[0]}-{steps[-1]}" if len(steps) > 1 else f"{steps[0]}" for steps in ranges), ALL),
        by_horizon=_scores(sums),
        by_range=_scores(sums, starts),
        skill_error=_skill_error(tally.sums, starts),
        bins=_reliability(tally.bins, starts),
        unknown=1 - known_steps / len(episodes.transitions),
    )


def step_ranges(horizon: int) -> list[range]:
    """The first step, then a sixth, a third and a half of all steps: 0, 1-4, 5-14, 15-29 of 30."""
    cuts = sorted({0, 1, max(1, horizon // 6), max(1, horizon // 2), horizon})
    return [range(start, stop) for start, stop in pairwise(cuts)]


class _Course:
    """What happened in the episodes, to be looked at from any step on."""

    def __init__(self, outcomes: OutcomeSet, episodes: Episodes) -> None:
        transitions, begins = episodes.transitions, episodes.begins
        ends = np.append(begins[1:], len(transitions))
        lengths = ends - begins
        if len(begins) == 0 or begins[0] != 0 or (lengths <= 0).any():
            raise ValueError(f"episodes must begin at 0 and have one step or more, they begin at {begins}")
        over = transitions.terminated | transitions.truncated
        over[ends - 1] = False
        if over.any():
            raise ValueError(f"an episode goes on after it ended, at step {np.argmax(over)} of all")
        self.outcome, self.continuation = outcomes.observe(transitions)
        self.episode = np.repeat(np.arange(len(begins)), lengths)
        self._end = ends[self.episode]
        self._terminates = transitions.terminated[ends - 1][self.episode]
        # a time limit is seen where the longest episodes were truncated; windows within it are
        # complete, whatever happens in them
        longest = lengths.max()
        limited = transitions.truncated[ends[lengths == longest] - 1].any()
        self._limit = begins[self.episode] + longest if limited else np.full(len(over), np.iinfo(int).max)

    def portions(self, size: int) -> Iterator[IntArray]:
        """All steps, so many at a time."""
        for start in range(0, len(self.episode), size):
            yield np.arange(start, min(start + size, len(self.episode)))

    def ahead(self, steps: IntArray, horizon: int) -> Iterator[tuple[FloatArray, BoolArray]]:
        """What happened 0, 1, ... after the steps [step, outcome], and whether that is known [step]."""
        going_on = np.ones((len(steps), self.outcome.shape[1]), np.float32)
        for h in range(horizon):
            later = steps + h
            known = ((later < self._end[steps]) | self._terminates[steps]) & (later < self._limit[steps])
            # where the episode is over, going_on is 0 or the window unknown: any row will do
            later = np.minimum(later, len(self.outcome) - 1)
            yield going_on * self.outcome[later], known
            going_on *= self.continuation[later]


class _Tally:
    """Sums over windows, as they come in.

    sums: [block, 4, horizon, outcome], of windows, observed, observed² and (forecast - observed)²;
    a block is an episode, or a few.
    bins: [3, horizon, outcome, bin], of windows, forecasts and observed events.
    """

    def __init__(self, episodes: int, horizon: int, is_event: BoolArray) -> None:
        blocks = min(episodes, BLOCKS)
        self._block = np.arange(episodes) * blocks // episodes
        self._events = np.flatnonzero(is_event)
        self.sums = np.zeros((blocks, 4, horizon, len(is_event)))
        self.bins = np.zeros((3, horizon, len(is_event), BINS))

    def add(self, course: _Course, steps: IntArray, forecast: FloatArray) -> None:
        """Take in forecasts [step, horizon, outcome]."""
        horizon, width = forecast.shape[1:]
        blocks = self._block[course.episode[steps]]
        firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
        for h, (observed, known) in enumerate(course.ahead(steps, horizon)):
            observed = observed[:, :width].astype(np.float64)
            errors = (forecast[:, h] - observed) ** 2
            terms = np.stack([np.ones_like(observed), observed, observed**2, errors], axis=1)
            terms[~known] = 0
            self.sums[blocks[firsts], :, h] += np.add.reduceat(terms, firsts)
            self._add_to_bins(h, forecast[known, h][:, self._events], observed[known][:, self._events])

    def _add_to_bins(self, h: int, forecast: FloatArray, observed: FloatArray) -> None:
        number = np.clip((forecast * BINS).astype(int), 0, BINS - 1) + BINS * np.arange(len(self._events))
        for part, weights in enumerate((None, forecast, observed)):
            size = BINS * len(self._events)
            sums = np.bincount(number.ravel(), None if weights is None else weights.ravel(), size)
            self.bins[part, h, self._events] += sums.reshape(-1, BINS)


def _check_finite(forecast: FloatArray, pairs: Transitions) -> None:
    wrong = ~np.isfinite(forecast).all(axis=(1, 2))
    if wrong.any():
        pair = pairs.describe(int(np.argmax(wrong)))
        raise ValueError(f"a forecast with support must be finite, but is not at {pair}")


def _scores(sums: FloatArray, starts: Sequence[int] | None = None) -> Scores:
    """From sums [..., 4, horizon, outcome], by horizon or by the ranges that start there."""
    windows, observed, squares, errors = np.moveaxis(sums, -3, 0)
    variation = squares - np.nan_to_num(_ratio(observed**2, windows))
    variation[variation < CONSTANT * squares] = 0
    if starts is not None:
        windows, observed, errors, variation = (
            _with_all(part, starts, axis=-2) for part in (windows, observed, errors, variation)
        )
    return Scores(
        windows=windows[..., 0].astype(np.int64),
        base_rate=_ratio(observed, windows),
        score=_ratio(errors, windows),
        reference=_ratio(variation, windows),
        skill=1 - _ratio(errors, variation),
    )


def _skill_error(sums: FloatArray, starts: Sequence[int]) -> FloatArray:
    """[range, outcome]: windows of one episode are alike, so it is episodes that are drawn again."""
    blocks = len(sums)
    # the same draws each time: the same episodes give the same table
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES).astype(np.float64)
    skill = _scores(np.tensordot(drawn, sums, axes=1), starts).skill
    if blocks == 1:
        return np.full(skill.shape[1:], np.nan)
    return np.asarray(np.ma.masked_invalid(skill).std(axis=0, ddof=1).filled(np.nan))


def _reliability(bins: FloatArray, starts: Sequence[int]) -> Reliability:
    windows, forecast, observed = (_with_all(part, starts, axis=0) for part in bins)
    return Reliability(windows.astype(np.int64), _ratio(forecast, windows), _ratio(observed, windows))


def _with_all(values: FloatArray, starts: Sequence[int], axis: int) -> FloatArray:
    """Sums over each range of horizons, and last over all."""
    ranges = np.add.reduceat(values, starts, axis=axis)
    return np.concatenate([ranges, values.sum(axis=axis, keepdims=True)], axis=axis)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """NaN where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0))
