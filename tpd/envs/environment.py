"""`Environment`: one interface to the environments of all libraries (names, masks, tables, drawing)."""

import contextlib
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv, VectorEnv

from tpd.core.observations import check_space, numbers
from tpd.core.types import Array, BoolArray
from tpd.envs.action_parts import ActionParts
from tpd.envs.tabular import TabularModel, TabularVectorEnv
from tpd.guards.extras import needed_by
from tpd.guards.settings import did_you_mean, shown

log = logging.getLogger(__name__)

NUMBER, FLAG = (int, float, np.number), (bool, np.bool_)

StateDescription = int | Mapping[str, Any] | Sequence[float]
WrapCopy = Callable[[int, gym.Env[Any, Any]], gym.Env[Any, Any]]
"""Wraps one copy of an environment, given its index."""


class PlainSteps(gym.Wrapper[Any, Any, Any, Any]):
    """Refuses rewards that are not numbers, and end flags that are not booleans.

    NumPy would turn the string "no" into True and "5" into 5. An array with a single number is accepted.
    """

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observed, reward, terminated, truncated, info = self.env.step(action)
        if not isinstance(reward, NUMBER):
            reward = _single("the reward", reward, "biuf", "a number")
        if not isinstance(terminated, FLAG):
            terminated = _single("terminated", terminated, "biu", "true or false")
        if not isinstance(truncated, FLAG):
            truncated = _single("truncated", truncated, "biu", "true or false")
        return observed, reward, terminated, truncated, info


def _single(name: str, value: Any, kinds: str, otherwise: str) -> Any:
    """The only element of an array of these dtype kinds."""
    array = np.asarray(value)
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name} must be {otherwise}, got {shown(value)}")
    if array.size != 1:
        raise TypeError(f"{name} must be a single number, got an array of shape {array.shape}")
    return array.item()


MUJOCO_GL = "MUJOCO_GL"
"""The environment variable that selects MuJoCo's rendering library."""
_UNDRAWABLE = set[str]()
"""Ids of environments whose renderer has failed: trying again may crash the process."""


class MaskError(ValueError):
    """An invalid action mask."""


