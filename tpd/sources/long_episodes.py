"""Begins episodes anew that last much longer than those that terminate, so that they do not fill the data."""

from typing import Any

import gymnasium as gym
import numpy as np

FACTOR = 2.0
"""An episode is long if it lasts so many times the median of those that terminated."""
ENOUGH = 10  # terminated episodes, before any is called long
WHOLE = 4  # one copy in so many plays all its episodes to their end, so that late steps are seen too


class LongEpisodes:
    """Truncates long episodes in three of four copies of an environment.

    Some agents hover or rest until the time limit. Most steps of their episodes then show nothing that
    decides one, and few episodes fit into a given number of transitions.
    """

    def __init__(self) -> None:
        self.terminated: list[int] = []
        """How long each terminated episode lasted."""
        self._limit = np.inf

    def wrap(self, copy: int, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """The copy of that number."""
        return _Counting(env, self, cuts=copy % WHOLE != 0)

    def record(self, steps: int) -> None:
        """Take note of an episode that terminated."""
        self.terminated.append(steps)
        if len(self.terminated) >= ENOUGH:
            self._limit = FACTOR * float(np.median(self.terminated))

    def is_long(self, steps: int) -> bool:
        """Whether an episode of so many steps is long."""
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
