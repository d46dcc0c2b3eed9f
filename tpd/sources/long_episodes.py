"""Truncates episodes that last much longer than those that terminate; they would dominate the data."""

from typing import Any

import gymnasium as gym
import numpy as np

FACTOR = 2.0
"""An episode is long if it lasts this many times the median length of terminated episodes."""
ENOUGH = 10  # terminated episodes needed before any episode counts as long
WHOLE = 4  # one copy in this many plays every episode to its end, so that late steps are seen too


class LongEpisodes:
    """Truncates long episodes in three of four copies of an environment.

    Some agents hover or rest until the time limit. Most steps of their episodes are then uninformative, and
    few episodes fit into a given number of transitions.
    """

    def __init__(self) -> None:
        self.terminated: list[int] = []
        """The lengths of the terminated episodes."""
        self._limit = np.inf

    def wrap(self, copy: int, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Wrap the copy with this index."""
        return _Counting(env, self, cuts=copy % WHOLE != 0)

    def record(self, steps: int) -> None:
        """Record the length of a terminated episode."""
        self.terminated.append(steps)
        if len(self.terminated) >= ENOUGH:
            self._limit = FACTOR * float(np.median(self.terminated))

    def is_long(self, steps: int) -> bool:
        """Whether an episode with this many steps is long."""
        return steps >= self._limit


class _Counting(gym.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of each episode, and truncates it if it becomes long and `cuts` is set."""

    def __init__(self, env: gym.Env[Any, Any], episodes: LongEpisodes, cuts: bool) -> None:
        super().__init__(env)
        self._episodes, self._cuts = episodes, cuts
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observed, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if terminated:
            self._episodes.record(self._steps)
        elif self._cuts and self._episodes.is_long(self._steps):
            truncated = True
        return observed, reward, terminated, truncated, info
