"""Pairs of numbered state and action as one number each: state * num_actions + action."""

import zlib

import numpy as np

from tpd.core.types import Array, BoolArray, IntArray
from tpd.guards.settings import numbered

NO_PAIR = -1
"""In place of a number, where there is no such pair."""


def pair_numbers(observations: Array, actions: Array, num_actions: int) -> IntArray:
    """[batch]: state * num_actions + action, refused where there is no such action."""
    observations, actions = np.asarray(observations), np.asarray(actions)
    if observations.shape != actions.shape:
        raise ValueError(f"observations of shape {observations.shape} but actions of shape {actions.shape}")
    states, actions = numbered("observations", observations), numbered("actions", actions, num_actions)
    return pair_of(states, actions, num_actions)


def pair_of(states: Array, actions: Array, num_actions: int) -> IntArray:
    """The number of each pair, of a type that is wide enough, however narrow that of the states is."""
    pair: IntArray = states * np.int64(num_actions) + actions
    return pair


def locate(ascending: IntArray, values: IntArray) -> tuple[IntArray, BoolArray]:
    """Where each value stands in an ascending array, and whether it is there."""
    if len(ascending) == 0:
        return np.zeros(values.shape, dtype=np.int64), np.zeros(values.shape, dtype=np.bool_)
    position = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return position, np.asarray(ascending[position] == values)


def row_numbers(*batches: Array) -> IntArray:
    """[batch]: a number for the rows of each, the same for the same."""
    numbers = np.zeros(len(batches[0]), dtype=np.int64)
    for batch in batches:
        rows = (np.ascontiguousarray(row).tobytes() for row in batch)
        found = [zlib.crc32(row, int(number)) for row, number in zip(rows, numbers, strict=True)]
        numbers = np.array(found, dtype=np.int64)
    return numbers
