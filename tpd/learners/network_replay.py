"""What a network learns from again and again: observed transitions, the newest so many."""

from dataclasses import dataclass

import numpy as np

from tpd.types import Array, FloatArray, IntArray


@dataclass(frozen=True)
class Experience:
    """A batch of transitions with their outcomes observed."""

    observation: Array
    """[batch, ...]"""
    action: Array
    """[batch, ...]"""
    next_observation: Array
    """[batch, ...]"""
    outcome: FloatArray
    """[batch, outcome]"""
    continuation: FloatArray
    """[batch, outcome]"""

    def __len__(self) -> int:
        return len(self.outcome)

    def columns(self) -> tuple[Array, ...]:
        """The arrays, in order."""
        return (self.observation, self.action, self.next_observation, self.outcome, self.continuation)

    def __getitem__(self, index: IntArray | slice) -> "Experience":
        return Experience(*(column[index] for column in self.columns()))


class Replay:
    """A ring: once it is full, the oldest are overwritten."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._columns: tuple[Array, ...] = ()
        self._written = 0

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    def add(self, experience: Experience) -> None:
        """Keep a batch."""
        experience = experience[-self.capacity :]
        if not self._columns:
            self._columns = tuple(
                np.empty((self.capacity, *column.shape[1:]), column.dtype) for column in experience.columns()
            )
        rows = (self._written + np.arange(len(experience))) % self.capacity
        for kept, column in zip(self._columns, experience.columns(), strict=True):
            kept[rows] = column
        self._written += len(experience)

    def __getitem__(self, rows: IntArray | slice) -> Experience:
        return Experience(*(column[: len(self)][rows] for column in self._columns))

    def sample(self, size: int, rng: np.random.Generator) -> Experience:
        """A random batch."""
        return self[rng.integers(len(self), size=size)]
