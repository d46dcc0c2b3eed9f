"""Any function of observations as a policy."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tpd.checks import number
from tpd.envs import Environment
from tpd.types import Array, FloatArray, IntArray, Report, TransitionsCallback, no_report

Function = Callable[[Array], Array]
"""observations [batch, ...] -> actions [batch, ...]"""


class FunctionPolicy:
    """Does what the function says."""

    def __init__(self, function: Function, discount: float) -> None:
        self.function = function
        self.discount = number("discount", discount, 0, 1)

    def action(self, observations: Array) -> Array:
        actions = np.asarray(self.function(observations))
        if len(actions) != len(observations):
            raise ValueError(f"the policy gave {len(actions)} actions for {len(observations)} observations")
        return actions

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return self.action(observations)

    def action_values(self, observations: Array) -> FloatArray | None:
        return None


class DiscreteFunctionPolicy(FunctionPolicy):
    """Does what the function says, by the number of an action."""

    def __init__(self, function: Function, discount: float, num_actions: int) -> None:
        super().__init__(function, discount)
        self._num_actions = num_actions

    def action(self, observations: Array) -> IntArray:
        return super().action(observations).astype(np.int64)

    def probabilities(self, observations: Array) -> FloatArray:
        return np.eye(self._num_actions)[self.action(observations)]


class GivenFunction:
    """A policy source with nothing to train."""

    steps = 0

    def __init__(
        self, env: Environment, rng: np.random.Generator, *, function: Function, discount: float
    ) -> None:
        self.policy = (
            DiscreteFunctionPolicy(function, discount, env.num_actions)
            if env.discrete
            else FunctionPolicy(function, discount)
        )

    def train(
        self,
        callbacks: Iterable[TransitionsCallback] = (),
        info_keys: Sequence[str] = (),
        report: Report = no_report,
    ) -> None:
        """There is nothing to do."""
