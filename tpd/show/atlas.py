"""What the policy expects in every state, laid out by the fields of the state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from tpd.core.explanation import Explanation
from tpd.core.types import FloatArray
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer

EVEN = 0.5
"""A probability that is neither likely nor unlikely."""


@dataclass(frozen=True)
class MapSpec:
    """Which field of the state goes where: within a map, from map to map, and from page to page."""

    across: str
    down: str
    panels: str | None = None
    pages: str | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], env: Environment) -> "MapSpec | None":
        """What a config asks for, or else the environment; None where neither does.

        Fields that states do not have are refused.
        """
        config = config or env.map_layout
        if not config:
            return None
        known = {field.name for field in fields(cls)}
        if not {"across", "down"} <= set(config) <= known:
            raise ValueError(f"a map has across, down, panels and pages, not {', '.join(map(str, config))}")
        wanted, had = sorted(map(str, config.values())), sorted(env.state_fields)
        if wanted != had:
            raise ValueError(
                f"a map shows each field of a state once: {env.id} has {', '.join(had) or 'no fields'}, "
                f"the map {', '.join(wanted)}"
            )
        return cls(**config)


@dataclass(frozen=True)
class Atlas:
    """What the policy expects in every state, laid out as [page, panel, down, across]."""

    explanation: Explanation
    spec: MapSpec
    values: tuple[Sequence[Any], ...]
    """The values of the field on each axis; (None,) where no field has the axis."""

    @classmethod
    def explore(cls, explainer: Explainer, env: Environment, spec: MapSpec) -> "Atlas":
        """Ask about every state."""
        names = (spec.pages, spec.panels, spec.down, spec.across)
        had = env.state_fields
        values = tuple((None,) if name is None else tuple(had[name]) for name in names)
        states = [
            env.state({name: value for name, value in zip(names, place, strict=True) if name is not None})
            for place in product(*values)
        ]
        return cls(explainer.explain(np.array(states)), spec, values)

    @property
    def horizon(self) -> int:
        return self.explanation.horizon

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.values))

    def likely(self, first: str) -> FloatArray:
        """[page, panel, down, across]: probability of an event within the horizon; NaN if unknown."""
        told = self.explanation.told.by[:, -1, self.explanation.legend.names.index(first)]
        known = (self.explanation.foreseen[:, -1] & told).reshape(self.shape)
        return np.where(known, self._steps(first).sum(axis=-1), np.nan)

    def steps_to(self, first: str) -> FloatArray:
        """[page, panel, down, across]: expected steps ahead of an event if it happens; NaN if it does not."""
        steps, likely = self._steps(first), self.likely(first)
        ahead, happens = np.full(self.shape, np.nan), likely > 0
        ahead[happens] = (steps @ np.arange(self.horizon))[happens] / likely[happens]
        return ahead

    def _steps(self, first: str) -> FloatArray:
        """[page, panel, down, across, horizon]"""
        column = self.explanation.legend.names.index(first)
        steps = np.clip(self.explanation.expected[:, :, column], 0, 1)
        return np.asarray(steps.reshape(*self.shape, self.horizon))


def threshold(likely: FloatArray) -> int | None:
    """The panel from which on a probability [panel] stays likely, or unlikely; None if it is so in all."""
    others = np.flatnonzero((likely > EVEN) != (likely[-1:] > EVEN))
    return int(others[-1] + 1) if len(others) else None


def known_from(likely: FloatArray) -> int | None:
    """The first panel after which, but for the very first ones, every probability [panel] is known.

    None where that is not so up to the last panel, or for fewer than half of them.
    """
    unknown = np.flatnonzero(np.isnan(likely))
    begin = int(unknown[-1] + 1) if len(unknown) else 0
    return begin if begin <= len(likely) / 2 else None
