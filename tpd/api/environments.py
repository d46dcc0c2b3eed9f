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

KINDS_OF_WRAPPERS: dict[type, str] = {
    gym.ActionWrapper: "actions",
    gym.ObservationWrapper: "observations",
    gym.RewardWrapper: "rewards",
}
COMPARED_STEPS = 500


def environment(given: EnvLike) -> Environment:
    """The `Environment` for what was given, checked; a live one is rebuilt from its spec, never stepped."""
    env = _environment(given)
    env.check()
    return with_known_names(env)


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
            f"env: a {type(given).__name__} contains many environments; pass one environment, as an id or a "
            "function that creates it, and the statistics of a VecNormalize as vec_normalize=..."
        )
    if isinstance(given, gym.Env):
        if given.spec is None:
            raise ValueError(
                f"env: this {type(given.unwrapped).__name__} has no spec to create copies from; pass a "
                "function that creates it"
            )
        return _of_spec(given.spec)
    if callable(given):
        name = getattr(given, "__name__", type(given).__name__)
        return MadeEnvironment("the environment" if name == "<lambda>" else name, function=given)
    raise TypeError(f"env: expected an id, a spec or a function that creates one, got {type(given).__name__}")


def _of_spec(spec: EnvSpec) -> Environment:
    """Rebuild an environment and its wrappers from a spec; a ValueError names what cannot be rebuilt."""
    if not spec.additional_wrappers:
        kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
        return replace(_environment(spec.id), kwargs=kwargs, max_episode_steps=spec.max_episode_steps)
    if lost := [wrapper.name for wrapper in spec.additional_wrappers if wrapper.kwargs is None]:
        raise ValueError(
            f"env: the wrappers {', '.join(lost)} do not record their arguments, so {spec.id} cannot be "
            "created again with them; pass a function that creates it"
        )
    return MadeEnvironment(spec.id, function=partial(gym.make, spec))


def known_name(env_id: str) -> str | None:
    """The name of the config for an environment id, if there is one."""
    return _known().get(env_id)


def with_known_names(env: Environment) -> Environment:
    """Add the action and observation names of the environment's config, unless a wrapper changes them."""
    known = known_base(env)
    if known is None or env.action_names or env.make().has_wrapper_attr("action_names"):
        return env
    config, changes = group("env", known), _changes(env, Environment(env.registered_id or env.id))
    acted = () if "actions" in changes else config.get("action_names", ())
    observed = () if "observations" in changes else config.get("observation_names", ())
    return replace(env, action_names=tuple(acted), observation_names=tuple(env.observation_names or observed))


def known_base(env: Environment) -> str | None:
    """The name of the config for an environment or, if it has wrappers, for what they wrap."""
    return known_name(env.registered_id or env.id)


def why_not_known(env: Environment) -> str:
    """Why the events of the environment's config do not hold in it; empty if they do.

    A few steps are played in the environment and in the registered one, with the same seed and actions.
    """
    if type(env) is Environment and not env.wrappers:
        return "it was created with other settings" if env.kwargs else ""
    base = Environment(env.registered_id or env.id)
    if changes := _changes(env, base):
        return "; ".join(f"{what}: {by}" for what, by in changes.items())
    one, other = env.make(), base.make()
    over = True
    other.action_space.seed(0)
    for step in range(COMPARED_STEPS):
        if over and not _same(one.reset(seed=step)[0], other.reset(seed=step)[0]):
            return "its episodes start with other observations"
        action = other.action_space.sample()
        mine, due = one.step(action), other.step(action)
        if not _same(mine[0], due[0]) or mine[1:3] != due[1:3]:
            return f"it differs from {base.id} at step {step}, by a wrapper or other settings"
        over = any((*mine[2:4], *due[2:4]))
    return ""


def _changes(env: Environment, base: Environment) -> dict[str, str]:
    """What the wrappers of an environment change (actions, observations or rewards), and by what."""
    found, layer = dict[str, str](), env.make()
    while isinstance(layer, gym.Wrapper):
        for kind, what in KINDS_OF_WRAPPERS.items():
            if isinstance(layer, kind):
                found[what] = f"changed by {type(layer).__name__}"
        layer = layer.env
    for what in ("action", "observation"):
        if getattr(env, f"{what}_space") != getattr(base, f"{what}_space"):
            found.setdefault(f"{what}s", "of another space")
    return found


def _same(one: Any, other: Any) -> bool:
    return np.array_equal(np.asarray(one), np.asarray(other))


@cache
def _known() -> dict[str, str]:
    """Config names by environment id."""
    files = sorted((CONFIG_FOLDER / "env").glob("*.yaml"))
    configs = {file.stem: group("env", file.stem) for file in files}
    plain = {"_target_", "id", "action_names", "observation_names"}
    return {str(each.id): name for name, each in configs.items() if "id" in each and set(each) <= plain}


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
            f"an observation of {env.id} must be {due}, got {got}; explainer.env.observation_space.sample() "
            "is an example"
        )
    return batch(space, [given])


def check_moment(env: Environment, moment: Moment) -> None:
    """Refuse a moment of another environment, judged by the shapes of its observation and actions."""
    due, seen = batch(env.observation_space, [env.observation_space.sample()])[0], moment.observation
    hidden = due.ndim == seen.ndim == 1 and seen.size > due.size  # the hidden state of a policy is appended
    same = due.dtype.names == seen.dtype.names and (due.shape == seen.shape or hidden)
    if not same or (env.discrete and (moment.actions >= env.num_actions).any()):
        raise ValueError(f"{moment.name} does not fit {env.id}: it has other observations or actions")


def check_batch(env: Environment, observations: Array) -> None:
    """Refuse anything but a batch of observations [batch, ...] of the environment."""
    shape = env.observation_space.shape
    if shape is None or observations.dtype.names is not None or observations.shape[1:] == shape:
        return
    due = ", ".join(["batch", *map(str, shape)])
    raise ValueError(
        f"a batch of observations of {env.id} must have shape ({due}), got {observations.shape}; pass one "
        "observation as observation[None]"
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
