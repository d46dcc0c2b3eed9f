"""Actions that consist of parts with a few choices each: MultiDiscrete and MultiBinary spaces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tpd.core.types import Array, IntArray, Rng
from tpd.guards.settings import shown

NUMBERED = "part {}"
"""The name of a part that has none, by its index."""


@dataclass(frozen=True)
class ActionParts:
    """The parts of an action space, with names for the parts and their choices."""

    first: IntArray
    """[part]: the number of the first choice"""
    counts: IntArray
    """[part]: the number of choices"""
    shape: tuple[int, ...]
    """The shape of an action; parts are numbered in C order."""
    dtype: npt.DTypeLike
    names: tuple[str, ...] = ()
    """[part]"""
    choice_names: tuple[str, ...] = ()
    """[choice]: names shared by all parts; if empty, choices are numbered"""

    @classmethod
    def of(
        cls, space: spaces.Space[Any], names: Sequence[str] = (), choice_names: Sequence[str] = ()
    ) -> "ActionParts | None":
        """The parts of a space; None if its actions have no parts."""
        if isinstance(space, spaces.MultiDiscrete):
            first, counts = np.ravel(space.start).astype(np.int64), np.ravel(space.nvec).astype(np.int64)
        elif isinstance(space, spaces.MultiBinary):
            size = int(np.prod(space.shape))
            first, counts = np.zeros(size, dtype=np.int64), np.full(size, 2)
        else:
            return None
        named = tuple(names) or tuple(map(NUMBERED.format, range(len(counts))))
        return cls(first, counts, tuple(space.shape), space.dtype, named, tuple(choice_names))

    def check(self, owner: str) -> None:
        """Refuse a wrong number of names for parts or choices."""
        if not (self.counts > 1).any():
            raise ValueError(f"{owner} has only one action, because every part of it has a single choice")
        for what, names, due in (
            ("parts", self.names, len(self.counts)),
            ("choices", self.choice_names, int(self.counts.max())),
        ):
            if names and len(names) != due:
                raise ValueError(f"an action of {owner} has {due} {what} but {len(names)} names: {names}")

    def changes(self, action: Array) -> Array:
        """[change, ...]: all actions that differ from this one in exactly one part."""
        flat = np.ravel(action)
        others = [(part, choice) for part, choice in self.all_choices if choice != flat[part]]
        changed = np.repeat(flat[None], len(others), axis=0)
        for row, (part, choice) in enumerate(others):
            changed[row, part] = choice
        return changed.reshape(-1, *self.shape)

    @property
    def all_choices(self) -> list[tuple[int, int]]:
        """All (part, choice) pairs."""
        bounds = zip(self.first.tolist(), self.counts.tolist(), strict=True)
        return [(part, low + k) for part, (low, count) in enumerate(bounds) for k in range(count)]

    def change_one(self, actions: Array, rng: Rng) -> Array:
        """[batch, ...]: the actions, each with one random part changed; all changes are equally likely."""
        flat, rows = actions.reshape(len(actions), -1).copy(), np.arange(len(actions))
        others = self.counts - 1
        part = rng.choice(len(others), size=len(flat), p=others / others.sum())
        first = self.first[part]
        further = rng.integers(1, self.counts[part])
        flat[rows, part] = first + (flat[rows, part] - first + further) % self.counts[part]
        return flat.reshape(actions.shape)

    def draw(self, count: int, rng: Rng) -> Array:
        """[count, ...]: random actions; every choice of every part is equally likely."""
        drawn = self.first + rng.integers(0, self.counts, (count, len(self.counts)))
        return drawn.reshape(count, *self.shape).astype(self.dtype)

    def holds(self, actions: Array) -> Array:
        """[batch]: which actions [batch, ...] have a valid choice in every part."""
        flat = actions.reshape(len(actions), -1)
        whole = flat == np.floor(flat)
        return np.asarray((whole & (flat >= self.first) & (flat < self.first + self.counts)).all(axis=1))

    def name(self, action: Array) -> str:
        """The choice of each part, as text."""
        return ", ".join(self.name_choice(part, int(choice)) for part, choice in enumerate(np.ravel(action)))

    def name_change(self, action: Array, base: Array) -> str:
        """The parts in which an action differs from the base, as text."""
        flat = np.ravel(action)
        different = np.flatnonzero(flat != np.ravel(base))
        return ", ".join(self.name_choice(int(part), int(flat[part])) for part in different)

    def name_choice(self, part: int, choice: int) -> str:
        """One choice as text, for example `user 3 to cell B`."""
        said = self.choice_names[choice - int(self.first[part])] if self.choice_names else str(choice)
        return f"{self.names[part]} {said}"

    def changed(self, base: Array, wanted: Mapping[Any, Any]) -> Array:
        """The base action with some parts replaced, by name; numbers also name choices, and unnamed parts."""
        flat, unnamed = np.ravel(base).copy(), self.names[0] == NUMBERED.format(0)
        for part, choice in wanted.items():
            place: Any = self.names.index(part) if part in self.names else part if unnamed else None
            if not _within(place, 0, len(flat)):
                raise ValueError(
                    f"an action has no part {shown(part)}; its parts are {', '.join(self.names)}"
                )
            first, count = int(self.first[place]), int(self.counts[place])
            number = first + self.choice_names.index(choice) if choice in self.choice_names else choice
            if not _within(number, first, count):
                known = ", ".join(self.choice_names) or f"{first} to {first + count - 1}"
                raise ValueError(f"{self.names[place]} has no choice {shown(choice)}; it has {known}")
            flat[place] = number
        return flat.reshape(self.shape)


def _within(value: Any, first: int, count: int) -> bool:
    """Whether the value is an integer in [first, first + count)."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and first <= int(value) < first + count
