"""MiniGrid levels with observations for networks: every cell of the grid, and the object that is carried."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tpd.core.types import IntArray

OBJECTS, COLOURS, STATES = 11, 6, 4
"""Numbers of values in MiniGrid; the agent's state is its direction, that of an open door is 0."""
EMPTY = 1
"""MiniGrid's number for an empty cell or an empty hand."""


class GridCells(gym.ObservationWrapper[Any, Any, Any]):
    """Observes the whole grid instead of the agent's view, and the object that is carried.

    `cells` [width * height * 3] has the object, colour and state of each cell, column by column; `carrying`
    is the object in the agent's hand. MiniGrid's own `FullyObsWrapper` does not show the latter, and includes
    the mission text, which is the same in all episodes of most levels.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        level: Any = env.unwrapped
        sizes = np.tile([OBJECTS, COLOURS, STATES], level.width * level.height)
        parts = {"carrying": spaces.Discrete(OBJECTS), "cells": spaces.MultiDiscrete(sizes)}
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        level: Any = self.env.unwrapped
        cells: IntArray = level.grid.encode().astype(np.int64)
        cells[tuple(level.agent_pos)] = OBJECTS - 1, 0, level.agent_dir
        hand = EMPTY if level.carrying is None else level.carrying.encode()[0]
        return {"carrying": np.int64(hand), "cells": cells.ravel()}


def maze(env_id: str, render_mode: str | None = None) -> gym.Env[Any, Any]:
    """A level of MiniGrid, such as `MiniGrid-DoorKey-5x5-v0`."""
    import minigrid  # noqa: F401, which registers its levels

    return GridCells(gym.make(env_id, render_mode=render_mode))
