"""Tabular policies over numbered states."""

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, IntArray, Rng
from tpd.guards.settings import number, numbered
from tpd.sources.exploration import draw


class TabularPolicy:
    """A fixed table of action probabilities, and of action values if the agent has them."""

    def __init__(
        self, probabilities: FloatArray, discount: float, action_values: FloatArray | None = None
    ) -> None:
        sums = probabilities.sum(axis=1)
        wrong = (probabilities < 0).any(axis=1) | ~np.isclose(sums, 1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"the action probabilities in state {row} must be non-negative and sum to 1, got "
                f"{probabilities[row]}"
            )
        self.discount = number("discount", discount, 0, 1)
        self._probabilities, self._action_values = probabilities, action_values

    def probabilities(self, observations: Array) -> FloatArray:
        states = numbered("states", observations, len(self._probabilities))
        return np.asarray(self._probabilities[states])

    def action(self, observations: Array) -> IntArray:
        return np.asarray(np.argmax(self.probabilities(observations), axis=1))

    def sample(self, observations: Array, rng: Rng) -> IntArray:
        return draw(self.probabilities(observations), rng)

    def action_values(self, observations: Array) -> FloatArray | None:
        return None if self._action_values is None else self._action_values[observations]


class GreedyPolicy:
    """The greedy policy of a table of action values, which may still be changing.

    With `epsilon` the policy is stochastic: it takes a random valid action with that probability.
    Code that changes the values must change `version` too.
    """

    def __init__(self, values: FloatArray, mask: BoolArray, discount: float, epsilon: float = 0.0) -> None:
        self.discount = number("discount", discount, 0, 1)
        self.epsilon = number("epsilon", epsilon, 0, 1)
        self.version = 0
        self._values, self._mask = values, mask

    def probabilities(self, observations: Array) -> FloatArray:
        valid = self._mask[numbered("states", observations, len(self._mask))]
        probabilities = self.epsilon * valid / valid.sum(axis=1, keepdims=True)
        probabilities[np.arange(len(valid)), self.action(observations)] += 1 - self.epsilon
        return np.asarray(probabilities)

    def action(self, observations: Array) -> IntArray:
        observations = numbered("states", observations, len(self._values))
        return best_valid(self._values[observations], self._mask[observations])

    def sample(self, observations: Array, rng: Rng) -> IntArray:
        return draw(self.probabilities(observations), rng)

    def action_values(self, observations: Array) -> FloatArray:
        return self._values[observations]


def best_valid(values: FloatArray, valid: BoolArray) -> IntArray:
    """[batch]: the valid action with the largest value [batch, num_actions]; the first one on ties."""
    return np.asarray(np.argmax(np.where(valid, values, -np.inf), axis=1))
