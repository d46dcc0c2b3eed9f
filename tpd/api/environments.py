"""Turns anything a user may pass as an environment into an `Environment`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv
from hydra.utils import instantiate

from tpd.core.observations import batch
from tpd.core.types import Array
from tpd.envs import Environment
from tpd.envs.made import MadeEnvironment
from tpd.run.configs import CONFIG_FOLDER, group
from tpd.sources.moments import Moment

EnvLike = str | EnvSpec | Environment | gym.Env[Any, Any] | Callable[..., gym.Env[Any, Any]]
"""An id, a spec, a function that makes the environment, or a live environment with a spec."""


def environment(given: EnvLike) -> Environment:
    """The `Environment` for what was given, checked.

    A live one is rebuilt from its spec and never stepped.
    """
    env = _environment(given)
    env.check()
    return env


def _environment(given: EnvLike) -> Environment:
    if isinstance(given, Environment):
        return given
    if isinstance(given, str):
        known = known_name(given)
        made: Environment = (
            Environment(given) if known is None else instantiate(group("env", known), _convert_="all")
        )
        return made
    if isinstance(given, EnvSpec):
        return _of_spec(given)
    if isinstance(given, VectorEnv) or hasattr(given, "step_async"):
        raise TypeError(
            f"env: a {type(given).__name__} holds many environments; pass what makes one of them, an id or a "
            "function, and the statistics of a VecNormalize as vec_normalize=..."
        )
    if isinstance(given, gym.Env):
        if given.spec is None:
            raise ValueError(
                f"env: this {type(given.unwrapped).__name__} has no spec to make another one from; pass a "
                "function that makes it"
            )
        return _of_spec(given.spec)
    if callable(given):
        return MadeEnvironment(getattr(given, "__name__", type(given).__name__), function=given)
    raise TypeError(f"env: expected an id, a spec or a function that makes one, got {type(given).__name__}")


def _of_spec(spec: EnvSpec) -> Environment:
    """Rebuild an environment and its wrappers from a spec.

    A ValueError names wrappers that cannot be rebuilt.
    """
    if not spec.additional_wrappers:
        kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
        return replace(_environment(spec.id), kwargs=kwargs, max_episode_steps=spec.max_episode_steps)
    lost = [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]
    if lost:
        raise ValueError(
            f"env: the wrappers {', '.join(lost)} do not record how they were made, so {spec.id} cannot be "
            "made again with them; pass a function that makes it"
        )
    return MadeEnvironment(spec.id, function=partial(gym.make, spec))


def known_name(env_id: str) -> str | None:
    """The name of the config for an environment id, if there is one."""
    return _known().get(env_id)


def with_known_names(env: Environment) -> Environment:
    """Add the action and observation names of the environment's config, unless a wrapper changes them."""
    known = known_name(env.id)
    if known is None or env.wrappers or env.action_names:
        return env
    config = group("env", known)
    observed = env.observation_names or config.get("observation_names", ())
    return replace(env, action_names=tuple(config.get("action_names", ())), observation_names=tuple(observed))


@cache
def _known() -> dict[str, str]:
    """Config names by environment id."""
    files = sorted((CONFIG_FOLDER / "env").glob("*.yaml"))
    configs = {file.stem: group("env", file.stem) for file in files}
    return {str(config.id): name for name, config in configs.items() if "id" in config and _is_plain(config)}


def _is_plain(config: Any) -> bool:
    return set(config) <= {"_target_", "id", "action_names", "observation_names"}


def experiment(env: Environment) -> str:
    """The experiment config that suits this environment."""
    known = known_name(env.id)
    path = Path(CONFIG_FOLDER / "experiment" / f"{known}.yaml")
    if known is None or not path.exists():
        return "agent"
    return known if "agent" in group("experiment", known).get("defaults", ()) else "agent"


def one_observation(env: Environment, given: Any) -> Array:
    """[1, ...]: an observation (an array, or a plain dict) in the form that the policy takes."""
    space = env.observation_space
    due, got = _shape_in_words(space, space.sample()), _shape_in_words(space, given)
    if due != got:
        raise ValueError(
            f"an observation of {env.id} is {due}, got {got}; explainer.env.observation_space.sample() is an "
            "example"
        )
    return batch(space, [given])


def check_moment(env: Environment, moment: Moment) -> None:
    """Refuse a moment of another environment, judged by the shapes of its observation and actions."""
    due, seen = batch(env.observation_space, [env.observation_space.sample()])[0], moment.observation
    hidden = due.ndim == seen.ndim == 1 and seen.size > due.size  # the hidden state of a policy is appended
    same = due.dtype.names == seen.dtype.names and (due.shape == seen.shape or hidden)
    if not same or (env.discrete and (moment.actions >= env.num_actions).any()):
        raise ValueError(f"the moment is of another environment than {env.id}: {moment.name}")


def check_batch(env: Environment, observations: Array) -> None:
    """Refuse anything but a batch of observations [batch, ...] of the environment."""
    shape = env.observation_space.shape
    if shape is None or observations.dtype.names is not None or observations.shape[1:] == shape:
        return
    due = ", ".join(["batch", *map(str, shape)])
    raise ValueError(
        f"a batch of observations of {env.id} is an array of shape ({due}), got {observations.shape}; one "
        "observation is explained as observation[None]"
    )


def _shape_in_words(space: gym.Space[Any], given: Any) -> str:
    """Describe what is given for an observation: an array and its shape, or a dict of arrays."""
    if isinstance(space, gym.spaces.Dict):
        keys = given if isinstance(given, Mapping) else getattr(getattr(given, "dtype", None), "names", None)
        if keys is not None:
            parts = ", ".join(f"{key!r} of shape {np.shape(given[key])}" for key in sorted(keys))
            return f"a dict with {parts}"
    elif isinstance(given, Mapping):
        return "a dict"
    try:
        return f"an array of shape {np.shape(given)}" if np.ndim(given) else "a single number"
    except ValueError:  # rows of different lengths
        return "no array"
