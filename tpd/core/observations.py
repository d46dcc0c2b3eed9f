"""Observations of Dict spaces as structured arrays: one array, one field for each key."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from tpd.core.types import Array

MOST_NUMBERS = 8
"""Numbers of an observation or action that are shown."""


def pack(observations: Array | Mapping[str, Array]) -> Array:
    """[batch, ...]: a batch as one array; arrays are returned unchanged."""
    if not isinstance(observations, Mapping):
        return np.asarray(observations)
    columns = {key: np.asarray(value) for key, value in observations.items()}
    dtype = np.dtype([(key, value.dtype, value.shape[1:]) for key, value in columns.items()])
    packed = np.empty(len(next(iter(columns.values()))), dtype)
    for key, value in columns.items():
        packed[key] = value
    return packed


def batch(space: spaces.Space[Any], observations: Sequence[Any]) -> Array:
    """[batch, ...]: single observations, joined as a vector environment would join them."""
    empty: Any = create_empty_array(space, len(observations))
    joined: Any = concatenate(space, observations, empty)
    return pack(joined)


def unpack(observations: Array) -> Any:
    """The inverse of `pack`: an array, or a dict of arrays, as the environment returned it."""
    if observations.dtype.names is None:
        return observations
    return {key: observations[key] for key in observations.dtype.names}


def check_space(space: spaces.Space[Any], owner: str) -> None:
    """Refuse spaces whose observations are not arrays."""
    parts = space.spaces.values() if isinstance(space, spaces.Dict) else [space]
    known = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    for part in parts:
        if not isinstance(part, known):
            raise TypeError(
                f"{owner} has observations of {part}, which is not supported; supported are Box, Discrete, "
                "MultiDiscrete and MultiBinary, and a Dict of these"
            )


def numbers(values: Any) -> str:
    """A few numbers as text; those of a dict by their names."""
    if keys := getattr(getattr(values, "dtype", None), "names", None):
        return ", ".join(f"{key} {numbers(values[key])}" for key in keys)
    flat = np.ravel(values)
    shown = ", ".join(f"{value:.3g}" for value in flat[:MOST_NUMBERS])
    return f"({shown}, …)" if len(flat) > MOST_NUMBERS else f"({shown})"