@dataclass(frozen=True)
class Environment:
    """A registered environment: makes one or many copies, and knows its names and, if it has one, its table.

    >>> import tpd
    >>> env = tpd.Environment("MountainCar-v0", action_names=["push left", "coast", "push right"])
    >>> env.name_of_action(2), env.time_limit
    ('push right', 200)
    """

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    """None: the registered time limit."""
    action_names: Sequence[str] = ()
    """If empty, the environment's own names are used, or else numbers."""
    wrappers: Sequence[Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]] = ()
    """Applied to the environment in this order, the first one innermost."""
    mask_function: Callable[[Array], BoolArray] | None = None
    """observations -> [batch, num_actions]; None: the mask of the environment's table, if it has one."""
    observation_names: Sequence[str] = ()
    """Names of the numbers in an observation; if empty, the environment's own names, or else numbers."""
    choice_names: Sequence[str] = ()
    """Names of the choices, if an action consists of parts with a few choices each; `action_names` then names
    the parts.
    """

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the fields; everything else is made again."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def playable(self) -> bool:
        """Whether episodes can be played in it."""
        return True

    def make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """Make one environment."""
        settings = dict(self.kwargs)
        if render_mode is not None:  # some environments do not accept it
            settings["render_mode"] = render_mode
        with needed_by(self.id):
            env = gym.make(self.id, max_episode_steps=self.max_episode_steps, **settings)
        for wrapper in self.wrappers:
            env = wrapper(env)
        return PlainSteps(env)

    def restarts(self, info_keys: Sequence[str] = ()) -> bool:
        """Whether episodes can start in a chosen state."""
        return isinstance(self.make_vector(1, info_keys), TabularVectorEnv)

    def make_vector(
        self, num_envs: int, info_keys: Sequence[str] = (), wrap: WrapCopy | None = None
    ) -> VectorEnv[Any, Any, Any]:
        """Many copies stepped together; in NumPy if there is a table and no `info` is needed.

        wrap: called with the index of each copy and the copy, if there is one environment per copy.
        """
        if self.model is None or self.wrappers:
            return self._copies(num_envs, wrap)
        spec = self._sample.spec
        assert spec is not None
        if not info_keys:
            return TabularVectorEnv(self.model, num_envs, spec.max_episode_steps)
        settings: dict[str, Any] = dict(self.kwargs)
        if self.max_episode_steps is not None:
            settings["max_episode_steps"] = self.max_episode_steps
        return gym.make_vec(self.id, num_envs=num_envs, **settings)

    def _copies(self, num_envs: int, wrap: WrapCopy | None) -> SyncVectorEnv:
        """A vector environment with one environment per copy."""

        def made(copy: int) -> gym.Env[Any, Any]:
            return self.make() if wrap is None else wrap(copy, self.make())

        return SyncVectorEnv([functools.partial(made, copy) for copy in range(num_envs)])

    @functools.cached_property
    def _sample(self) -> gym.Env[Any, Any]:
        return self.make()

    @property
    def _probe(self) -> Any:
        return self._sample.unwrapped

    def _attribute(self, name: str) -> Any:
        """An attribute of the outermost wrapper that has it, or of the environment itself; else None."""
        return self._sample.get_wrapper_attr(name) if self._sample.has_wrapper_attr(name) else None

    @functools.cached_property
    def masking(self) -> Callable[[Array], BoolArray] | None:
        """The function that computes masks from observations: given, or an attribute of the environment."""
        return self.mask_function or self._attribute("mask_function")

    def check_info(self, keys: Sequence[str]) -> None:
        """Refuse keys that are missing in the environment's `info` after a step."""
        if keys:
            env = self.make()
            env.reset(seed=0)
            *_, info = env.step(env.action_space.sample())
            for key in keys:
                if key not in info:
                    raise ValueError(
                        f"an outcome reads info[{key!r}], which {self.id} must return at every step; it has "
                        f"only {sorted(info)} after one"
                    )

    @property
    def registered_id(self) -> str | None:
        """The id in Gymnasium's registry, below any wrappers; None if there is none."""
        spec = self._sample.spec
        return None if spec is None else str(spec.id)

    @property
    def time_limit(self) -> int | None:
        """Number of steps after which an episode is truncated; None if there is no limit."""
        spec = self._sample.spec
        return None if spec is None else spec.max_episode_steps

    @property
    def observation_space(self) -> gym.Space[Any]:
        return self._sample.observation_space

    @property
    def action_space(self) -> gym.Space[Any]:
        return self._sample.action_space

    @functools.cached_property
    def drawable(self) -> bool:
        """Whether it can be rendered; tried once, since rendering may fail."""
        if "rgb_array" not in self._sample.metadata.get("render_modes", ()) or self.id in _UNDRAWABLE:
            return False
        chosen = os.environ.get(MUJOCO_GL)
        try:
            with contextlib.closing(self.make(render_mode="rgb_array")) as env, needed_by(self.id):
                if env.render_mode != "rgb_array":
                    log.info("%s ignores render_mode='rgb_array', so the report has no pictures", self.id)
                    return False
                env.reset(seed=0)
                draw(env)
        except Exception as error:  # any error of a renderer, for example without OpenGL
            reason = " ".join(str(error).split())
            log.warning("%s cannot be rendered, so the report has no pictures: %s", self.id, reason)
            _UNDRAWABLE.add(self.id)
            if chosen is None:  # a setting that does not work here would break later imports of MuJoCo
                os.environ.pop(MUJOCO_GL, None)
            return False
        return True

    @property
    def discrete(self) -> bool:
        """Whether the action space is Discrete."""
        return isinstance(self.action_space, gym.spaces.Discrete)

    @functools.cached_property
    def parts(self) -> ActionParts | None:
        """The parts of an action, for MultiDiscrete and MultiBinary spaces; otherwise None."""
        return ActionParts.of(self.action_space, self.action_names, self.choice_names)

    @property
    def tabular(self) -> bool:
        """Whether states and actions are both discrete, so that tables can hold them."""
        return self.discrete and isinstance(self.observation_space, gym.spaces.Discrete)

    def check(self) -> None:
        """Refuse an environment that cannot be explained, naming the reason."""
        check_space(self.observation_space, self.id)
        if self.tabular:
            self.table_shape()
        if isinstance(self.action_space, gym.spaces.Discrete):
            if self.action_space.start != 0:
                raise ValueError(f"{self.id}: actions must be numbered from 0, got {self.action_space}")
            if self._sample.has_wrapper_attr("action_masks") and self.masking is None and self.model is None:
                raise ValueError(
                    f"{self.id} masks its actions: add a static method mask_function(observations) to its "
                    "class, which returns the masks [batch, actions] of a batch of observations (or set "
                    "+env.mask_function={_target_: my_module.mask, _partial_: true} on the command line)"
                )
        elif self.parts is not None:
            self.parts.check(self.id)
        elif not isinstance(self.action_space, gym.spaces.Box):
            raise TypeError(
                f"{self.id} has actions of {self.action_space}, which is not supported: use Discrete, Box, "
                "MultiDiscrete or MultiBinary"
            )
        elif not self.action_space.is_bounded():
            raise ValueError(
                f"{self.id} has unbounded actions, which cannot be explored: give its action space finite "
                "bounds"
            )

    @functools.cached_property
    def model(self) -> TabularModel | None:
        """The transition table, for environments that publish one as `P`."""
        env = self._probe
        if not self.tabular:
            return None
        table, start = getattr(env, "P", None), getattr(env, "initial_state_distrib", None)
        if table is None or start is None:
            return None
        if getattr(env, "fickle_passenger", False):
            raise ValueError(
                f"the table P of {self.id} does not model fickle_passenger=True: create the "
                "environment with fickle_passenger=False"
            )
        mask = None
        if hasattr(env, "action_mask"):
            due = (self.num_actions,)
            rows = ((s, env.action_mask(s)) for s in range(len(table)))
            mask = np.stack([_checked_mask(f"{self.id} masks state {s} by", row, due) for s, row in rows])
        return TabularModel.from_table(table, start, mask)

    @property
    def num_actions(self) -> int:
        if not isinstance(self.action_space, gym.spaces.Discrete):
            raise TypeError(f"{self.id} must have discrete actions, got {self.action_space}")
        return int(self.action_space.n)

    def table_shape(self) -> tuple[int, int]:
        """The number of states and actions; refuses spaces that do not fit a table."""
        if not isinstance(self.observation_space, gym.spaces.Discrete):
            raise TypeError(
                f"a table needs discrete observations, but {self.id} has {self.observation_space}: use "
                "explainer=auto, or the method's version for vectors if it has one (explainer=..._network)"
            )
        if self.observation_space.start != 0 or self.action_space.start != 0:  # type: ignore[attr-defined]
            raise ValueError(
                f"{self.id}: states and actions must be numbered from 0, got {self.observation_space} and "
                f"{self.action_space}: subtract the start in a wrapper"
            )
        return int(self.observation_space.n), self.num_actions

    def mask(self, observations: Array) -> BoolArray:
        """[batch, num_actions]: which actions are valid; all if the environment has no mask.

        A row may be all False where nobody acts, for example after the end of an episode.
        """
        if self.masking is not None:
            owner, due = f"the mask function of {self.id}", (len(observations), self.num_actions)
            try:
                given = self.masking(observations)
            except (Exception, SystemExit) as error:  # any error of the user's function
                raise MaskError(f"{owner} failed: {type(error).__name__}: {error}") from error
            return _checked_mask(f"{owner} gives", given, due)
        if self.model is None:
            return np.ones((len(observations), self.num_actions), dtype=np.bool_)
        return self.model.mask[observations]

    def require_choice(self, observations: Array, mask: BoolArray) -> None:
        """Refuse observations [batch] in which the agent acted although their mask allows no action."""
        none = np.flatnonzero(~mask.any(axis=1))
        if len(none):
            name = self.name_of_state(observations[none[0]])
            raise MaskError(f"the mask of {self.id} allows no action in {name}; it must allow at least one")

    def name_of_action(self, action: Any) -> str:
        """The name of an action; continuous actions are given as numbers."""
        if self.parts is not None:
            return self.parts.name(action)
        return name_action(action, self._action_names if self.discrete else self.action_names, self.discrete)

    @property
    def numbered_action_names(self) -> tuple[str, ...]:
        """The names of discrete actions, by number; empty for other action spaces."""
        return self._action_names if self.discrete else ()

    def name_of_state(self, state: Any) -> str:
        """A description of the state, if the environment has one."""
        if np.ndim(state) or not self.tabular:
            return f"state {numbers(state)}"
        describe = getattr(self._probe, "describe_state", None)
        return f"state {state}" if describe is None else str(describe(int(state)))

    def action(self, name: Any, base: Array | None = None) -> Any:
        """Parse an action: by name or number, or as a vector if actions are continuous.

        If actions consist of parts: a list of choices, or `{part: choice}`, by name or number, which changes
        these parts of `base` and keeps the others.
        """
        if isinstance(name, Mapping) and self.parts is not None:
            if base is None:
                raise ValueError(
                    f"{shown(dict(name))} changes parts of an unknown action: pass a list of all choices"
                )
            return self.parts.changed(base, name)
        if not self.discrete:
            values = _vector(name, self.action_space)
            if values is None or not self.action_space.contains(values):
                raise ValueError(
                    f"{self.id} has no action {shown(name)}; its actions are {self.action_space}"
                )
            return values
        if isinstance(name, str) and name in self._action_names:
            return self._action_names.index(name)
        if isinstance(name, int | np.integer) and not isinstance(name, bool) and 0 <= name < self.num_actions:
            return int(name)
        near = did_you_mean(name.replace("_", " "), self._action_names) if isinstance(name, str) else ""
        every = ", ".join(self._action_names)
        raise ValueError(f"{self.id} has no action {shown(name)}; the actions are {every}{near}")

    @functools.cached_property
    def _action_names(self) -> tuple[str, ...]:
        names = self.action_names or self._attribute("action_names") or ()
        names = tuple(names) or tuple(f"action {a}" for a in range(self.num_actions))
        if len(names) != self.num_actions:
            raise ValueError(f"{self.id} has {self.num_actions} actions but {len(names)} names: {names}")
        return names

    @functools.cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the numbers in an observation; the parts of a Dict space are concatenated."""
        space = self.observation_space
        given = tuple(self.observation_names or self._attribute("observation_names") or ())
        numbered = _numbered_features(space)
        if given and len(given) != len(numbered):
            raise ValueError(
                f"observations of {self.id} have {len(numbered)} numbers but {len(given)} names: {given}"
            )
        return given or numbered

    def state(self, description: StateDescription) -> Array:
        """[...]: one observation, given by its number, by its fields or as a vector."""
        if isinstance(description, Mapping) and set(description) != set(self.state_fields):
            fields = ", ".join(self.state_fields)
            has = (
                f"a state is given by all of its fields, {fields}" if fields else "its states have no fields"
            )
            raise ValueError(f"{self.id} has no state {shown(dict(description))}: {has}")
        if not self.tabular:
            vector, shape = _vector(description, self.observation_space), self.observation_space.shape
            if vector is None or vector.shape != shape:
                raise ValueError(
                    f"an observation of {self.id} must have shape {shape}, got {shown(description)}"
                )
            return vector
        num_states, _ = self.table_shape()
        number = isinstance(description, int) and not isinstance(description, bool)
        if number and 0 <= description < num_states:  # type: ignore[operator]
            return np.array(description)
        if isinstance(description, Mapping):
            return np.array(int(self._probe.encode(**description)))
        raise ValueError(f"{self.id} has no state {shown(description)}; it has {num_states} states")

    @property
    def map_layout(self) -> Mapping[str, str]:
        """Which state fields are the columns, rows, panels and pages of a map of all states."""
        return dict(getattr(self._probe, "map_layout", {}))

    @property
    def state_fields(self) -> Mapping[str, Sequence[int | bool]]:
        """The fields of a state and their possible values, if the environment defines them."""
        fields = getattr(self._probe, "state_fields", {}) if self.tabular else {}
        return {str(name): tuple(values) for name, values in fields.items()}

    def picture(self, state: Array) -> Array | None:
        """[height, width, 3]: picture of a state, for environments that can be set to a state."""
        if self.model is None or not self.drawable:
            return None
        env = self.make(render_mode="rgb_array")
        env.reset(seed=0)
        env.unwrapped.s = int(state)  # type: ignore[attr-defined]  # the convention of toy_text
        frame = draw(env)
        env.close()
        return frame


def name_action(action: Any, names: Sequence[str], numbered: bool) -> str:
    """The name of a discrete action, or names with the values of a vector."""
    if numbered:
        number = int(action)
        if not 0 <= number < len(names):
            raise ValueError(f"there is no action {number}; actions are numbered from 0 to {len(names) - 1}")
        return names[number]
    if len(names) != np.size(action):
        return f"action {numbers(action)}"
    pairs = zip(names, np.ravel(action), strict=True)
    digits = "d" if np.asarray(action).dtype.kind in "iu" else ".2f"
    return ", ".join(f"{name} {value:{digits}}" for name, value in pairs)


def _numbered_features(space: gym.Space[Any], name: str = "observation") -> tuple[str, ...]:
    """Default feature names by position: `observation[3]`, or `lidar[3]` in a Dict space."""
    if isinstance(space, gym.spaces.Dict):
        return tuple(each for key, part in space.items() for each in _numbered_features(part, str(key)))
    return tuple(f"{name}[{', '.join(map(str, at))}]" if at else name for at in np.ndindex(space.shape or ()))


def draw(env: gym.Env[Any, Any]) -> Array:
    """[height, width, 3]: the environment in its current state."""
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame then needs no screen
    if not os.environ.get("DISPLAY") and sys.platform == "linux":
        os.environ.setdefault(MUJOCO_GL, "egl")  # MuJoCo needs none either, given Mesa or a driver
    return np.asarray(env.render())


def _checked_mask(what: str, given: Any, due: tuple[int, ...]) -> BoolArray:
    """[*due]: a mask from outside, checked for shape and boolean values."""
    mask = np.asarray(given)
    if mask.shape != due or mask.dtype.kind not in "biu":
        raise MaskError(f"{what} {mask.dtype} of shape {mask.shape}; expected booleans of shape {due}")
    return mask.astype(np.bool_)


def _vector(given: Any, space: gym.Space[Any]) -> Array | None:
    """The input as an element of the space; None if it is not numeric."""
    try:
        return np.asarray(given, dtype=space.dtype)
    except (TypeError, ValueError, OverflowError):
        return None
