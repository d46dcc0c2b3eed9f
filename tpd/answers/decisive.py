"""Decisive events: events that end an episode, or that carry a large part of the reward."""

from collections.abc import Collection

import numpy as np

from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import FloatArray
from tpd.sources.episodes import Recording

LARGE_STAKE = 0.1
"""The reward of an event is large from this fraction of the largest possible reward on."""


def plain_events(legend: Legend) -> dict[str, int]:
    """Event -> column: its own or, if only the first occurrence is explained, that one's."""
    columns = dict[str, int]()
    for name in legend.events:
        plain = name.removeprefix(FIRST)
        if plain not in columns or name == plain:
            columns[plain] = legend.names.index(name)
    return columns


def decisive_after(explanation: Explanation) -> list[str]:
    """The decisive events of an explanation [1]."""
    ended = np.diff(1 - explanation.running[0] - explanation.unknown[0], prepend=0)
    return _with_stakes(explanation.legend, _ending(explanation.legend, explanation.expected[0], ended))


def decisive_in(recording: Recording, legend: Legend) -> list[str]:
    """The decisive events of recorded episodes."""
    return _with_stakes(legend, ending_in(recording, legend))


def ending_in(recording: Recording, legend: Legend) -> list[str]:
    """The events that happen in recorded episodes, and only at termination."""
    return _ending(legend, recording.happened, recording.episodes.transitions.terminated.astype(float))


def _ending(legend: Legend, happened: FloatArray, ended: FloatArray) -> list[str]:
    """Events that happen only at termination, from outcomes [step, outcome] and terminations [step].

    Both may be probabilities.
    """
    found = list[str]()
    for name, column in plain_events(legend).items():
        how_often = float(happened[:, column].sum())
        elsewhere = float(np.maximum(happened[:, column] - ended, 0).sum())
        if how_often > 0 and elsewhere <= TOLERATED * how_often:
            found.append(name)
    return found


def _with_stakes(legend: Legend, ending: Collection[str]) -> list[str]:
    """The events that end episodes, and those that carry a large part of the reward."""
    return [name for name in plain_events(legend) if name in ending or _at_stake(legend, name)]


def _at_stake(legend: Legend, name: str) -> bool:
    weight = legend.weights[legend.names.index(name)] if name in legend.names else None
    if weight is None or legend.reward_bound is None:
        return False
    return 0 < LARGE_STAKE * legend.reward_bound <= abs(weight)
