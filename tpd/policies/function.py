"""Any function of observations as a policy."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from tpd.core.types import Array, FloatArray, Rng
from tpd.envs import Environment
from tpd.envs.action_parts import ActionParts
from tpd.guards.settings import number
from tpd.policies.pretrained import Pretrained

Function = Callable[[Array], Array]
"""observations [batch, ...] -> actions [batch, ...]"""


class FunctionPolicy:
    """A deterministic policy: the actions that a function returns."""

    def __init__(self, function: Function, discount: float, space: gym.Space[Any]) -> None:
        self.function = function
        self.discount = number("discount", discount, 0, 1)
        self.space = space

    def action(self, observations: Array) -> Array:
        try:
            actions = np.asarray(self.function(observations))
        except Exception as error:  # a user's function may raise anything
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ValueError(
                f"the policy failed on observations {np.shape(observations)}: {reason}; it must accept a "
                "batch [batch, ...] and return one action for each"
            ) from error
        due = (len(observations), *(self.space.shape or ()))
        if actions.shape != due:
            raise ValueError(f"the policy returned actions of shape {actions.shape}, expected {due}")
        chosen = actions.astype(self.space.dtype)
        fit = np.ones(len(actions), dtype=np.bool_)
        if isinstance(self.space, gym.spaces.Discrete):
            fit = (chosen == actions) & (chosen >= 0) & (chosen < self.space.n)
        elif (parts := ActionParts.of(self.space)) is not None:
            fit = parts.holds(actions)
        if not fit.all():
            raise ValueError(
                f"the policy returned the action {actions[~fit][0]}, which is not in {self.space}"
            )
        return chosen

    def sample(self, observations: Array, rng: Rng) -> Array:
        return self.action(observations)

    def action_values(self, observations: Array) -> FloatArray | None:
        return None


class DiscreteFunctionPolicy(FunctionPolicy):
    """The same for discrete actions."""

    def probabilities(self, observations: Array) -> FloatArray:
        assert isinstance(self.space, gym.spaces.Discrete)
        return np.eye(int(self.space.n))[self.action(observations)]


def function_policy(function: Function, discount: float, space: gym.Space[Any]) -> FunctionPolicy:
    """The function as a policy for actions of this space."""
    kind = DiscreteFunctionPolicy if isinstance(space, gym.spaces.Discrete) else FunctionPolicy
    return kind(function, discount, space)


class GivenFunction(Pretrained):
    """A function as a policy source."""

    def __init__(self, env: Environment, rng: Rng, *, function: Function, discount: float) -> None:
        self.policy = function_policy(function, discount, env.action_space)
