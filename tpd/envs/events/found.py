"""What is found in any environment: entries of its `info`, and ways in which its episodes terminate."""

from collections.abc import Sequence

import numpy as np

from tpd.core.types import BoolArray, FloatArray, Transitions


def flag(t: Transitions, key: str) -> BoolArray:
    """An entry of `info` is true, or a number other than 0."""
    return np.asarray(t.info[key]).astype(np.bool_).reshape(len(t))


def term(t: Transitions, key: str) -> FloatArray:
    """The number that `info` has under this key."""
    return np.asarray(t.info[key]).astype(np.float64).reshape(len(t))


def ended_with(t: Transitions, low: float | None = None, high: float | None = None) -> BoolArray:
    """The episode terminates with a reward of at least `low` and below `high`, where they are given."""
    within = t.terminated.astype(np.bool_)
    if low is not None:
        within = within & (t.reward >= low)
    if high is not None:
        within = within & (t.reward < high)
    return np.asarray(within)


def ended_without(t: Transitions, keys: Sequence[str]) -> BoolArray:
    """The episode terminates, and none of these flags in `info` is true."""
    otherwise = t.terminated.astype(np.bool_)
    for key in keys:
        otherwise = otherwise & ~flag(t, key)
    return np.asarray(otherwise)
