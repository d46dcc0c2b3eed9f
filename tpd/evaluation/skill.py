"""Skill: how much better forecasts are than the base rate, and whether that is enough to rely on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.core.verdicts import Verdict

RESAMPLES = 1000
CONSTANT = 1e-12  # of the mean square: less variance than that is rounding of float32
ENOUGH_SKILL, CONFIDENCE = 0.1, 0.99
"""Learned is what has more skill than that, with that confidence."""
ENOUGH_EPISODES = 20
"""With an event, and without it, for its forecasts to be judged."""
CLOSE = 0.05
"""How far a forecast of what is always the same may be off, relative to it."""


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
class Judged:
    """Scores of ranges of steps ahead, and how far they can be relied on."""

    ranges: tuple[str, ...]
    """[range]"""
    scores: Scores
    """[range, outcome]"""
    skill_error: FloatArray
    """[range, outcome]: standard error of the skill, by a bootstrap over episodes"""
    skill_bound: FloatArray
    """[range, outcome]: what the skill exceeds with the confidence asked for, by the same bootstrap"""
    episodes: IntArray
    """[range, outcome]: how many episodes, or blocks of a few, have a window with the event"""
    verdict: IntArray
    """[range, outcome]: numbers of `Verdict`"""


def judge(
    ranges: tuple[str, ...], sums: FloatArray, starts: Sequence[int] | None, events: BoolArray
) -> Judged:
    """From sums [block, 4, horizon, outcome], by the ranges that start there, or by horizon.

    events [outcome]: what happens or not, of which there must be enough episodes with and without it.
    """
    scores, resampled = score(sums.sum(axis=0), starts), _resampled_skill(sums, starts)
    bound = _lower(resampled)
    having, rare = _rarity(sums, starts, events)
    learned = np.where(np.isnan(scores.skill), _right(scores), bound > ENOUGH_SKILL)
    judged = np.where(rare, Verdict.TOO_RARE, np.where(learned, Verdict.LEARNED, Verdict.NOT_LEARNED))
    unanswered = np.isnan(scores.score) & (scores.windows > 0)[:, None]
    return Judged(
        ranges=ranges,
        scores=scores,
        skill_error=np.ma.masked_invalid(resampled).std(axis=0, ddof=1).filled(np.nan),
        skill_bound=bound,
        episodes=having,
        verdict=np.where(unanswered, Verdict.UNANSWERABLE, judged),
    )


def _rarity(sums: FloatArray, starts: Sequence[int] | None, events: BoolArray) -> tuple[IntArray, BoolArray]:
    """[range, outcome] both: blocks with a window in which it happens; whether too few have or lack one."""
    windows, observed = sums[:, 0], sums[:, 1]
    if starts is not None:
        windows, observed = (with_all(part, starts, axis=-2) for part in (windows, observed))
    having, lacking = (observed != 0).sum(axis=0), (observed < windows).sum(axis=0)
    fewer = np.where(events, np.minimum(having, lacking), (windows > 0).sum(axis=0))
    return having, fewer < ENOUGH_EPISODES


def _right(scores: Scores) -> BoolArray:
    """[range, outcome]: whether what is always the same is forecast to be so."""
    return np.asarray(scores.score <= (CLOSE * scores.base_rate) ** 2)


def _lower(skill: FloatArray) -> FloatArray:
    """[...]: what all but a few of the resamples [resample, ...] exceed; NaN where none is known."""
    ordered = np.sort(skill, axis=0)  # NaN last
    known = (~np.isnan(skill)).sum(axis=0)
    rank = np.floor((1 - CONFIDENCE) * np.maximum(known - 1, 0)).astype(np.int64)
    return np.asarray(np.take_along_axis(ordered, rank[None], axis=0)[0])


def score(sums: FloatArray, starts: Sequence[int] | None = None) -> Scores:
    """From sums [..., 4, horizon, outcome], by horizon or by the ranges that start there."""
    windows, observed, squares, errors = np.moveaxis(sums, -3, 0)
    variation = squares - np.nan_to_num(ratio(observed**2, windows))
    variation[variation < CONSTANT * squares] = 0
    if starts is not None:
        windows, observed, errors, variation = (
            with_all(part, starts, axis=-2) for part in (windows, observed, errors, variation)
        )
    return Scores(
        windows=np.rint(windows[..., 0]).astype(np.int64),
        base_rate=ratio(observed, windows),
        score=ratio(errors, windows),
        reference=ratio(variation, windows),
        skill=1 - ratio(errors, variation),
    )


def _resampled_skill(sums: FloatArray, starts: Sequence[int] | None) -> FloatArray:
    """[resample, range, outcome]: windows of one episode are alike, so episodes are drawn again."""
    blocks = len(sums)
    # the same draws each time: the same episodes give the same table
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES).astype(np.float64)
    skill = score(np.tensordot(drawn, sums, axes=1), starts).skill
    return skill if blocks > 1 else np.full(skill.shape, np.nan)  # of one nothing varies


def with_all(values: FloatArray, starts: Sequence[int], axis: int) -> FloatArray:
    """Sums over each range of horizons, and last over all."""
    ranges = np.add.reduceat(values, starts, axis=axis)
    return np.concatenate([ranges, values.sum(axis=axis, keepdims=True)], axis=axis)


def ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    """NaN where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0))
