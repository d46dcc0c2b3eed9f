"""Events found in any environment: entries of `info`, and kinds of termination."""

from collections.abc import Sequence

import numpy as np

from tpd.core.types import BoolArray, FloatArray, Transitions


def flag(t: Transitions, key: str) -> BoolArray:
    """An entry of `info` is true or nonzero."""
    return np.asarray(t.info[key]).astype(np.bool_).reshape(len(t))


def term(t: Transitions, key: str) -> FloatArray:
    """The number stored in `info` under this key."""
    return np.asarray(t.info[key]).astype(np.float64).reshape(len(t))


def ended_with(t: Transitions, low: float | None = None, high: float | None = None) -> BoolArray:
    """The episode terminates with a reward of at least `low` and below `high` (None: no bound)."""
    within = t.terminated.astype(np.bool_)
    if low is not None:
        within = within & (t.reward >= low)
    if high is not None:
        within = within & (t.reward < high)
    return np.asarray(within)


def ended_without(t: Transitions, keys: Sequence[str]) -> BoolArray:
    """The episode terminates while none of these flags in `info` is set."""
    otherwise = t.terminated.astype(np.bool_)
    for key in keys:
        otherwise = otherwise & ~flag(t, key)
    return np.asarray(otherwise)
