"""Transitions encoded for a learned model, and their replay buffer."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces

from tpd.core.types import Array, BoolArray, FloatArray, State, Transitions
from tpd.guards.files import CheckedArrays
from tpd.guards.sizes import require_memory
from tpd.predictors.model.simulation import encode_actions
from tpd.predictors.model.world_model import Batch


@dataclass(frozen=True)
class Steps:
    """A batch of transitions, encoded as numbers."""

    observation: FloatArray
    """[batch, observation]: without the hidden state of a recurrent policy"""
    action: FloatArray
    """[batch, action]: encoded"""
    next_observation: FloatArray
    """[batch, observation]"""
    reward: FloatArray
    """[batch]"""
    end: BoolArray
    """[batch]: whether the episode terminates"""

    @classmethod
    def of(cls, transitions: Transitions, action_space: spaces.Space[object], observed: int) -> "Steps":
        """Encode transitions."""
        before, after = (
            seen.reshape(len(seen), -1)[:, :observed].astype(np.float32)
            for seen in (transitions.observation, transitions.next_observation)
        )
        action = encode_actions(action_space, transitions.action).numpy()
        return cls(before, action, after, transitions.reward.astype(np.float32), transitions.terminated)

    @classmethod
    def none(cls, observed: int, acted: int) -> "Steps":
        """An empty batch with these sizes."""
        seen, done = np.zeros((0, observed), np.float32), np.zeros((0, acted), np.float32)
        return cls(seen, done, seen, np.zeros(0, np.float32), np.zeros(0, np.bool_))

    def __len__(self) -> int:
        return len(self.reward)

    def columns(self) -> tuple[Array, ...]:
        """The arrays, in order."""
        return (self.observation, self.action, self.next_observation, self.reward, self.end)

    def __getitem__(self, index: Array | slice) -> "Steps":
        return Steps(*(column[index] for column in self.columns()))

    def tensors(self, device: torch.device) -> Batch:
        """The batch as tensors for the model."""
        columns = (torch.as_tensor(column, dtype=torch.float32, device=device) for column in self.columns())
        return Batch(*columns)


class StepBuffer:
    """A ring buffer of steps: once it is full, the oldest are overwritten."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._columns: tuple[Array, ...] = ()
        self._written = 0

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    def add(self, steps: Steps) -> None:
        """Keep a batch."""
        steps = steps[-self.capacity :]
        due = min(self.capacity, self._written + len(steps))
        if not self._columns or due > len(self._columns[0]):
            size = min(self.capacity, max(due, 2 * len(self)))
            self._columns = tuple(
                _grown(column[: len(self)], size) for column in self._columns or steps[:0].columns()
            )
        rows = (self._written + np.arange(len(steps))) % self.capacity
        for kept, column in zip(self._columns, steps.columns(), strict=True):
            kept[rows] = column
        self._written += len(steps)

    def __getitem__(self, rows: Array | slice) -> Steps:
        return Steps(*(column[: len(self)][rows] for column in self._columns))

    def state(self) -> State:
        """All steps, and the write position."""
        kept = {f"column_{k}": column[: len(self)] for k, column in enumerate(self._columns)}
        return {"written": np.array(self._written), **kept}

    def restore(self, state: State, due: Steps) -> None:
        """Replace the contents by a saved state, whose columns must be like those of `due`."""
        self._columns, self._written = (), 0
        stored = CheckedArrays(state)
        written = stored.number("written")
        if len(state) > 1 or written:
            rows, columns = min(written, self.capacity), enumerate(due.columns())
            self.add(Steps(*(stored.like(f"column_{k}", column, rows=rows) for k, column in columns)))
        self._written = written


def _grown(column: Array, size: int) -> Array:
    """The column, enlarged to `size` rows."""
    shape = (size, *column.shape[1:])
    require_memory("the replay buffer", shape, column.dtype, "use a smaller explainer.replay_size")
    grown = np.empty(shape, column.dtype)
    grown[: len(column)] = column
    return grown
