"""Checks of settings, made where they enter: the error names the setting and what would be right."""

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
    """A value in an error: on one line, and not too long."""
    try:
        said = " ".join(repr(value).split())
    except ValueError:  # thousands of digits, which Python refuses to write
        return "a number without end"
    return said if len(said) <= LONGEST_SHOWN else f"{said[:LONGEST_SHOWN]} ..."


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The known words that are nearest to one that is not, to end an error with; empty if none is near."""
    known = sorted(known)
    inner = [each for each in known if each.rpartition(".")[2] == word]
    near = inner or difflib.get_close_matches(word, known, 1)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def whole_number(name: str, value: object, at_least: int, at_most: float = MOST) -> int:
    """The value as an int; 5e6 is whole, 0.5 and "many" are not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"{name} must be a whole number, got {shown(value)}")
    if value < at_least:
        raise ValueError(f"{name} must be {at_least} or more, got {shown(value)}")
    if value > at_most:
        raise ValueError(f"{name} must be {at_most:g} or less, got {shown(value)}")
    return int(value)


def number(name: str, value: object, low: float, high: float, *, above_low: bool = False) -> float:
    """The value as a float within [low, high], or (low, high] where it must be above."""
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
    """The value, if it is true or false and not merely a word."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false, got {shown(value)}")
    return value


def one_of(name: str, value: T, allowed: Collection[T]) -> T:
    """The value, if it is allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {shown(value)}")
    return value


def numbered(name: str, values: npt.NDArray[Any], count: int | None = None) -> npt.NDArray[np.integer[Any]]:
    """The values [batch], if they are numbers from 0, of which there are so many where that is known."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(f"{name} must be one whole number each, got {values.dtype} of shape {values.shape}")
    wrong = values < 0 if count is None else (values < 0) | (values >= count)
    if wrong.any():
        last = "on" if count is None else f"to {count - 1}"
        raise ValueError(f"{name} must be numbered from 0 {last}, got {values[wrong][0]}")
    return values
