"""A behaviour that replaces the explained policy for some steps, or permanently: foils of several steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import gymnasium as gym
import numpy as np

from tpd.core.types import Array, DiscretePolicy, FloatArray, Policy, RecurrentPolicy
from tpd.envs import Environment
from tpd.guards.settings import shown
from tpd.policies.function import function_policy

MOST_STEPS = 10_000


@dataclass(frozen=True)
class Followed:
    """A sequence of policies, one for each step, after which the agent's own policy continues.

    The first action is the deterministic or most likely one; later actions are sampled.
    """

    name: str
    """Its name in sentences."""
    policies: tuple[Policy, ...]
    """[step]: the policy that acts at this step"""
    for_good: bool = False
    """Whether the last policy continues, instead of the agent's own."""

    def __post_init__(self) -> None:
        if any(isinstance(policy, RecurrentPolicy) for policy in self.policies):
            raise ValueError(
                f"{self.name}: a recurrent policy cannot be a foil, because its hidden state at this moment "
                "is unknown; use a policy without hidden state, or a list of actions"
            )

    def at(self, step: int) -> Policy | None:
        """The policy that acts at a step; None for the agent itself."""
        if step < len(self.policies):
            return self.policies[step]
        return self.policies[-1] if self.for_good else None

    def first_action(self, env: Environment, policy: Policy, observation: Array) -> Array:
        """[...]: the first action, given the observation [1, ...] of the explained policy."""
        seen = observed(env, policy, observation)
        action = self.asked(self.policies[0].action, seen)
        self.check(env, seen, action)
        return np.asarray(action[0])

    def probabilities(self, env: Environment, step: int, states: Array) -> FloatArray | None:
        """[state, action]: action probabilities at a step; None if the agent itself acts."""
        if (policy := self.at(step)) is None:
            return None
        if isinstance(policy, DiscretePolicy):
            chosen = self.asked(policy.probabilities, states)
        else:
            chosen = np.eye(env.num_actions)[self.asked(policy.action, states)]
        rows, actions = np.nonzero(chosen)
        self.check(env, states[rows], actions)
        return np.asarray(chosen)

    def check(self, env: Environment, observations: Array, actions: Array) -> None:
        """Refuse actions [batch, ...] that are not valid at these observations [batch, ...]."""
        space = env.action_space
        if isinstance(space, gym.spaces.Discrete):
            wrong = np.asarray(~env.mask(observations)[np.arange(len(actions)), actions])
        elif isinstance(space, gym.spaces.Box):
            outside = (actions < space.low) | (actions > space.high)
            wrong = np.asarray(outside.reshape(len(actions), -1).any(axis=1))
        else:
            wrong = np.array([not space.contains(action) for action in actions])
        if wrong.any():
            row = int(np.argmax(wrong))
            state = env.name_of_state(observations[row])
            raise ValueError(
                f"{self.name}: it chooses {env.name_of_action(actions[row])}, which is not valid in {state}"
            )

    def asked(self, function: Any, *given: Any) -> Any:
        """Call a function of the behaviour; errors get the name of the behaviour."""
        try:
            return function(*given)
        except Exception as error:  # a user's policy may raise anything
            raise ValueError(f"{self.name}: {' '.join(str(error).split())}") from error


def observed(env: Environment, policy: Policy, observations: Array) -> Array:
    """[batch, ...]: the environment's observations, without the hidden state of the explained policy."""
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return observations[:, : int(np.prod(env.observation_space.shape or ()))]


def in_turn(env: Environment, given: Sequence[Any]) -> Followed:
    """A behaviour that takes a sequence of actions, each given by name or number."""
    if not given:
        raise ValueError(f"foil: expected a list of actions such as [0, 1], got {shown(given)}")
    actions = [np.asarray(env.action(action)) for action in given]

    def always(action: Array) -> Policy:
        return function_policy(lambda o: np.repeat(action[None], len(o), axis=0), 1.0, env.action_space)

    # such as "push left 2 times, then main engine"
    runs = [(name, len(list(same))) for name, same in groupby(map(env.name_of_action, actions))]
    name = ", then ".join(name if count == 1 else f"{name} {count} times" for name, count in runs)
    return Followed(name, tuple(always(action) for action in actions))
