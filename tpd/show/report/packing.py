"""Packs arrays and metadata into one block of bytes; `unpacked` in data.js reads it without copying."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpd.core.types import Array, FloatArray

ALIGNMENT = 8
LEVELS = 65535
KINDS = {"u1": np.uint8, "i4": np.int32, "f4": np.float32, "f8": np.float64}


@dataclass(frozen=True)
class Quantised:
    """Numbers quantised to 16 bits between the minimum and the maximum of their kind."""

    planes: Array
    """[2, kind, ...]: low bytes, then high bytes"""
    low: FloatArray
    """[kind]"""
    span: FloatArray
    """[kind]"""

    @classmethod
    def of(cls, values: FloatArray, low: FloatArray, high: FloatArray) -> "Quantised":
        """Quantise values [kind, ...] that lie within their bounds [kind]."""
        span = np.where(high > low, high - low, 1.0)
        shape = (-1,) + (1,) * (values.ndim - 1)
        levels = np.rint((values - low.reshape(shape)) / span.reshape(shape) * LEVELS).astype("<u2")
        return cls(np.stack([levels & 255, levels >> 8]).astype(np.uint8), low, span)


def pack(metadata: Mapping[str, Any], arrays: Mapping[str, Array]) -> bytes:
    """The metadata as JSON with the offset of each array, followed by the arrays; compressed."""
    places, body = dict[str, Any](), bytearray()
    for name, array in arrays.items():
        kind = next(kind for kind, dtype in KINDS.items() if array.dtype == dtype)
        places[name] = {"kind": kind, "shape": array.shape, "begin": len(body)}
        body += np.ascontiguousarray(array).astype(f"<{kind}").tobytes()
        body += bytes(-len(body) % ALIGNMENT)
    text = json.dumps({**metadata, "arrays": places}, allow_nan=False, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % ALIGNMENT)
    return gzip.compress(len(text).to_bytes(4, "little") + text + bytes(body), mtime=0)
