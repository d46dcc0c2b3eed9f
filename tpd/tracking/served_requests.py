"""Parses the requests to a served explainer; an error names the row and the column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gymnasium import spaces

from tpd.core.types import Array, BoolArray
from tpd.envs.action_parts import ActionParts
from tpd.envs.spaces import from_plain, size_of
from tpd.guards.files import read_arrays
from tpd.guards.settings import shown
from tpd.store import explainers
from tpd.store.learned_models import MIXTURE, MODEL
from tpd.tracking.served_values import (
    Categories,
    Fields,
    Kind,
    Numbered,
    Numbers,
    RequestError,
    is_missing,
    stacked,
)

STATE, ACTION, FOIL = "state", "action", "foil"
TEXT = "text"
"""The parameter that asks for sentences, and the name of their column."""
MOST_ROWS, MOST_VALUES = 10_000, 1_000_000
SHOWN_EXAMPLES = 2


class Asked(NamedTuple):
    """The parsed questions of a request."""

    states: Array
    """[row, ...]"""
    actions: Array
    """[row, ...]"""
    contrasted: BoolArray
    """[row]: whether a foil is given"""
    foils: Array
    """[contrasted row, ...]"""

    def check_size(self, horizon: int, outcomes: int) -> None:
        """Refuse what would take too long: all outcomes at each step, three times if there is a foil."""
        values = (len(self.states) + 2 * len(self.foils)) * horizon * outcomes
        if values > MOST_VALUES:
            raise RequestError(
                f"the answer would have {values:,} values; request at most {MOST_VALUES:,} at a time"
            )


@dataclass(frozen=True)
class Questions:
    """The states and actions that an explainer can parse."""

    states: Kind
    actions: Kind
    example: pd.DataFrame
    """Example questions."""

    @property
    def description(self) -> dict[str, str]:
        """A description of each column."""
        action = self.actions.description
        return {STATE: self.states.description, ACTION: action, FOIL: f"{action}, or nothing"}

    def read(self, rows: pd.DataFrame) -> Asked:
        """Parse all rows; an error names the first problem."""
        if not 0 < len(rows) <= MOST_ROWS:
            raise RequestError(f"the request has {len(rows)} rows; send 1 to {MOST_ROWS:,} at a time")
        for column in (STATE, ACTION):
            if column not in rows:
                raise RequestError(f"column {column} is missing")
        for column in rows.columns[rows.columns.duplicated()]:
            raise RequestError(f"column {shown(column)} is duplicated")
        foils = rows[FOIL].tolist() if FOIL in rows else [None] * len(rows)
        contrasted = np.array([not is_missing(foil) for foil in foils])
        return Asked(
            self._column(STATE, self.states, rows[STATE].tolist()),
            self._column(ACTION, self.actions, rows[ACTION].tolist()),
            contrasted,
            self._column(FOIL, self.actions, foils, np.flatnonzero(contrasted).tolist()),
        )

    @staticmethod
    def _column(name: str, kind: Kind, values: Sequence[Any], rows: Sequence[int] | None = None) -> Array:
        """[row, ...]: the parsed values of a column, for some rows or all."""
        read = []
        for row in range(len(values)) if rows is None else rows:
            try:
                read.append(kind.read(values[row]))
            except RequestError as error:
                raise RequestError(f"row {row}, column {name}: {error}") from None
        return stacked(kind, read)


def questions(folder: Path) -> Questions | None:
    """The questions for the explainer in a folder; None if it needs code that is not stored with it."""
    network = explainers.read_description(folder).get("network")
    arrays = read_arrays(folder / explainers.ARRAYS)
    if network is None:
        shape = read_arrays(folder / explainers.AGENT)["probabilities"].shape
        return _about_table(shape, arrays["pairs"])
    if network.get("kind") == MODEL:
        return None
    if network.get("kind") == MIXTURE:  # its model needs the policy and the outcomes
        network = network["network"]
        start = "network."
        arrays = {name.removeprefix(start): arrays[name] for name in arrays if name.startswith(start)}
    return _about_network(network, arrays)


def _about_table(shape: tuple[int, ...], pairs: Array) -> Questions:
    """Questions for a policy [state, action] and its known pairs, some of which are the examples."""
    num_states, num_actions = shape
    states, actions = np.divmod(pairs, num_actions)
    twice = np.flatnonzero(states[1:] == states[:-1])[:SHOWN_EXAMPLES]  # action and foil are known
    shown: dict[str, Any] = {STATE: states[twice], ACTION: actions[twice], FOIL: actions[twice + 1]}
    if not len(twice):
        shown = {STATE: states[:1], ACTION: actions[:1], FOIL: [None] * len(states[:1])}
    return Questions(Numbered(STATE, num_states), Numbered(ACTION, num_actions), pd.DataFrame(shown))


def _about_network(network: Mapping[str, Any], arrays: Mapping[str, Array]) -> Questions:
    """Questions for a network; the example is the mean observation, with the first and the last action."""
    actions: Kind
    observed, acted = from_plain(network["observation_space"]), from_plain(network["action_space"])
    states, state = _about_space(observed, network["hidden_state"], arrays, "encoder.")
    if isinstance(acted, spaces.Discrete):
        actions, fact, foil = Numbered(ACTION, int(acted.n)), 0, int(acted.n) - 1
    elif isinstance(acted, spaces.Box):
        actions = Numbers(acted.shape, acted.low, acted.high)
        fact, foil = acted.low.tolist(), acted.high.tolist()
    else:
        parts = actions = _categories(acted)
        fact, foil = parts.low.tolist(), parts.high.tolist()
    return Questions(states, actions, pd.DataFrame({STATE: [state], ACTION: [fact], FOIL: [foil]}))


def _about_space(
    space: spaces.Space[Any], hidden_state: int, arrays: Mapping[str, Array], encoder: str
) -> tuple[Kind, Any]:
    """The parser of observations for the encoder of this name, and an example observation."""
    match space:
        case spaces.Dict():
            parts = {
                name: _about_space(part, 0, arrays, f"{encoder}parts.{index}.")
                for index, (name, part) in enumerate(space.spaces.items())
            }
            kinds = Fields({name: kind for name, (kind, _) in parts.items()})
            return kinds, {name: example for name, (_, example) in parts.items()}
        case spaces.Discrete():
            return Numbered(STATE, int(space.n)), 0
        case spaces.MultiDiscrete() if not hidden_state:
            kind = _categories(space)
            return kind, kind.low.tolist()
    shape = (size_of(space) + hidden_state,) if hidden_state else tuple(space.shape or ())
    mean = _mean(arrays, encoder, shape)
    return Numbers(shape, np.full(shape, -np.inf), np.full(shape, np.inf)), mean.reshape(shape).tolist()


def _categories(space: spaces.Space[Any]) -> Categories:
    parts = ActionParts.of(space)
    assert parts is not None
    first, last = (each.reshape(parts.shape) for each in (parts.first, parts.first + parts.counts - 1))
    return Categories(parts.shape, first, last)


def _mean(arrays: Mapping[str, Array], encoder: str, shape: tuple[int, ...]) -> Array:
    """The mean that the first encoder of this name holds; all parts of the network share it."""
    end = f".{encoder}mean"
    means = (array for name, array in arrays.items() if name.startswith("weight.") and name.endswith(end))
    return next(means, np.zeros(shape))
