"""Brier skill of forecasts against the base rate, its bootstrap confidence, and the resulting verdicts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, IntArray
from tpd.core.verdicts import Verdict

RESAMPLES = 1000
CONSTANT = 1e-12  # of the mean square; less variance than this is float32 rounding
ENOUGH_SKILL, CONFIDENCE = 0.1, 0.99
"""A forecast is learned if its skill exceeds this with this confidence."""
ENOUGH_EPISODES = 20
"""Minimum number of episodes with the event, and without it, to judge its forecasts."""
CLOSE = 0.05
"""Maximum relative error of a learned forecast of a constant outcome."""


@dataclass(frozen=True)
class Scores:
    """Scores of forecasts; a row is a step ahead, or a range of steps."""

    windows: IntArray
    """[row]"""
    base_rate: FloatArray
    """[row, outcome]: mean observed outcome"""
    score: FloatArray
    """[row, outcome]: mean of (forecast - observed)², the Brier score of events"""
    reference: FloatArray
    """[row, outcome]: the score of a forecast of the base rate at each step"""
    skill: FloatArray
    """[row, outcome]: 1 - score / reference; NaN if the outcome is constant"""


@dataclass(frozen=True)
class Judged:
    """Scores by range of steps ahead, with bootstrap errors and verdicts."""

    ranges: tuple[str, ...]
    """[range]"""
    scores: Scores
    """[range, outcome]"""
    skill_error: FloatArray
    """[range, outcome]: standard error of the skill, by a bootstrap over episodes"""
    skill_bound: FloatArray
    """[range, outcome]: lower confidence bound of the skill (level `CONFIDENCE`), by the same bootstrap"""
    episodes: IntArray
    """[range, outcome]: number of episodes, or blocks of a few, that have a window with the event"""
    verdict: IntArray
    """[range, outcome]: integer values of `Verdict`"""


def judge(
    ranges: tuple[str, ...], sums: FloatArray, starts: Sequence[int] | None, events: BoolArray
) -> Judged:
    """Judge sums [block, 4, horizon, outcome], by ranges with these first steps, or by single steps.

    events [outcome]: which outcomes are events, so that enough episodes with and without them are needed.
    """
    scores, resampled = score(sums.sum(axis=0), starts), _resampled_skill(sums, starts)
    bound = _lower(resampled)
    having, rare = _rarity(sums, starts, events)
    right = scores.score <= (CLOSE * scores.base_rate) ** 2  # for constant outcomes, which have no skill
    learned = np.where(np.isnan(scores.skill), right, bound > ENOUGH_SKILL)
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
    """[range, outcome] both: number of blocks with the event; whether too few blocks have it or lack it."""
    windows, observed = sums[:, 0], sums[:, 1]
    if starts is not None:
        windows, observed = (with_all(part, starts, axis=-2) for part in (windows, observed))
    having, lacking = (observed != 0).sum(axis=0), (observed < windows).sum(axis=0)
    fewer = np.where(events, np.minimum(having, lacking), (windows > 0).sum(axis=0))
    return having, fewer < ENOUGH_EPISODES


def _lower(skill: FloatArray) -> FloatArray:
    """[...]: the lower confidence bound over resamples [resample, ...]; NaN if all are NaN."""
    ordered = np.sort(skill, axis=0)  # NaN last
    known = (~np.isnan(skill)).sum(axis=0)
    rank = np.floor((1 - CONFIDENCE) * np.maximum(known - 1, 0)).astype(np.int64)
    return np.asarray(np.take_along_axis(ordered, rank[None], axis=0)[0])


def score(sums: FloatArray, starts: Sequence[int] | None = None) -> Scores:
    """Scores from sums [..., 4, horizon, outcome], by step or by ranges with these first steps."""
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
    """[resample, range, outcome]: bootstrap over episodes, because windows of one episode correlate."""
    blocks = len(sums)
    # a fixed seed: the same episodes give the same table
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / blocks), RESAMPLES).astype(np.float64)
    skill = score(np.tensordot(drawn, sums, axes=1), starts).skill
    return skill if blocks > 1 else np.full(skill.shape, np.nan)  # one block has no variance


def with_all(values: FloatArray, starts: Sequence[int], axis: int) -> FloatArray:
    """Sums over each range of steps; the last is over all steps."""
    ranges = np.add.reduceat(values, starts, axis=axis)
    return np.concatenate([ranges, values.sum(axis=axis, keepdims=True)], axis=axis)


def ratio(part: Array, whole: Array) -> FloatArray:
    """The quotient part / whole; NaN where whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0))
