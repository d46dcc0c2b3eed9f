"""The replay buffer: observed transitions, the newest so many."""

from dataclasses import dataclass

import numpy as np

from tpd.core.types import Array, FloatArray, IntArray, State
from tpd.guards.sizes import require_memory


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


class ReplayBuffer:
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
        self._make_room(experience)
        rows = (self._written + np.arange(len(experience))) % self.capacity
        for kept, column in zip(self._columns, experience.columns(), strict=True):
            kept[rows] = column
        self._written += len(experience)

    def _make_room(self, experience: Experience) -> None:
        """Grow with what comes, for the capacity may never be needed."""
        room = len(self._columns[0]) if self._columns else 0
        due = min(self.capacity, self._written + len(experience))
        if due <= room:
            return
        size = min(self.capacity, max(due, 2 * room))
        grown = []
        for k, column in enumerate(experience.columns()):
            shape = (size, *column.shape[1:])
            require_memory(
                "what is kept for replay", shape, column.dtype, "use a smaller explainer.replay_size"
            )
            grown.append(np.empty(shape, column.dtype))
            if room:
                grown[k][:room] = self._columns[k]
        self._columns = tuple(grown)

    def state(self) -> State:
        """All that is kept, and where the next is written."""
        kept = {f"column_{k}": column[: len(self)] for k, column in enumerate(self._columns)}
        return {"written": np.array(self._written), **kept}

    def restore(self, state: State) -> None:
        """Keep that, and nothing else."""
        self.clear()
        count = len(state) - 1
        if count:
            self.add(Experience(*(state[f"column_{k}"] for k in range(count))))
        self._written = int(state["written"])

    def __getitem__(self, rows: IntArray | slice) -> Experience:
        return Experience(*(column[: len(self)][rows] for column in self._columns))

    def sample(self, size: int, rng: np.random.Generator) -> Experience:
        """A random batch."""
        return self[rng.integers(len(self), size=size)]
