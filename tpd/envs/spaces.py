"""Spaces as plain values, so that JSON can hold them and no code has to run to read them."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tpd.core.types import Array
from tpd.guards.settings import whole_number

LARGEST_SPACE = 40_000_000
"""Bytes of one element; a picture of 4K takes 25 million."""


def to_plain(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space of numbers, or a dict of such, as JSON has it; digits are text, which loses none."""
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
    raise TypeError(f"{space} cannot be written down: it is neither made of numbers nor a dict of such")


def from_plain(plain: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that `to_plain` wrote down, if it is not absurdly large."""
    if (size := _bytes(plain)) > LARGEST_SPACE:
        raise ValueError(f"a space of {size} bytes is absurd")
    return _made(plain)


def _bytes(plain: Mapping[str, Any]) -> int:
    """How much room an element of the space takes."""
    if plain["kind"] == "Dict":
        return sum(_bytes(part) for part in plain["spaces"].values())
    shape = np.atleast_1d(plain["n"]).tolist() if plain["kind"] == "MultiBinary" else plain.get("shape", [])
    sizes = [whole_number("a size of a space", size, at_least=0) for size in shape]
    return math.prod(sizes) * int(np.dtype(plain.get("dtype", "int8")).itemsize)


def _made(plain: Mapping[str, Any]) -> spaces.Space[Any]:
    match plain["kind"]:
        case "Dict":
            return spaces.Dict(
                [(key, _made(part)) for key, part in plain["spaces"].items()]
            )  # keeps the order
        case "Box":
            dtype = np.dtype(plain["dtype"]).type
            low, high = _array(plain, "low", dtype), _array(plain, "high", dtype)
            return spaces.Box(low, high, tuple(plain["shape"]), dtype)
        case "Discrete":
            return spaces.Discrete(plain["n"], start=plain["start"], dtype=np.dtype(plain["dtype"]).type)
        case "MultiDiscrete":
            dtype = np.dtype(plain["dtype"]).type
            return spaces.MultiDiscrete(
                _array(plain, "nvec", dtype), dtype, start=_array(plain, "start", dtype)
            )
        case "MultiBinary":
            return spaces.MultiBinary(plain["n"])
    raise ValueError(f"there is no space of kind {plain['kind']!r}")


def _digits(values: Array) -> Any:
    """All of them, or the only one if they are all the same."""
    flat = values.ravel()
    return str(flat[0]) if len(flat) and (flat == flat[0]).all() else values.astype(str).tolist()


def _array(plain: Mapping[str, Any], name: str, dtype: npt.DTypeLike) -> Array:
    return np.array(np.broadcast_to(np.array(plain[name], dtype=str).astype(dtype), plain["shape"]))
