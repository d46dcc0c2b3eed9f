"""Small environments whose futures are known."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tpd.core.types import Array


class Dial(gym.Env[Any, Any]):
    """An action sets the dial; the higher the dial stood before, the more likely the bell rings."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.dial = float(self.np_random.uniform(-1, 1))
        return np.array([self.dial, 0], dtype=np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        rings = self.np_random.random() < (self.dial + 1) / 2
        reward = 3 * self.dial + float(self.np_random.normal(scale=0.1))
        self.dial = float(action[0])
        return np.array([self.dial, rings], dtype=np.float32), reward, False, False, {}


class Clock(gym.Env[Any, Any]):
    """Ticks, and may break at each tick; how long it has run cannot be seen."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, breaks: float = 0.0, render_mode: str | None = None) -> None:
        self.breaks, self.render_mode = breaks, render_mode

    def _look(self) -> Array:
        return self.np_random.uniform(-1, 1, 1).astype(np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return self._look(), 1.0, bool(self.np_random.random() < self.breaks), False, {}


gym.register(id="Dial-v0", entry_point="tests.support.worlds:Dial", max_episode_steps=10)
gym.register(id="Clock-v0", entry_point="tests.support.worlds:Clock", max_episode_steps=3)
