"""Explanations of the policy's action in every state, laid out by the fields of the state, for maps."""

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
"""Probabilities above this are called likely."""


@dataclass(frozen=True)
class MapSpec:
    """Which state field is used for the axes of a map, its panels and its pages."""

    across: str
    down: str
    panels: str | None = None
    pages: str | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], env: Environment) -> "MapSpec | None":
        """The layout of a config, or else of the environment, or None; unknown state fields are refused."""
        config = config or env.map_layout
        if not config:
            return None
        known = {field.name for field in fields(cls)}
        if not {"across", "down"} <= set(config) <= known:
            raise ValueError(
                "a map needs the keys across and down, and may have panels and pages; each names a field of "
                f"a state; got the keys {', '.join(map(str, config))}"
            )
        wanted, had = sorted(map(str, config.values())), sorted(env.state_fields)
        if wanted != had:
            raise ValueError(
                f"a map must show each field of a state once: {env.id} has {', '.join(had) or 'no fields'}, "
                f"the map has {', '.join(wanted)}"
            )
        return cls(**config)


@dataclass(frozen=True)
class Atlas:
    """Explanations of the policy's action in every state, laid out as [page, panel, down, across]."""

    explanation: Explanation
    spec: MapSpec
    values: tuple[Sequence[Any], ...]
    """The values of the field on each axis; (None,) if the axis has no field."""

    @classmethod
    def explore(cls, explainer: Explainer, env: Environment, spec: MapSpec) -> "Atlas":
        """Explain every state."""
        names = (spec.pages, spec.panels, spec.down, spec.across)
        values = tuple((None,) if name is None else tuple(env.state_fields[name]) for name in names)
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
        """[page, panel, down, across]: expected steps to an event if it happens; NaN if it never does."""
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
    """The panel from which on a probability [panel] stays likely, or unlikely; None if that holds for all."""
    others = np.flatnonzero((likely > EVEN) != (likely[-1:] > EVEN))
    return int(others[-1] + 1) if len(others) else None


def known_from(likely: FloatArray) -> int | None:
    """The first panel from which on each probability [panel] is known; None if fewer than half remain."""
    unknown = np.flatnonzero(np.isnan(likely))
    begin = int(unknown[-1] + 1) if len(unknown) else 0
    return begin if begin <= len(likely) / 2 else None
