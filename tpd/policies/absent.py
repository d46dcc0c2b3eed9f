"""The policy of an explainer that was stored without its agent."""

from typing import NoReturn

import numpy as np

from tpd.types import Array


class AbsentPolicy:
    """Knows its discount and nothing else."""

    def __init__(self, discount: float) -> None:
        self.discount = discount

    def action(self, observations: Array) -> NoReturn:
        raise ValueError("the agent is not stored with its explanations: name the actions to explain")

    def sample(self, observations: Array, rng: np.random.Generator) -> NoReturn:
        self.action(observations)

    def action_values(self, observations: Array) -> None:
        return None
