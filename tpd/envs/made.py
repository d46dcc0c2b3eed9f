"""Environments made by a user's function, with any wrappers."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv

from tpd.envs.environment import Environment, PlainSteps, WrapCopy


@dataclass(frozen=True)
class MadeEnvironment(Environment):
    """An environment made by a function, which may accept `render_mode`; `id` is its name.

    Only the function can make it again, so it is not stored with a run.
    """

    function: Callable[..., gym.Env[Any, Any]] = gym.make

    def make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make one environment."""
        parameters = inspect.signature(self.function).parameters.values()
        named = any(each.name == "render_mode" or each.kind is each.VAR_KEYWORD for each in parameters)
        made = self.function(render_mode=render_mode) if render_mode and named else self.function()
        if not isinstance(made, gym.Env):
            raise TypeError(
                f"env: the function must return a gymnasium.Env, but it returned a {type(made).__name__}"
            )
        return PlainSteps(made)

    def make_vector(
        self, num_envs: int, info_keys: Sequence[str] = (), wrap: WrapCopy | None = None
    ) -> VectorEnv[Any, Any, Any]:
        """Many copies stepped together."""
        return self._copies(num_envs, wrap)
