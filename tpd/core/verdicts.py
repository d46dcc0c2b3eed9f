"""Verdicts: whether a predictor was found to know an outcome, by what happened in fresh episodes."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from tpd.core.types import BoolArray, Index, IntArray


class Verdict(IntEnum):
    """What fresh episodes say of the forecasts of an outcome; the worse, the larger.

    The last is of another kind: the method has no such quantity, whatever it has learned.

    >>> import tpd
    >>> tpd.Verdict.TOO_RARE.words
    'too rare to tell'
    """

    NOT_JUDGED = 0
    LEARNED = 1
    NOT_LEARNED = 2
    TOO_RARE = 3
    UNANSWERABLE = 4

    @property
    def words(self) -> str:
        """As tables and sentences say it."""
        return WORDS[self]


WORDS = {
    Verdict.NOT_JUDGED: "not judged",
    Verdict.LEARNED: "learned",
    Verdict.NOT_LEARNED: "not learned",
    Verdict.TOO_RARE: "too rare to tell",
    Verdict.UNANSWERABLE: "not answered",
}


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on forecasts, as numbers of `Verdict`, for every pair explained.

    The last outcome is termination.
    """

    at: IntArray
    """[pair, horizon, outcome + 1]: of what is expected at step h"""
    by: IntArray
    """[pair, horizon, outcome + 1]: of its sum up to step h; of a first occurrence, that it has happened"""
    returns: IntArray
    """[pair, horizon]: of the return up to step h"""

    def __getitem__(self, index: Index) -> "Verdicts":
        return Verdicts(self.at[index], self.by[index], self.returns[index])

    def joined(self, other: "Verdicts") -> "Verdicts":
        """Those of both, one after the other."""
        pairs = ((self.at, other.at), (self.by, other.by), (self.returns, other.returns))
        return Verdicts(*(np.concatenate(pair) for pair in pairs))

    def __or__(self, other: "Verdicts") -> "Verdicts":
        """The worse of both, where one of them may be for all pairs [1, ...]."""
        pairs = ((self.at, other.at), (self.by, other.by), (self.returns, other.returns))
        return Verdicts(*(np.maximum(one, another) for one, another in pairs))

    @property
    def worst(self) -> "Verdicts":
        """[1, ...]: for a pair that may be any of these."""
        return Verdicts(*(each.max(axis=0, keepdims=True) for each in (self.at, self.by, self.returns)))


def is_told(verdicts: IntArray) -> BoolArray:
    """[...]: where a number may be given: the predictor has learned it, or nobody has judged it."""
    return np.asarray(verdicts <= Verdict.LEARNED)
