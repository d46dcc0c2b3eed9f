"""Predictions stored in a table of state-action pairs; pairs that are not in the table are unknown."""

import zlib
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np

from tpd.core.pairs import locate, pair_of
from tpd.core.types import Array, FloatArray, IntArray, Predictor
from tpd.core.verdicts import Verdicts


@dataclass(frozen=True)
class Edges:
    """Counted transitions: each edge is a distinct (pair, next state, outcomes) with its count."""

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
        """A checksum of pairs, next states and counts that does not depend on the order of the edges."""
        seen = np.stack([self.pair, self.next_state, self.count]).astype(np.int64)
        return zlib.crc32(seen[:, np.lexsort(seen)].tobytes())


@dataclass(frozen=True)
class PairTable:
    """A predictor that looks up its predictions; a pair that is not in the table is unknown."""

    num_actions: int
    pairs: IntArray
    """[pair]: state * num_actions + action, ascending"""
    expected: FloatArray
    """[pair, horizon, outcome]"""
    visits: FloatArray
    """[pair]: the support"""
    into_unknown: FloatArray | None = None
    """[pair, horizon]: probability of having reached an unknown pair by step h; None if not tracked"""
    edges: Edges | None = None
    """The counted transitions that the predictions were solved from, if any."""
    remark: str = field(default="", kw_only=True)
    """What users must know about the method to read its numbers, as a clause; empty if nothing."""
    tie: ClassVar[float] = 0.0

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]; 0 where unknown."""
        return self.look_up(self.expected, observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]; 0 where unknown."""
        return self.look_up(self.visits, observations, actions).astype(np.float64)

    def unknown(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon]: probability of having reached an unknown pair by step h; 0 if not tracked."""
        if self.into_unknown is None:
            return np.zeros((*np.shape(observations), self.horizon))
        return self.look_up(self.into_unknown, observations, actions, 1).astype(np.float64)

    def look_up(
        self, values: FloatArray, observations: Array, actions: Array, unknown: float = 0
    ) -> FloatArray:
        """[batch, ...]: the rows of values [pair, ...], or `unknown` for pairs that are not in the table."""
        row, known = locate(self.pairs, pair_of(observations, actions, self.num_actions))
        found = np.full((*row.shape, *values.shape[1:]), unknown, values.dtype)
        found[known] = values[row[known]]
        return found

    def table(self) -> "PairTable":
        return self


@dataclass(frozen=True)
class LimitedTable(PairTable):
    """A table of a method that predicts only some quantities.

    Its last step holds the sum of all later outcomes, discounted back to that step. So the return up to the
    last step is the return over an infinite horizon, and the last step is not an expectation at one step.
    """

    limits: Verdicts = field(kw_only=True)
    """[1, ...]: `UNANSWERABLE` for quantities that the method does not predict, else `NOT_JUDGED`"""


@runtime_checkable
class LimitedPredictor(Predictor, Protocol):
    """A predictor whose method predicts only some quantities, like `LimitedTable`."""

    @property
    def limits(self) -> Verdicts:
        """[1, ...]: `UNANSWERABLE` for quantities that it does not predict, else `NOT_JUDGED`."""


@runtime_checkable
class HasTable(Protocol):
    """A predictor whose predictions can all be listed in a table."""

    def table(self) -> PairTable:
        """The predictions of every pair it knows."""
