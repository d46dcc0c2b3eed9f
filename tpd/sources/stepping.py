"""Steps vector environments: the one place that handles the end of episodes and automatic resets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tpd.core.observations import pack
from tpd.core.outcomes import check_finite
from tpd.core.types import Array, BoolArray, IntArray, Policy, RecurrentPolicy, Transitions
from tpd.sources.hidden_state import with_initial_state, with_next_state


class Choice(NamedTuple):
    """The actions taken in all copies of an environment."""

    action: Array
    """[num_envs, ...]"""
    own: BoolArray | None = None
    """[num_envs]: whether the policy chose it rather than exploration; None if unknown"""


Behaviour = Callable[[Array], Choice]
"""observations [num_envs, ...] -> the actions taken there"""


def interact(
    envs: VectorEnv[Any, Any, Any], policy: Policy, behaviour: Behaviour, seed: int, info_keys: Sequence[str]
) -> Iterator[tuple[IntArray, Transitions]]:
    """Step forever; for each step, yield its transitions and the index of the copy each comes from.

    After the end of an episode, the next step of a copy is its reset, which yields no transition.
    The behaviour may deviate from the policy. If the policy is recurrent, observations include its hidden
    state.
    """
    mode = envs.metadata.get("autoreset_mode")
    if mode != AutoresetMode.NEXT_STEP:
        raise ValueError(f"the vector env must have autoreset_mode={AutoresetMode.NEXT_STEP}, got {mode}")
    recurrent = isinstance(policy, RecurrentPolicy)
    with reporting_step_errors(envs):
        first = envs.reset(seed=seed)[0]
        check_numbers(envs.single_observation_space, first)
    observation = with_initial_state(policy, first)
    ended, kinds = np.zeros(envs.num_envs, dtype=np.bool_), dict[str, np.dtype[Any]]()
    while True:
        action, own = behaviour(observation)
        with reporting_step_errors(envs):
            arrived, reward, terminated, truncated, info = envs.step(action)
            check_numbers(envs.single_observation_space, arrived)
        next_observation = with_next_state(policy, observation, arrived) if recurrent else pack(arrived)
        if recurrent and ended.any():
            next_observation[ended] = with_initial_state(policy, pack(arrived)[ended])
        step = Transitions(
            observation=observation,
            action=action,
            next_observation=next_observation,
            reward=np.asarray(reward, dtype=np.float64),
            terminated=terminated,
            truncated=truncated,
            info={key: _entry(info, key, ended, kinds) for key in info_keys},
            stream=np.arange(envs.num_envs),
            own=own,
        )
        check_finite(step)
        live = np.flatnonzero(~ended)
        yield live, step if len(live) == envs.num_envs else step[live]
        observation, ended = next_observation, terminated | truncated


def check_numbers(space: gym.Space[Any], observed: Any) -> None:
    """Refuse state numbers outside the space: tables would be read out of bounds."""
    if isinstance(space, gym.spaces.Discrete):
        wrong = (observed < space.start) | (observed >= space.start + space.n)
        if wrong.any():
            raise ValueError(f"the observation {observed[wrong][0]} is not in {space}")


class StepError(ValueError):
    """A step of an environment that failed, or returned an invalid observation."""


@contextmanager
def reporting_step_errors(env: gym.Env[Any, Any] | VectorEnv[Any, Any, Any]) -> Iterator[None]:
    """Add to the error of a failed step what a valid step looks like."""
    try:
        yield
    except Exception as error:  # any error of the user's environment
        one = getattr(env, "envs", [env])[0]  # a vector environment has no name, but its copies do
        name = "the environment" if one.spec is None else one.spec.id
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        space = one.observation_space
        raise StepError(f"{name} with observations in {space} failed in reset or step: {reason}") from error


class CheckedEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Wraps an environment that others step, and fails at the first invalid observation or reward."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        with reporting_step_errors(self):
            observed, info = self.env.reset(seed=seed, options=options)
            _check_observed(self.observation_space, observed)
        return observed, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        with reporting_step_errors(self):
            observed, reward, terminated, truncated, info = self.env.step(action)
            _check_observed(self.observation_space, observed)
            if not np.isfinite(reward):  # type: ignore[call-overload]
                raise ValueError(f"the reward must be finite, got {reward}")
        return observed, reward, terminated, truncated, info


def _check_observed(space: gym.Space[Any], observed: Any, name: str = "the observation") -> None:
    """Refuse another shape than the space's, or non-finite values; many environments exceed the bounds."""
    if isinstance(space, gym.spaces.Dict):
        for key, part in space.spaces.items():
            _check_observed(part, observed[key], f"{name} {key!r}")
    elif isinstance(space, gym.spaces.Box):
        if np.shape(observed) != space.shape:
            raise ValueError(f"{name} has shape {np.shape(observed)}, expected {space.shape}")
        if not np.isfinite(observed).all():
            raise ValueError(f"{name} is not finite: {observed}")


def _entry(info: dict[str, Any], key: str, ended: BoolArray, kinds: dict[str, np.dtype[Any]]) -> Array:
    """[num_envs]: an `info` entry; not read where a copy was just reset. `kinds` remembers earlier dtypes."""
    if key not in info and ended.all():  # a reset may leave it out
        return np.zeros(len(ended), kinds.get(key, np.dtype(np.float64)))
    values = _values(info, key)
    kinds[key] = values.dtype
    return values


def _values(info: dict[str, Any], key: str) -> Array:
    if key not in info:
        raise KeyError(f"an outcome reads info[{key!r}], but the environment's info has only {sorted(info)}")
    values = np.asarray(info[key])
    if values.dtype == object and all(isinstance(value, bool | np.bool_ | None) for value in values.flat):
        # gymnasium stores NumPy booleans as objects, and None where a copy was reset without one
        return values.astype(np.bool_)
    return values
