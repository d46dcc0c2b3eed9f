"""Exploration: behaviour that deviates from the policy, so that other actions can be explained too."""

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from tpd.core.pairs import pair_of
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy, Rng, Transitions
from tpd.envs import Environment
from tpd.guards.settings import boolean, number, whole_number
from tpd.guards.sizes import require_memory
from tpd.sources.stepping import Choice

CANDIDATES = 8
TOO_MANY_STATES = "use an environment that observes vectors, not numbers, and an agent that is a network"


@dataclass(frozen=True)
class Exploration:
    """How the behaviour deviates from the policy."""

    epsilon: float
    """Probability of a random valid action instead of the policy's."""
    least_tried: bool = False
    """Whether that action is the least tried one in the state instead of a random one."""
    restarts: float = 0.0
    """Fraction of episodes that start in a visited state, the least visited of a few candidates."""
    every: tuple[int, int] | None = None
    """Takes one other action every [fewest, most] steps instead of at rate epsilon, so that the policy's own
    actions come in long runs.
    """
    cut_long: bool = False
    """Whether most copies truncate episodes that last much longer than those that terminate."""

    def __post_init__(self) -> None:
        if self.every is not None:
            self._check_every(self.every)
        number("epsilon", self.epsilon, 0, 1)
        boolean("least_tried", self.least_tried)
        boolean("cut_long", self.cut_long)
        number("restarts", self.restarts, 0, 1)
        if self.least_tried and self.epsilon == 0:
            raise ValueError("least_tried has no effect if epsilon is 0: set epsilon above 0")

    def _check_every(self, every: Sequence[int]) -> None:
        if not isinstance(every, list | tuple) or len(every) != 2:
            raise ValueError(f"every must be [minimum, maximum] numbers of steps, got {every!r}")
        fewest = whole_number("every", every[0], at_least=1)
        whole_number("every", every[1], at_least=fewest)
        if self.epsilon or self.least_tried or self.restarts:
            raise ValueError(
                "every cannot be combined with epsilon, least_tried and restarts: set these to 0, false and "
                "0, or every to null"
            )


def mix(probabilities: FloatArray, other: FloatArray, epsilon: float) -> FloatArray:
    """[batch, num_actions]: a mixture of two policies; `other` has weight epsilon."""
    return np.asarray((1 - epsilon) * probabilities + epsilon * other)


def uniform(valid: BoolArray) -> FloatArray:
    """[batch, num_actions]: uniform over the valid actions; 0 everywhere if none is valid."""
    return np.asarray(valid / np.maximum(valid.sum(axis=1, keepdims=True), 1))


def draw(probabilities: FloatArray, rng: Rng) -> IntArray:
    """[batch]: one action from each row of probabilities [batch, num_actions]."""
    from tpd.kernels.stepping import draw_columns  # numba is slow to import

    return draw_columns(probabilities, np.arange(len(probabilities)), rng.random(len(probabilities)))


class Explorer:
    """Epsilon-greedy exploration for any environment: sometimes a random valid action."""

    def __init__(self, env: Environment, policy: Policy, exploration: Exploration, rng: Rng) -> None:
        self._env, self._policy, self._rng = env, policy, rng
        self._epsilon = exploration.epsilon

    def __call__(self, observations: Array) -> Choice:
        actions = np.array(self._policy.sample(observations, self._rng))
        wild = self._rng.random(len(observations)) < self._epsilon
        if wild.any():
            actions[wild] = random_actions(self._env, observations[wild], self._rng)
        return Choice(actions, ~wild)

    def remember(self, seen: Transitions) -> None:
        """Do nothing: this explorer counts no visits."""


