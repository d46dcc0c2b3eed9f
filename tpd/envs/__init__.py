"""Environments, their transition tables and their events; registers tpd's own; imports kernels and below."""

import gymnasium as gym

from tpd.envs.environment import Environment

__all__ = ["Environment"]

gym.register(
    id="FuelTaxi-v0",
    entry_point="tpd.envs.fuel_taxi.env:FuelTaxiEnv",
    vector_entry_point="tpd.envs.fuel_taxi.env:FuelTaxiVectorEnv",
    max_episode_steps=200,
)
gym.register(id="Dataset-v0", entry_point="tpd.envs.dataset:DatasetEnv", disable_env_checker=True)
gym.register(id="Maze-v0", entry_point="tpd.envs.maze:maze", kwargs={"env_id": "MiniGrid-DoorKey-5x5-v0"})
gym.register(id="RadioNetwork-v0", entry_point="tpd.envs.radio:RadioNetwork", max_episode_steps=100)
