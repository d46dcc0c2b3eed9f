"""Your environment: a heated room, while the outside temperature changes."""

import gymnasium as gym
import numpy as np


class Room(gym.Env):
    """Observes the temperature of the room and outside; the actions are wait and heat."""

    observation_space = gym.spaces.Box(-30, 60, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    action_names = ("wait", "heat")

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.weather = self.np_random.uniform((15, -5), (25, 10))
        return self._seen(), {}

    def step(self, action):
        self.weather = float(np.clip(self.weather + self.np_random.normal(0, 1), -20, 30))
        self.room += 2.0 * action + 0.08 * (self.weather - self.room)
        comfort = -abs(self.room - 20) / 10
        burst = self.room < 5  # the pipes freeze
        return self._seen(), comfort - 0.1 * action, bool(burst), False, {}

    def _seen(self):
        return np.array([self.room, self.weather], dtype=np.float32)


gym.register(id="Room-v0", entry_point="room:Room", max_episode_steps=100)
