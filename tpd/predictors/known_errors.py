"""Bands for a predictor without posterior samples, from its errors on moments whose truth is known.

The error of an event depends on its forecast probability, so errors are kept in bins of forecasts. Forecasts
close to 0 have a bin of their own, which shows how often events happen that were forecast as impossible. An
error is relative: a fraction of the way from the forecast to 1, or to 0 if the truth is lower. So a truth of
0 or 1 can lie within the band of any forecast in the bin. For an event that happens at most once, the errors
are those of P(by step h), and the samples of single steps are derived from it. Real-valued outcomes are
scaled by how likely the episode still runs in the sample, so an uncertain end makes their bands wide too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpd.core.first_occurrences import still_running
from tpd.core.pairs import blocks
from tpd.core.types import Array, BoolArray, FloatArray, IntArray

EDGES = np.array([0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99])
"""[edge]: edges between the bins of forecasts."""
RANKS = 59
"""The errors of a bin are kept as quantiles at 1/60, 2/60, ...: as many as the samples of a 90 % band."""
NONE = -1
LEAST_RUNNING = 0.1
"""Smallest forecast probability that the episode still runs by which real-valued outcomes are divided."""


@dataclass(frozen=True)
class KnownErrors:
    """Quantiles of forecast errors, and the correlation of errors within one moment."""

    quantiles: FloatArray
    """[outcome, span, bin, rank]: quantiles of relative errors from -1 to 1 (see `relative`), ascending and
    widened if there are few moments. Errors of P(by step h), or of P(at step h) if the event can repeat"""
    span: IntArray
    """[horizon]: the span of steps ahead that each step belongs to"""
    ranks: FloatArray
    """[moment, choice, outcome]: the rank of a moment's error among all moments, from 0 to 1, for the
    policy's own action and for a foil"""
    steps: FloatArray
    """[moment, choice, horizon, real]: truth minus forecast of real-valued outcomes, for every moment"""
    once: IntArray
    """[outcome]: the column of the event's first occurrence, which may be its own; NONE if the outcome is
    not an event or its first occurrence is not predicted"""
    ends: BoolArray
    """[outcome]: whether the event happens only at termination, and so at most once"""
    events: BoolArray
    """[outcome]: which outcomes are events"""

    def draws(self, predicted: FloatArray, places: IntArray, foil: BoolArray, count: int) -> FloatArray:
        """[draw, batch, horizon, outcome]: the prediction plus errors; each sample has those of one moment.

        places [batch]: an integer for each state. Pairs with the same place get the errors of the same moment
        in each sample, so their errors are correlated. Other places get the moments in another order.
        foil [batch]: whether a pair gets errors of foils, or of the policy's own actions.
        """
        drawn = np.empty((count, *predicted.shape), dtype=np.float32)
        for some in blocks(len(predicted)):
            drawn[:, some] = self._drawn(predicted[some], places[some], foil[some], count)
        return drawn

    def _drawn(self, predicted: FloatArray, places: IntArray, foil: BoolArray, count: int) -> FloatArray:
        chosen = np.linspace(0, len(self.ranks) - 1, count).round().astype(np.int64)
        number = (np.arange(count)[:, None] + places) % count, foil.astype(np.int64)
        drawn = np.repeat(predicted[None].astype(np.float32), count, axis=0)
        ranks = self.ranks[chosen].argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")
        rank = ranks[number]  # [draw, batch, outcome]: among the samples; every rank occurs once
        for column in np.unique(self.once[self.once != NONE]).tolist():
            by = self._shifted(happened(predicted[..., column]), rank[..., column], column, count)
            drawn[..., column] = np.diff(np.maximum.accumulate(by, axis=2), axis=2, prepend=0)
        for column in np.flatnonzero(self.events).tolist():
            first = int(self.once[column])
            if first not in (NONE, column) and self.ends[column]:
                drawn[..., column] = drawn[..., first]
            elif first != column:
                at = self._shifted(predicted[..., column], rank[..., column], column, count)
                drawn[..., column] = at if first == NONE else _within(at, drawn[..., first])
        drawn[..., ~self.events] += self.steps[chosen][number]
        if self.once[-1] != NONE:
            drawn[..., ~self.events] *= still_running(drawn) / np.maximum(
                still_running(predicted), LEAST_RUNNING
            )
        return drawn

    def _shifted(self, said: FloatArray, rank: IntArray, column: int, count: int) -> FloatArray:
        """[draw, batch, horizon]: forecasts [batch, horizon] shifted by the errors of ranks [draw, batch]."""
        at = np.arange(1, count + 1) / (count + 1)
        known = np.arange(1, RANKS + 1) / (RANKS + 1)
        rows = self.quantiles[column].reshape(-1, RANKS)
        errors = np.stack([np.interp(at, known, row) for row in rows])
        row = self.span * (len(EDGES) + 1) + bins(said)
        return moved(np.clip(said, 0, 1), errors[row[None], rank[:, :, None]])

    def arrays(self) -> dict[str, Array]:
        """All fields as arrays of numbers, by name."""
        flags = {"ends": self.ends.astype(np.uint8), "events": self.events.astype(np.uint8)}
        plain = {name: getattr(self, name) for name in ("quantiles", "span", "ranks", "steps", "once")}
        return {**plain, **flags}

    @classmethod
    def read(cls, arrays: Mapping[str, Array], horizon: int, width: int) -> "KnownErrors":
        """The inverse of `arrays`; checks shapes. `width` is the number of outcomes plus termination."""
        events, moments = arrays["events"] == 1, len(arrays["ranks"])
        due = {
            "quantiles": (width, *arrays["quantiles"].shape[1:2], len(EDGES) + 1, RANKS),
            "span": (horizon,),
            "ranks": (moments, 2, width),
            "steps": (moments, 2, horizon, width - events.sum()),
            "once": (width,),
            "ends": (width,),
            "events": (width,),
        }
        for name, shape in due.items():
            if arrays[name].shape != shape or not moments:
                raise ValueError(
                    f"the errors for bands have {name} of shape {arrays[name].shape}, expected {shape}"
                )
        once = arrays["once"].astype(np.int64)
        if ((once < NONE) | (once >= width)).any():
            raise ValueError(f"the errors for bands refer to outcome {once.max()}, but there are {width}")
        span = arrays["span"].astype(np.int64)
        if ((span < 0) | (span >= arrays["quantiles"].shape[1])).any():
            raise ValueError(
                f"the errors for bands refer to range of steps {span.max()}, but there are "
                f"{arrays['quantiles'].shape[1]} ranges"
            )
        plain = (arrays["quantiles"], span, arrays["ranks"], arrays["steps"])
        return cls(*plain, once, arrays["ends"] == 1, events)


