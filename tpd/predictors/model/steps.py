"""Transitions encoded for a learned model, and their replay buffer."""

from dataclasses import dataclass

import numpy as np
import torch
from gymnasium import spaces

from tpd.core.types import Array, BoolArray, FloatArray, State, Transitions
from tpd.guards.files import CheckedArrays
from tpd.predictors.model.simulation import encode_actions
from tpd.predictors.model.world_model import Batch
from tpd.predictors.network.replay_buffer import Ring, Rows


@dataclass(frozen=True)
class Steps(Rows):
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

    def tensors(self, device: torch.device) -> Batch:
        """The batch as tensors for the model."""
        columns = (torch.as_tensor(column, dtype=torch.float32, device=device) for column in self.columns())
        return Batch(*columns)


class StepBuffer(Ring):
    """The newest steps."""

    def add(self, steps: Steps) -> None:
        """Keep a batch."""
        steps = steps[-self.capacity :]
        rows = (self._written + np.arange(len(steps))) % self.capacity
        self._write(steps.columns(), rows, len(steps))

    def __getitem__(self, rows: Array | slice) -> Steps:
        return Steps(*(column[: len(self)][rows] for column in self._columns))

    def restore(self, state: State, due: Steps) -> None:
        """Replace the contents by a saved state, whose columns must be like those of `due`."""
        self.clear()
        stored = CheckedArrays(state)
        written = stored.number("written")
        if len(state) > 1 or written:
            rows, columns = min(written, self.capacity), enumerate(due.columns())
            self.add(Steps(*(stored.like(f"column_{k}", column, rows=rows) for k, column in columns)))
        self._written = written
