"""Converts spaces to plain JSON values and back, so that reading them runs no code."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tpd.core.types import Array
from tpd.guards.settings import MOST, shown, whole_number

LARGEST_SPACE = 40_000_000
"""Upper bound on the bytes of one element; a 4K picture has 25 million."""
DEEPEST = 10
"""Upper bound on the nesting of Dict spaces."""
LONGEST_NUMBER = 60
BEYOND = 10
"""A float may exceed the bounds of a Box by this many times its width: Gymnasium does not enforce bounds,
and LunarLander rises to five times the height of its Box.
"""


def to_plain(space: spaces.Space[Any]) -> dict[str, Any]:
    """A numeric space, or a Dict of them, as JSON values; numbers become text, to keep all digits."""
    dtype = str(space.dtype)
    match space:
        case spaces.Dict():
            return {"kind": "Dict", "spaces": {key: to_plain(part) for key, part in space.items()}}
        case spaces.Box():
            bounds = {"low": _digits(space.low), "high": _digits(space.high)}
            return {"kind": "Box", "shape": list(space.shape), "dtype": dtype, **bounds}
        case spaces.Discrete():
            return {"kind": "Discrete", "n": int(space.n), "start": int(space.start), "dtype": dtype}
        case spaces.MultiDiscrete():
            sizes = {"nvec": _digits(space.nvec), "start": _digits(space.start)}
            return {"kind": "MultiDiscrete", "shape": list(space.shape), "dtype": dtype, **sizes}
        case spaces.MultiBinary():
            return {"kind": "MultiBinary", "n": space.n if isinstance(space.n, int) else list(space.n)}
    raise TypeError(
        f"{space} cannot be stored: only Box, Discrete, MultiDiscrete, MultiBinary and Dict spaces can"
    )


def from_plain(plain: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space written by `to_plain`; refused if it is too large."""
    if (size := _bytes(plain)) > LARGEST_SPACE:
        raise ValueError(f"an element of the space has {size} bytes, more than the limit of {LARGEST_SPACE}")
    return _made(plain)


def _bytes(plain: Mapping[str, Any], depth: int = 0) -> int:
    """Size of an element of the space; refused if the space is nested too deep or has unnamed parts."""
    if plain["kind"] == "Dict":
        if depth == DEEPEST or "" in plain["spaces"]:
            wrong = f"is nested more than {DEEPEST} levels deep" if depth == DEEPEST else "has an empty key"
            raise ValueError(f"a Dict space {wrong}")
        return sum(_bytes(part, depth + 1) for part in plain["spaces"].values())
    shape = np.atleast_1d(plain["n"]).tolist() if plain["kind"] == "MultiBinary" else plain.get("shape", [])
    sizes = [whole_number("a size of a space", size, at_least=0) for size in shape]
    return math.prod(sizes) * int(np.dtype(plain.get("dtype", "int8")).itemsize)


def _made(plain: Mapping[str, Any]) -> spaces.Space[Any]:
    match plain["kind"]:
        case "Dict":
            return spaces.Dict(
                [(key, _made(part)) for key, part in plain["spaces"].items()]
            )  # preserves the order
        case "Box":
            dtype = np.dtype(plain["dtype"]).type
            low, high = _array(plain, "low", dtype), _array(plain, "high", dtype)
            return spaces.Box(low, high, tuple(plain["shape"]), dtype)
        case "Discrete":
            count = whole_number("the size of a space", plain["n"], at_least=1)
            start = whole_number("the start of a space", plain["start"], at_least=int(-MOST))
            return spaces.Discrete(count, start=start, dtype=np.dtype(plain["dtype"]).type)
        case "MultiDiscrete":
            dtype = np.dtype(plain["dtype"]).type
            return spaces.MultiDiscrete(
                _array(plain, "nvec", dtype), dtype, start=_array(plain, "start", dtype)
            )
        case "MultiBinary":
            return spaces.MultiBinary(plain["n"])
    raise ValueError(f"unknown type of space: {plain['kind']!r}")


def _digits(values: Array) -> Any:
    """All values as text; a single one if all are equal."""
    flat = values.ravel()
    return str(flat[0]) if len(flat) and (flat == flat[0]).all() else values.astype(str).tolist()


def _array(plain: Mapping[str, Any], name: str, dtype: npt.DTypeLike) -> Array:
    digits = np.array(plain[name], dtype=object)  # text arrays have one element size
    for number in digits.flat:
        if not isinstance(number, str | int | float) or len(str(number)) > LONGEST_NUMBER:
            raise ValueError(f"a bound or size of a space must be a number, got {shown(number)}")
    return np.array(np.broadcast_to(digits.astype(dtype), plain["shape"]))


def size_of(space: spaces.Space[Any]) -> int:
    """The number of discrete elements, or the numbers in an element."""
    return int(space.n) if isinstance(space, spaces.Discrete) else math.prod(space.shape or ())


def check_members(
    name: str, values: Array, space: spaces.Space[Any], hidden_state: int | None = 0, first_row: int = 0
) -> None:
    """Refuse values [batch, ...] that are not in the space.

    hidden_state: size of the recurrent policy's hidden state appended to each vector; None if unknown.
    first_row: the number of the first row in error messages.
    """
    if not _fits(values, space, hidden_state):
        found = f"dtype {values.dtype!s:.80} and shape {values.shape[1:]}"
        raise ValueError(f"{name} has {found}, which does not fit {shown(space)}")
    if isinstance(space, spaces.Dict):
        for key, part in space.items():
            check_members(f"{name}.{key}", values[key], part, first_row=first_row)
    elif len(values):
        low, high = _limits(space)
        seen = values if values.ndim == 1 else values[:, : (space.shape or (0,))[0]]  # no hidden state
        if not np.all((seen.min(axis=0) >= low) & (seen.max(axis=0) <= high)):
            wrong = tuple(np.argwhere(~((seen >= low) & (seen <= high)))[0])
            row = first_row + wrong[0]
            raise ValueError(f"{name} has {seen[wrong]} in row {row}, which is not in {shown(space)}")


def _fits(values: Array, space: spaces.Space[Any], hidden_state: int | None) -> bool:
    """Whether dtype and shape of the values match the space."""
    if isinstance(space, spaces.Dict):
        return values.dtype.names == tuple(space)
    shape, due = values.shape[1:], space.shape or ()
    kinds = "iu" if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else "biuf"
    if values.dtype.itemsize > 8 or not values.dtype.isnative or values.dtype.kind not in kinds:
        return False
    if len(due) != 1 or len(shape) != 1 or hidden_state == 0:
        return shape == due
    return shape >= due if hidden_state is None else shape[0] == due[0] + hidden_state


def _limits(space: spaces.Space[Any]) -> tuple[Any, Any]:
    """The smallest and the largest allowed value, with the shape of a value."""
    match space:
        case spaces.Discrete():
            return int(space.start), int(space.start + space.n) - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
        case spaces.Box():
            if space.dtype.kind != "f":
                return space.low, space.high
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            size = np.where(np.isfinite(high - low), high - low, np.fmin(abs(low), abs(high)))
            beyond = BEYOND * np.maximum(np.where(np.isfinite(size), size, 1), 1)
            most = np.finfo(np.float64).max  # unbounded, but finite
            return np.maximum(low - beyond, -most), np.minimum(high + beyond, most)
    return 0, 1
