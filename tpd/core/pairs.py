"""State-action pairs of discrete spaces as integers: state * num_actions + action."""

import zlib

import numpy as np

from tpd.core.types import Array, BoolArray, IntArray
from tpd.guards.settings import numbered

NO_PAIR = -1
"""The number of a pair that does not exist."""
IN_MEMORY, IN_CACHE = 1000, 32
"""Numbers of pairs whose posterior samples fit into memory, and roughly into the cache of a core."""


def blocks(pairs: int, at_once: int = IN_CACHE) -> list[slice]:
    """Blocks of pairs, to compute with posterior samples block by block."""
    return [slice(start, start + at_once) for start in range(0, pairs, at_once)]


def pair_numbers(observations: Array, actions: Array, num_actions: int) -> IntArray:
    """[batch]: state * num_actions + action; raises if an action does not exist."""
    observations, actions = np.asarray(observations), np.asarray(actions)
    if observations.shape != actions.shape:
        raise ValueError(f"observations of shape {observations.shape} but actions of shape {actions.shape}")
    states, actions = numbered("observations", observations), numbered("actions", actions, num_actions)
    return pair_of(states, actions, num_actions)


def pair_of(states: Array, actions: Array, num_actions: int) -> IntArray:
    """The number of each pair as int64, which does not overflow even if the states have a narrow dtype."""
    pair: IntArray = states * np.int64(num_actions) + actions
    return pair


def locate(ascending: IntArray, values: IntArray) -> tuple[IntArray, BoolArray]:
    """The position of each value in an ascending array, and whether it is in the array."""
    if len(ascending) == 0:
        return np.zeros(values.shape, dtype=np.int64), np.zeros(values.shape, dtype=np.bool_)
    position = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return position, np.asarray(ascending[position] == values)


def row_numbers(*batches: Array) -> IntArray:
    """[batch]: a CRC-32 checksum of row i over all batches; equal rows have equal numbers."""
    numbers = np.zeros(len(batches[0]), dtype=np.int64)
    for batch in batches:
        rows = (np.ascontiguousarray(row).tobytes() for row in batch)
        found = [zlib.crc32(row, int(number)) for row, number in zip(rows, numbers, strict=True)]
        numbers = np.array(found, dtype=np.int64)
    return numbers
