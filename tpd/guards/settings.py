"""Checks of settings where they enter; an error names the setting and what would be right."""

import difflib
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")

LONGEST_SHOWN = 60
MOST = 1e15
"""Upper bound for loop counts."""


def shown(value: object) -> str:
    """A value for an error message: on one line, and shortened."""
    try:
        said = " ".join(repr(value).split())
    except ValueError:  # Python refuses to print integers with thousands of digits
        return "a very long number"
    return said if len(said) <= LONGEST_SHOWN else f"{said[:LONGEST_SHOWN]} ..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint with the known words closest to an unknown one, for an error; empty if none is close."""
    known = sorted(known)
    inner = [each for each in known if each.rpartition(".")[2] == word]
    near = inner or difflib.get_close_matches(word, known, 1)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def whole_number(name: str, value: object, at_least: int, at_most: float = MOST) -> int:
    """The value as an int; 5e6 is accepted, 0.5 and "many" are not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    if value < at_least:
        raise ValueError(f"{name} must be {at_least} or more, got {shown(value)}")
    if value > at_most:
        raise ValueError(f"{name} must be {at_most:g} or less, got {shown(value)}")
    return int(value)


def number(name: str, value: object, low: float, high: float, *, above_low: bool = False) -> float:
    """The value as a float in [low, high], or in (low, high] if `above_low` is set."""
    inside = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (low < value if above_low else low <= value)
        and value <= high
    )
    if not inside:
        raise ValueError(f"{name} must lie in {'(' if above_low else '['}{low}, {high}], got {shown(value)}")
    return float(value)  # type: ignore[arg-type]  # checked above


def boolean(name: str, value: object) -> bool:
    """The value, if it is a boolean; strings are refused."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {shown(value)}")
    return value


def one_of(name: str, value: T, allowed: Collection[T]) -> T:
    """The value, if it is allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {shown(value)}")
    return value


def numbered(name: str, values: npt.NDArray[Any], count: int | None = None) -> npt.NDArray[np.integer[Any]]:
    """The values [batch], if they are integers from 0, below `count` if it is given."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be a batch of whole numbers, got {values.dtype} of shape {values.shape}"
        )
    wrong = values < 0 if count is None else (values < 0) | (values >= count)
    if wrong.any():
        last = "on" if count is None else f"to {count - 1}"
        raise ValueError(f"{name} must be numbered from 0 {last}, got {values[wrong][0]}")
    return values
