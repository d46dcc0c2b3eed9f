"""Finds the nearest state in which the agent would choose the foil."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tpd.answers.sentences.formatting import listed
from tpd.core.types import Array, BoolArray, FloatArray
from tpd.envs.features import HIDDEN, Features

MOST_CHANGES = 3
"""Maximum number of features that are named, those with the largest difference."""
MENTIONED = 0.05
"""Minimum difference of a named feature, in standard deviations."""

Switches = Callable[[Array], BoolArray]
"""observations -> [batch]: whether the agent chooses the foil there"""


class Change(NamedTuple):
    """A part of the state that differs, with its values here and there."""

    name: str
    here: str
    there: str


@dataclass(frozen=True, repr=False, eq=False)
class NearestState:
    """The nearest state in which the agent would choose the foil; `answer.nearest_state()` returns it."""

    foil: str
    observation: Array | None = None
    """[...]: the state; None if there is none"""
    changes: tuple[Change, ...] = ()
    """All changed fields, or the features with the largest differences, largest first."""
    distance: float = np.nan
    """Distance in standard deviations of the visited states; NaN if states have named fields."""
    looked_at: int = 0
    """Number of states searched."""
    fields: bool = False
    """Whether all states of the environment were searched, not only visited ones."""
    withheld: str = ""
    """Why no search was made; empty if one was."""

    @property
    def text(self) -> str:
        """What would have to be different for the agent to choose the foil, in one sentence."""
        if self.withheld:
            return f"No state is given in which the agent would choose {self.foil}: {self.withheld}."
        if self.observation is None:
            states = "states of the environment" if self.fields else "visited states"
            return f"The agent chooses {self.foil} in none of the {self.looked_at} {states}."
        changes = [f"{each.name} {each.there} instead of {each.here}" for each in self.changes]
        if self.fields:
            return f"With {listed(changes)}, all else equal, the agent would choose {self.foil}."
        most = f" ({listed(changes)})" if changes else ""
        return (
            f"The nearest of {self.looked_at} visited states where the agent chooses {self.foil} is "
            f"{self.distance:.2g} standard deviations away{most}."
        )

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<NearestState: {self.text}>"


class Found(NamedTuple):
    """The result of a search."""

    observation: Array | None
    """[...]"""
    scale: FloatArray
    """[feature]: differences are divided by it"""
    distance: float
    looked_at: int

    def described(self, nothing: NearestState, features: Features, here: Array) -> NearestState:
        """The result as a `NearestState`, compared with the state of the question [1, ...]."""
        table = features.fields is not None
        looked = replace(nothing, looked_at=self.looked_at, fields=table)
        if self.observation is None:
            return looked
        one, other = (features.rows(each)[0] for each in (here, self.observation[None]))
        apart = np.abs(other - one) / self.scale
        named = [k for k in np.argsort(-apart, kind="stable") if features.names[k] != HIDDEN and apart[k] > 0]
        if table:
            named.sort()
        else:
            named = [k for k in named if apart[k] >= MENTIONED][:MOST_CHANGES]
        names, shown = features.names, features.shown
        changes = tuple(Change(names[k], shown(k, one[k]), shown(k, other[k])) for k in named)
        return replace(looked, observation=self.observation, changes=changes, distance=self.distance)


def over_fields(fields: FloatArray, state: int, switches: Switches) -> Found:
    """The state with the fewest changed fields; on ties, the smallest change relative to their ranges."""
    known = np.flatnonzero(~np.isnan(fields).any(axis=1))
    span = np.ptp(fields[known], axis=0)
    scale = np.where(span > 0, span, 1.0)
    there = known[switches(known)]
    if not len(there):
        return Found(None, scale, np.nan, len(known))
    apart = np.abs(fields[there] - fields[state]) / scale
    order = np.lexsort([apart.sum(axis=1), (apart > 0).sum(axis=1)])
    return Found(there[order[0]], scale, np.nan, len(known))


def among_states_met(features: Features, here: Array, met: Array, switches: Switches) -> Found:
    """The nearest of the visited states [state, ...]; features are divided by their standard deviations."""
    rows = features.rows(met)
    spread = rows.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    there = np.flatnonzero(switches(met))
    if not len(there):
        return Found(None, scale, np.nan, len(met))
    distances = np.linalg.norm((rows[there] - features.rows(here)) / scale, axis=1)
    best = int(distances.argmin())
    return Found(met[there[best]], scale, float(distances[best]), len(met))