def bins(forecast: FloatArray) -> IntArray:
    """[...]: the bin of each forecast."""
    return np.asarray(np.searchsorted(EDGES, forecast, side="right"))


def relative(said: FloatArray, true: FloatArray) -> FloatArray:
    """[...]: the relative error (true - said) / (1 - said) if true > said, else (true - said) / said."""
    said = np.clip(said, 0, 1)
    way = np.where(true > said, 1 - said, said)
    return np.asarray(np.divide(true - said, way, out=np.zeros(np.shape(way)), where=way > 0))


def moved(said: FloatArray, error: FloatArray) -> FloatArray:
    """[...]: the truth for a forecast with this relative error: the inverse of `relative`."""
    return np.asarray(said + error * np.where(error > 0, 1 - said, said))


def happened(first: FloatArray) -> FloatArray:
    """[..., horizon]: P(happened by step h), from the probabilities of the first occurrence."""
    return np.asarray(np.maximum.accumulate(np.clip(np.cumsum(first, axis=-1), 0, 1), axis=-1))


def _within(at: FloatArray, first: FloatArray) -> FloatArray:
    """[draw, batch, horizon]: P(at h) clipped to between P(first at h) and P(happened by h)."""
    return np.clip(at, first, np.maximum(np.cumsum(first, axis=2), first))
