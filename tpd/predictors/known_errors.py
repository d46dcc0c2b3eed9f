"""Errors that a predictor made where the truth is known, and so bands where it is not.

The error of an event depends on how likely it is said to be, so errors are kept by bins of forecasts. The
forecasts that are next to 0 have a bin of their own: how often an event comes that is said to be impossible
is seen there. An error is a share of the way from the forecast to 1, or to 0 where the truth is less: so what
never happens, or always, is within the band of any forecast of its bin. An event that happens but once is
wrong in how likely it has happened by each step: its band is one of that, and what is said of single steps
follows from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, IntArray

EDGES = np.array([0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99])
"""[edge]: between the bins of forecasts."""
RANKS = 59
"""The errors of a bin are kept as quantiles at 1/60, 2/60, ..., which are the draws of a band of 90 %."""
NONE = -1


@dataclass(frozen=True)
class KnownErrors:
    """Quantiles of errors by forecast, and how the errors of one moment go together."""

    quantiles: FloatArray
    """[outcome, span, bin, rank]: of errors from -1 to 1 (`relative`), of having happened by a step or, where
    an event can happen again, of happening at it; ascending, and as wide as few moments demand"""
    span: IntArray
    """[horizon]: which span of steps ahead each step belongs to"""
    ranks: FloatArray
    """[moment, choice, outcome]: how large the errors of a moment are among those of all, from 0 to 1, after
    the policy's own action and after a foil"""
    steps: FloatArray
    """[moment, choice, horizon, real]: truth minus forecast of outcomes that are no events, kept whole"""
    once: IntArray
    """[outcome]: the column that tells when an event first happens, which may be its own; NONE for what is no
    event, or not asked for"""
    ends: BoolArray
    """[outcome]: whether the event happens only as the episode ends, so that it happens but once"""
    events: BoolArray
    """[outcome]: which outcomes happen or not"""

    def draws(self, predicted: FloatArray, places: IntArray, foil: BoolArray, count: int) -> FloatArray:
        """[draw, batch, horizon, outcome]: what is predicted, with the errors of one moment each.

        Every pair gets the errors of the same moments, but at each place [batch], which is any number, in
        another order: errors at different places are not taken to go together. foil [batch] says whose
        errors it gets, those of an action that the policy takes or of another.
        """
        chosen = np.linspace(0, len(self.ranks) - 1, count).round().astype(np.int64)
        number = (np.arange(count)[:, None] + places) % count, foil.astype(np.int64)
        drawn = np.repeat(predicted[None].astype(np.float32), count, axis=0)
        drawn[..., ~self.events] += self.steps[chosen][number]
        rank = _order(self.ranks[chosen])[number]  # [draw, batch, outcome]
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
        return drawn

    def _shifted(self, said: FloatArray, rank: IntArray, column: int, count: int) -> FloatArray:
        """[draw, batch, horizon]: what is said [batch, horizon] with the error of a rank [draw, batch]."""
        at = np.arange(1, count + 1) / (count + 1)
        known = np.arange(1, RANKS + 1) / (RANKS + 1)
        rows = self.quantiles[column].reshape(-1, RANKS)
        errors = np.stack([np.interp(at, known, row) for row in rows])
        row = self.span * (len(EDGES) + 1) + bins(said)
        return moved(np.clip(said, 0, 1), errors[row[None], rank[:, :, None]])

    def arrays(self) -> dict[str, Array]:
        """All of it by name, as numbers."""
        flags = {"ends": self.ends.astype(np.uint8), "events": self.events.astype(np.uint8)}
        plain = {name: getattr(self, name) for name in ("quantiles", "span", "ranks", "steps", "once")}
        return {**plain, **flags}

    @classmethod
    def read(cls, arrays: Mapping[str, Array], horizon: int, width: int) -> "KnownErrors":
        """What `arrays` says of so many steps and outcomes, termination included."""
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
                raise ValueError(f"the known errors have {name} of shape {arrays[name].shape}, not {shape}")
        once = arrays["once"].astype(np.int64)
        if ((once < NONE) | (once >= width)).any():
            raise ValueError(f"the known errors speak of column {once.max()} of {width} outcomes")
        span = arrays["span"].astype(np.int64)
        if ((span < 0) | (span >= arrays["quantiles"].shape[1])).any():
            raise ValueError(f"the known errors speak of span {span.max()} of {arrays['quantiles'].shape[1]}")
        plain = (arrays["quantiles"], span, arrays["ranks"], arrays["steps"])
        return cls(*plain, once, arrays["ends"] == 1, events)


def bins(forecast: FloatArray) -> IntArray:
    """[...]: the bin of each forecast."""
    return np.asarray(np.searchsorted(EDGES, forecast, side="right"))


def relative(said: FloatArray, true: FloatArray) -> FloatArray:
    """[...]: how far the truth is on the way from what is said to 1, or below 0 on the way to 0."""
    said = np.clip(said, 0, 1)
    way = np.where(true > said, 1 - said, said)
    return np.asarray(np.divide(true - said, way, out=np.zeros(np.shape(way)), where=way > 0))


def moved(said: FloatArray, error: FloatArray) -> FloatArray:
    """[...]: what is true if what is said has that relative error."""
    return np.asarray(said + error * np.where(error > 0, 1 - said, said))


def happened(first: FloatArray) -> FloatArray:
    """[..., horizon]: how likely it has happened by then, from the chances of the first time."""
    return np.asarray(np.maximum.accumulate(np.clip(np.cumsum(first, axis=-1), 0, 1), axis=-1))


def _order(ranks: FloatArray) -> IntArray:
    """[draw, choice, outcome]: the place of each in the order of all draws: every place comes up once."""
    return np.asarray(ranks.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable"))


def _within(at: FloatArray, first: FloatArray) -> FloatArray:
    """[draw, batch, horizon]: no less likely than for the first time, no more than that it has happened."""
    return np.clip(at, first, np.maximum(np.cumsum(first, axis=2), first))
