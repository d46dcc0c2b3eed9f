"""Refuses arrays that do not fit into memory, before they are allocated."""

import math

import numpy as np
import numpy.typing as npt
import psutil


class TooLargeError(ValueError):
    """Larger than the free memory."""


def require_memory(what: str, shape: tuple[int, ...], dtype: npt.DTypeLike, instead: str) -> None:
    """Refuse an array that is larger than the memory that is free now."""
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    free = psutil.virtual_memory().available
    if needed > free:
        raise TooLargeError(
            f"{what} of {' x '.join(map(str, shape))} {dtype} needs {needed / 1e9:.1f} GB of memory, "
            f"but only {free / 1e9:.1f} GB are free: {instead}"
        )
