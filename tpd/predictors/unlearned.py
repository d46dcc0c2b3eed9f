"""A predictor that has learned nothing yet."""

import numpy as np

from tpd.core.types import Array, FloatArray
from tpd.guards.settings import whole_number


class Unlearned:
    """A placeholder predictor with a horizon: predicts zeros, with support 0."""

    updates = 0
    tie = 0.0

    def __init__(self, horizon: int, outcomes: int) -> None:
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self._outcomes = outcomes

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]: zeros, whose support is 0."""
        return np.zeros((len(observations), self.horizon, self._outcomes))

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.zeros(len(observations))
