"""Predictions for the pairs of numbered states and actions that are known, and for no others."""

import zlib
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from tpd.core.pairs import locate, pair_of
from tpd.core.types import Array, FloatArray, IntArray, Predictor
from tpd.core.verdicts import Verdicts


@dataclass(frozen=True)
class Edges:
    """What was seen of a table of dynamics: where pairs led, with which outcomes, and how often."""

    pair: IntArray
    """[edge]: state * num_actions + action"""
    next_state: IntArray
    """[edge]"""
    outcome: FloatArray
    """[edge, outcome]"""
    continuation: FloatArray
    """[edge, outcome]"""
    count: IntArray
    """[edge]"""

    @property
    def checksum(self) -> int:
        """The same for what was seen as often, in whichever order."""
        seen = np.stack([self.pair, self.next_state, self.count]).astype(np.int64)
        return zlib.crc32(seen[:, np.lexsort(seen)].tobytes())


@dataclass(frozen=True)
class PairTable:
    """A predictor that looks its answers up; a pair that is not in the table is unknown."""

    num_actions: int
    pairs: IntArray
    """[pair]: state * num_actions + action, ascending"""
    expected: FloatArray
    """[pair, horizon, outcome]"""
    visits: FloatArray
    """[pair]: the support"""
    into_unknown: FloatArray | None = None
    """[pair, horizon]: how likely the future has come to an unknown pair by then; None if not tracked"""
    edges: Edges | None = None
    """What the answers were solved from, where they were."""
    tie: ClassVar[float] = 0.0

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]; 0 where unknown."""
        row, known = locate(self.pairs, pair_of(observations, actions, self.num_actions))
        expected = np.zeros((*row.shape, *self.expected.shape[1:]), self.expected.dtype)
        expected[known] = self.expected[row[known]]
        return expected

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]; 0 where unknown."""
        row, known = locate(self.pairs, pair_of(observations, actions, self.num_actions))
        visits = np.zeros(row.shape)
        visits[known] = self.visits[row[known]]
        return visits

    def unknown(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon]: how likely the future is unknown by each step; 0 where that was not tracked."""
        row, known = locate(self.pairs, pair_of(observations, actions, self.num_actions))
        if self.into_unknown is None:
            return np.zeros((*row.shape, self.horizon))
        unknown = np.ones((*row.shape, self.horizon))
        unknown[known] = self.into_unknown[row[known]]
        return unknown

    def table(self) -> "PairTable":
        return self


@dataclass(frozen=True)
class LimitedTable(PairTable):
    """A table of a method that has some quantities and not others.

    Its last step holds all that follows from there on, discounted back to that step. So the return up to
    the last step is the return over an infinite horizon, and the last step is no expectation at a step.
    """

    limits: Verdicts = field(kw_only=True)
    """[1, ...]: `UNANSWERABLE` for what the method cannot tell, `NOT_JUDGED` for the rest"""


@runtime_checkable
class LimitedPredictor(Predictor, Protocol):
    """A predictor of a method that has some quantities and not others, as a `LimitedTable`."""

    @property
    def limits(self) -> Verdicts:
        """[1, ...]: `UNANSWERABLE` for what it cannot tell, `NOT_JUDGED` for the rest."""


@runtime_checkable
class HasTable(Protocol):
    """A predictor whose answers can all be written down."""

    def table(self) -> PairTable:
        """Every pair it knows."""
