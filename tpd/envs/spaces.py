"""Spaces as plain values, so that JSON can hold them and no code has to run to read them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tpd.core.types import Array
from tpd.guards.sizes import require_memory


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
    """The space that `to_plain` wrote down."""
    match plain["kind"]:
        case "Dict":
            return spaces.Dict(
                [(key, from_plain(part)) for key, part in plain["spaces"].items()]
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
            _require_room(np.atleast_1d(plain["n"]).tolist(), np.int8)
            return spaces.MultiBinary(plain["n"])
    raise ValueError(f"there is no space of kind {plain['kind']!r}")


def _digits(values: Array) -> Any:
    """All of them, or the only one if they are all the same."""
    flat = values.ravel()
    return str(flat[0]) if len(flat) and (flat == flat[0]).all() else values.astype(str).tolist()


def _array(plain: Mapping[str, Any], name: str, dtype: npt.DTypeLike) -> Array:
    _require_room(plain["shape"], dtype)
    return np.array(np.broadcast_to(np.array(plain[name], dtype=str).astype(dtype), plain["shape"]))


def _require_room(shape: list[int], dtype: npt.DTypeLike) -> None:
    require_memory("a space", tuple(shape), np.dtype(dtype).name, "such observations cannot be had here")
