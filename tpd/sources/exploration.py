"""Behaviour that departs from the policy, so that what it does not do can be explained too."""

from dataclasses import dataclass

import numpy as np

from tpd.checks import boolean, number
from tpd.envs import Environment
from tpd.kernels import draw_columns
from tpd.types import BoolArray, FloatArray, IntArray, Policy, Transitions

CANDIDATES = 8


@dataclass(frozen=True)
class Exploration:
    """How far the behaviour departs from the policy."""

    epsilon: float
    """How often it takes any valid action instead of the policy's."""
    least_tried: bool = False
    """Whether it then takes the valid action that was tried least often there."""
    restarts: float = 0.0
    """Share of the episodes that start in a state seen before, the least visited of a few."""

    def __post_init__(self) -> None:
        number("epsilon", self.epsilon, 0, 1)
        boolean("least_tried", self.least_tried)
        number("restarts", self.restarts, 0, 1)


def mix(probabilities: FloatArray, other: FloatArray, epsilon: float) -> FloatArray:
    """[batch, num_actions]: the second choice at rate epsilon, else the first."""
    return np.asarray((1 - epsilon) * probabilities + epsilon * other)


def uniform(valid: BoolArray) -> FloatArray:
    """[batch, num_actions]: any valid action, equally likely."""
    return np.asarray(valid / valid.sum(axis=1, keepdims=True))


def draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """[batch]: one action from each row of probabilities [batch, num_actions]."""
    return draw_columns(probabilities, np.arange(len(probabilities)), rng.random(len(probabilities)))


class TabularExplorer:
    """Explores numbered states, remembering what it has tried; the policy must not change meanwhile."""

    def __init__(
        self, env: Environment, policy: Policy, exploration: Exploration, rng: np.random.Generator
    ) -> None:
        states = np.arange(env.table_shape()[0])
        self._rng = rng
        self._exploration = exploration
        self._valid = env.mask(states)
        self._policy = policy.probabilities(states)
        self._visits: IntArray = np.zeros(self._valid.shape, dtype=np.int64)
        self._table = mix(self._policy, uniform(self._valid), exploration.epsilon)

    def __call__(self, observations: IntArray) -> IntArray:
        return draw_columns(self._table, observations, self._rng.random(len(observations)))

    def remember(self, seen: Transitions) -> None:
        """Take note of what was tried."""
        if not (self._exploration.least_tried or self._exploration.restarts):
            return
        num_actions = self._visits.shape[1]
        pairs = np.bincount(seen.observation * num_actions + seen.action, minlength=self._visits.size)
        self._visits += pairs.reshape(self._visits.shape)
        if self._exploration.least_tried:
            least = np.where(self._valid, self._visits, np.iinfo(np.int64).max).argmin(axis=1)
            self._table = mix(self._policy, np.eye(num_actions)[least], self._exploration.epsilon)

    def restart(self, starts: IntArray) -> IntArray:
        """Exchange some of the states where episodes are about to start."""
        visits = self._visits.sum(axis=1)
        visited = np.flatnonzero(visits)
        chosen = self._rng.random(len(starts)) < self._exploration.restarts
        if not len(visited) or not chosen.any():
            return starts
        candidates = self._rng.choice(visited, size=(int(chosen.sum()), CANDIDATES))
        best = visits[candidates].argmin(axis=1)
        exchanged = starts.copy()
        exchanged[chosen] = candidates[np.arange(len(best)), best]
        return exchanged
