"""Stepping vector environments: the one place that knows how episodes end and begin again."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tpd.types import Array, BoolArray, FloatArray, IntArray, Policy, Transitions

Behaviour = Callable[[Array], IntArray]
"""observations [num_envs, ...] -> actions [num_envs]"""
Mask = Callable[[Array], BoolArray]
"""observations [num_envs, ...] -> valid actions [num_envs, num_actions]"""


def interact(
    envs: VectorEnv[Any, Any, Any], behaviour: Behaviour, seed: int, info_keys: Sequence[str] = ()
) -> Iterator[tuple[IntArray, Transitions]]:
    """Step for ever; each time yield the transitions of one step and the copy each comes from.

    A copy whose episode has ended spends its next step on the reset, which is no transition.
    """
    mode = envs.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise ValueError(f"the vector env must reset on the next step, but its autoreset_mode is {mode}")
    observation, _ = envs.reset(seed=seed)
    ended = np.zeros(envs.num_envs, dtype=np.bool_)
    while True:
        action = behaviour(observation)
        next_observation, reward, terminated, truncated, info = envs.step(action)
        step = Transitions(
            observation=observation,
            action=action,
            next_observation=next_observation,
            reward=np.asarray(reward, dtype=np.float64),
            terminated=terminated,
            truncated=truncated,
            info={key: _entry(info, key) for key in info_keys},
        )
        live = np.flatnonzero(~ended)
        yield live, step if len(live) == envs.num_envs else step[live]
        observation, ended = next_observation, terminated | truncated


def _entry(info: dict[str, Any], key: str) -> Array:
    if key not in info:
        raise KeyError(f"the environment's info has no {key!r}; it has {sorted(info)}")
    return np.asarray(info[key])


class EpsilonGreedy:
    """The policy's own action, or with probability epsilon any valid one."""

    def __init__(self, policy: Policy, mask: Mask, epsilon: float, rng: np.random.Generator) -> None:
        self.policy = policy
        self.mask = mask
        self.epsilon = epsilon
        self.rng = rng

    def __call__(self, observations: Array) -> IntArray:
        actions = draw(self.policy.probabilities(observations), self.rng)
        exploring = np.flatnonzero(self.rng.random(len(actions)) < self.epsilon)
        if len(exploring):
            valid = self.mask(observations[exploring])
            actions[exploring] = draw(valid / valid.sum(axis=1, keepdims=True), self.rng)
        return actions


def draw(probabilities: FloatArray, rng: np.random.Generator) -> IntArray:
    """[batch]: one action from each row of probabilities [batch, num_actions]."""
    cumulative = np.cumsum(probabilities, axis=1)
    # scaling by the last entry keeps rounding from pointing beyond the last possible action
    threshold = rng.random(len(probabilities)) * cumulative[:, -1]
    return np.asarray((cumulative <= threshold[:, None]).sum(axis=1))
