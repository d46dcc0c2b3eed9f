"""Verdicts: whether a predictor has learned an outcome, judged on fresh episodes."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tpd.core.types import BoolArray, Index, IntArray


class Verdict(IntEnum):
    """The verdict on the forecasts of an outcome, by fresh episodes; larger is worse.

    The last two are limits of a method. `UNANSWERABLE`: it does not predict this quantity at all.
    `ENDLESS`: instead of the sum over the horizon, it predicts the discounted sum over an infinite horizon.

    >>> import tpd
    >>> tpd.Verdict.TOO_RARE.words
    'too rare to tell'
    """

    NOT_JUDGED = 0
    LEARNED = 1
    NOT_LEARNED = 2
    TOO_RARE = 3
    UNANSWERABLE = 4
    ENDLESS = 5

    @property
    def words(self) -> str:
        """The text in tables and sentences."""
        return WORDS[self]


WORDS = {
    Verdict.NOT_JUDGED: "not evaluated",
    Verdict.LEARNED: "learned",
    Verdict.NOT_LEARNED: "not learned",
    Verdict.TOO_RARE: "too rare to tell",
    Verdict.UNANSWERABLE: "not answered",
    Verdict.ENDLESS: "over an infinite horizon",
}


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on the forecasts of every pair, as values of `Verdict`; the last outcome is termination."""

    at: IntArray
    """[pair, horizon, outcome + 1]: on the expected outcome at step h"""
    by: IntArray
    """[pair, horizon, outcome + 1]: on its sum up to step h; for a first occurrence, on P(by step h)"""
    returns: IntArray
    """[pair, horizon]: on the return up to step h"""

    def __getitem__(self, index: Index) -> "Verdicts":
        return Verdicts(self.at[index], self.by[index], self.returns[index])

    def joined(self, other: "Verdicts") -> "Verdicts":
        """Both concatenated along the pairs."""
        pairs = ((self.at, other.at), (self.by, other.by), (self.returns, other.returns))
        return Verdicts(*(np.concatenate(pair) for pair in pairs))

    def __or__(self, other: "Verdicts") -> "Verdicts":
        """The worse of both, elementwise; one of them may be [1, ...] and is broadcast over all pairs."""
        pairs = ((self.at, other.at), (self.by, other.by), (self.returns, other.returns))
        return Verdicts(*(np.maximum(one, another) for one, another in pairs))

    @property
    def worst(self) -> "Verdicts":
        """[1, ...]: the worst verdict over all pairs."""
        return Verdicts(*(each.max(axis=0, keepdims=True) for each in (self.at, self.by, self.returns)))


def is_told(verdicts: IntArray) -> BoolArray:
    """[...]: where a number may be reported: it is learned, or it was not judged."""
    return np.asarray(verdicts <= Verdict.LEARNED)


def is_limit(verdicts: IntArray) -> BoolArray:
    """[...]: where the method does not predict this quantity, and so cannot be judged."""
    return np.asarray(verdicts >= Verdict.UNANSWERABLE)