class SparseExplorer(Explorer):
    """Follows the policy, except for one other action every few steps of each copy."""

    def __init__(self, env: Environment, policy: Policy, exploration: Exploration, rng: Rng) -> None:
        super().__init__(env, policy, exploration, rng)
        assert exploration.every is not None
        self._fewest, self._most = exploration.every
        self._left: IntArray | None = None
        """[num_envs]: steps until the next other action"""

    def __call__(self, observations: Array) -> Choice:
        actions, copies = np.array(self._policy.sample(observations, self._rng)), len(observations)
        if self._left is None:
            self._left = self._rng.integers(0, self._most, copies, endpoint=True)
        wild = self._left == 0
        if wild.any():
            others, possible = other_actions(self._env, observations[wild], actions[wild], self._rng)
            actions[wild] = others
            wild[wild] = possible
        drawn = self._rng.integers(self._fewest, self._most, copies, endpoint=True)
        self._left = np.where(self._left == 0, drawn, self._left) - 1
        return Choice(actions, ~wild)


def other_actions(env: Environment, observations: Array, actions: Array, rng: Rng) -> tuple[Array, BoolArray]:
    """[batch, ...] and [batch]: a random valid action other than these, and whether there is one."""
    if env.parts is not None:  # only one part of the action changes
        return env.parts.change_one(actions, rng), np.ones(len(actions), dtype=np.bool_)
    if not env.discrete:
        return random_actions(env, observations, rng), np.ones(len(actions), dtype=np.bool_)
    valid = env.mask(observations).copy()
    valid[np.arange(len(actions)), actions] = False
    possible = np.asarray(valid.any(axis=1))
    others = actions.copy()
    if possible.any():
        others[possible] = draw(uniform(valid[possible]), rng)
    return others, possible


def random_actions(env: Environment, observations: Array, rng: Rng) -> Array:
    """[batch, ...]: a random valid action, all equally likely."""
    if env.discrete:
        return draw(uniform(env.mask(observations)), rng)
    space = env.action_space
    if env.parts is not None:
        return env.parts.draw(len(observations), rng)
    assert isinstance(space, gym.spaces.Box)
    return rng.uniform(space.low, space.high, (len(observations), *space.shape)).astype(space.dtype)


def explorer(
    env: Environment, policy: Policy, exploration: Exploration, rng: Rng
) -> "Explorer | TabularExplorer":
    """The explorer for this environment and these settings."""
    if exploration.every is not None:
        return SparseExplorer(env, policy, exploration, rng)
    if env.tabular and isinstance(policy, DiscretePolicy):
        return TabularExplorer(env, policy, exploration, rng)
    return Explorer(env, policy, exploration, rng)


def require_tables(env: Environment) -> None:
    """Refuse an environment whose exploration tables [state, action] would not fit into the free memory."""
    require_memory("exploration with tables", (3, *env.table_shape()), "float64", TOO_MANY_STATES)


class TabularExplorer:
    """Exploration for discrete states, with visit counts; the policy must not change meanwhile."""

    def __init__(self, env: Environment, policy: DiscretePolicy, exploration: Exploration, rng: Rng) -> None:
        require_tables(env)
        states = np.arange(env.table_shape()[0])
        self._rng, self._exploration = rng, exploration
        self._valid = env.mask(states)
        self._policy = policy.probabilities(states)
        self._visits: IntArray = np.zeros(self._valid.shape, dtype=np.int64)
        self.table = mix(self._policy, uniform(self._valid), exploration.epsilon)
        """[state, action]: current probability of each action"""

    def __call__(self, observations: IntArray) -> Choice:
        from tpd.kernels.stepping import draw_columns

        return Choice(draw_columns(self.table, observations, self._rng.random(len(observations))))

    def remember(self, seen: Transitions) -> None:
        """Update the visit counts and, if `least_tried` is set, the table."""
        if not (self._exploration.least_tried or self._exploration.restarts):
            return
        num_actions = self._visits.shape[1]
        pairs = np.bincount(pair_of(seen.observation, seen.action, num_actions), minlength=self._visits.size)
        self._visits += pairs.reshape(self._visits.shape)
        if self._exploration.least_tried:
            least = np.where(self._valid, self._visits, np.iinfo(np.int64).max).argmin(axis=1)
            self.table = mix(self._policy, np.eye(num_actions)[least], self._exploration.epsilon)

    def restart(self, starts: IntArray) -> IntArray:
        """Replace some of the initial states by rarely visited ones."""
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
