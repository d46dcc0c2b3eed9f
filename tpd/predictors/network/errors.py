"""Errors that a network is known to make, and so what could be expected where the truth is not known."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, IntArray

LEVELS = np.sin(np.linspace(0, np.pi / 2, 31)) ** 2
"""[level]: probabilities to have happened by some step, closer together near 0 and 1."""


@dataclass(frozen=True)
class KnownErrors:
    """How wrong it was at moments whose truth is known, in random order.

    What a moment shows is kept whole, so that errors at all steps, of all outcomes, and after both actions
    go together as they did there. What happens but once is wrong in how likely it is to have happened: by
    how much depends on how likely that is said to be, at whichever step.
    """

    steps: FloatArray
    """[moment, choice, horizon, outcome]: truth minus prediction, for events in units of p (1 - p), after
    the policy's own action and after a foil"""
    curves: FloatArray
    """[moment, choice, level, once]: how likely it had truly happened when that was said to be LEVELS"""
    events: BoolArray
    """[outcome]: which outcomes happen or not"""
    once: BoolArray
    """[outcome]: which of them are first occurrences, or the end"""

    def draws(self, predicted: FloatArray, places: IntArray, foil: BoolArray) -> FloatArray:
        """[draw, batch, horizon, outcome]: what is predicted, with the errors of one moment each.

        Every pair gets the errors of the same moments, but at each place [batch], which is any number, in
        another order: errors at different places are not taken to go together. foil [draw, batch] says
        whose errors it gets, those of an action that the policy takes or of another.
        """
        count = len(foil)
        chosen = np.linspace(0, len(self.steps) - 1, count).round().astype(np.int64)
        rows = chosen[(np.arange(count)[:, None] + places) % count], foil.astype(np.int64)
        drawn = predicted + self.steps[rows] * unit(predicted, self.events)
        drawn[..., self.events] = np.clip(drawn[..., self.events], 0, 1)
        drawn[..., self.once] = self._once(happened(predicted[..., self.once]), self.curves[rows])
        return np.asarray(drawn)

    def _once(self, said: FloatArray, curves: FloatArray) -> FloatArray:
        """[draw, batch, horizon, once]: when it happens, if having happened is as likely as curves say.

        said: how likely it is said to be [batch, horizon, once]; curves [draw, batch, level, once].
        """
        below = np.clip(np.searchsorted(LEVELS, said, side="right") - 1, 0, len(LEVELS) - 2)
        part = ((said - LEVELS[below]) / np.diff(LEVELS)[below]).astype(curves.dtype)
        low, high = (np.take_along_axis(curves, level[None], axis=2) for level in (below, below + 1))
        return np.asarray(np.diff(low + (high - low) * part, axis=2, prepend=0))

    def arrays(self) -> dict[str, Array]:
        """All of it by name, as numbers."""
        kinds = {"events": self.events.astype(np.uint8), "once": self.once.astype(np.uint8)}
        return {"steps": self.steps, "curves": self.curves, **kinds}

    @classmethod
    def read(cls, arrays: Mapping[str, Array], horizon: int, width: int) -> "KnownErrors":
        """What `arrays` says of so many steps and outcomes, termination included."""
        events, once = arrays["events"] == 1, arrays["once"] == 1
        moments = len(arrays["steps"])
        due = {
            "events": (width,),
            "once": (width,),
            "steps": (moments, 2, horizon, width),
            "curves": (moments, 2, len(LEVELS), once.sum()),
        }
        for name, shape in due.items():
            if arrays[name].shape != shape:
                raise ValueError(f"the known errors have {name} of shape {arrays[name].shape}, not {shape}")
        return cls(arrays["steps"], arrays["curves"], events, once)


def unit(predicted: FloatArray, events: BoolArray) -> FloatArray:
    """[..., outcome]: what errors are measured in."""
    likely = np.clip(predicted, 0, 1)
    return np.where(events, likely * (1 - likely), 1)


def happened(first: FloatArray) -> FloatArray:
    """[..., horizon, outcome]: how likely it has happened by then, from the chances of the first time."""
    return np.asarray(np.maximum.accumulate(np.clip(np.cumsum(first, axis=-2), 0, 1), axis=-2))
