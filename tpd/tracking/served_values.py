"""Parses and checks the values of a request, by the type of state or action."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpd.core.observations import pack
from tpd.core.types import Array, FloatArray
from tpd.guards.settings import shown

LARGEST_SHOWN = 10**15


class RequestError(ValueError):
    """A question that cannot be answered."""


@dataclass(frozen=True)
class Numbered:
    """Discrete states or actions, numbered from 0."""

    noun: str
    count: int

    def read(self, value: Any) -> int:
        """The number, which may be a float if its column has gaps."""
        if not _is_number(value) or value != value // 1:
            raise RequestError(f"{shown(value)} is not a whole number")
        if not 0 <= value < self.count:
            article = "an" if self.noun[0] in "aeiou" else "a"
            said = f"{value:.15g}" if abs(value) < LARGEST_SHOWN else shown(value)
            raise RequestError(
                f"{said} is not {article} {self.noun}; they are numbered from 0 to {self.count - 1}"
            )
        return int(value)

    @property
    def description(self) -> str:
        return f"a whole number from 0 to {self.count - 1}"


@dataclass(frozen=True)
class Numbers:
    """States or actions that are arrays of numbers, as nested lists."""

    shape: tuple[int, ...]
    low: Array
    """[*shape]"""
    high: Array
    """[*shape]"""

    def read(self, value: Any) -> Array:
        """The numbers [*shape]."""
        numbers = _array(value)
        if numbers.shape != self.shape:
            raise RequestError(f"expected {self.description}, got {_size(numbers.shape)}")
        for place in np.argwhere(
            ~np.isfinite(numbers) | (numbers < self.low) | (numbers > self.high)
        ).tolist():
            value, low, high = (float(array[tuple(place)]) for array in (numbers, self.low, self.high))
            right = f"in [{low:g}, {high:g}]" if np.isfinite(value) else "finite"
            raise RequestError(f"entry {', '.join(map(str, place))} is {value:g}, which is not {right}")
        return numbers

    @property
    def description(self) -> str:
        return _size(self.shape)


@dataclass(frozen=True)
class Categories(Numbers):
    """States or actions that consist of integers, each with its own bounds."""

    def read(self, value: Any) -> Array:
        """The numbers [*shape]."""
        numbers = super().read(value)
        for place in np.argwhere(numbers != numbers // 1).tolist():
            found = float(numbers[tuple(place)])
            raise RequestError(
                f"entry {', '.join(map(str, place))} is {found:g}, which is not a whole number"
            )
        return numbers.astype(np.int64)

    @property
    def description(self) -> str:
        return super().description.replace("numbers", "whole numbers")


@dataclass(frozen=True)
class Fields:
    """States of a Dict space, as objects with one field per part."""

    parts: Mapping[str, "Kind"]

    def read(self, value: Any) -> dict[str, Any]:
        """The parsed value of each part."""
        if not isinstance(value, Mapping) or set(value) != set(self.parts):
            raise RequestError(f"expected {self.description}, got {shown(value)}")
        found = {}
        for name, part in self.parts.items():
            try:
                found[name] = part.read(value[name])
            except RequestError as error:
                raise RequestError(f"{name}: {error}") from None
        return found

    @property
    def description(self) -> str:
        parts = [f"{name} ({part.description})" for name, part in self.parts.items()]
        return f"an object of {', '.join(parts)}"


Kind = Numbered | Numbers | Categories | Fields


def stacked(kind: Kind, values: Sequence[Any]) -> Array:
    """[row, ...]: the parsed values as one array; for a Dict space, a structured array."""
    if not isinstance(kind, Fields):
        return np.array(values)
    return pack({name: stacked(part, [one[name] for one in values]) for name, part in kind.parts.items()})


def _array(value: Any) -> FloatArray:
    """Nested lists of numbers as an array."""
    try:
        numbers = np.asarray(value)
    except ValueError:  # lists of different lengths
        numbers = np.asarray(None)
    if numbers.dtype.kind not in "fiu":
        raise RequestError(f"{shown(value)} is not a list of numbers")
    with np.errstate(over="ignore"):  # overflow gives inf, which is refused
        return numbers.astype(np.float32)


def _size(shape: tuple[int, ...]) -> str:
    return f"a list of {' x '.join(map(str, shape))} numbers" if shape else "a single number"


def _is_number(value: Any) -> bool:
    if isinstance(value, float | np.floating):
        return math.isfinite(value)
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))
