"""What tpd needs to know of an environment, whichever library it comes from."""

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from tpd.envs.tabular import TabularModel, TabularVectorEnv
from tpd.types import Array, BoolArray, IntArray

StateDescription = int | str | Mapping[str, Any]


@dataclass(frozen=True)
class Environment:
    """A registered environment: makes one or many, and knows its names and, where it has one, its model."""

    id: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    """None leaves the registered time limit."""
    action_names: Sequence[str] = ()
    """Empty asks the environment itself, and numbers the actions where it has no names."""

    def make(self, render_mode: str | None = None) -> gym.Env[Any, Any]:
        """One environment."""
        return gym.make(
            self.id,
            max_episode_steps=self.max_episode_steps,
            render_mode=render_mode,
            **self.kwargs,
        )

    def restarts(self, info_keys: Sequence[str] = ()) -> bool:
        """Whether episodes can be made to start in a chosen state."""
        return isinstance(self.make_vector(1, info_keys), TabularVectorEnv)

    def make_vector(self, num_envs: int, info_keys: Sequence[str] = ()) -> VectorEnv[Any, Any, Any]:
        """Many environments stepped together; with a model in NumPy, unless info is wanted of them."""
        spec = self._sample.spec
        assert spec is not None
        if spec.vector_entry_point is None and self.model is not None and not info_keys:
            return TabularVectorEnv(self.model, num_envs, spec.max_episode_steps)
        settings: dict[str, Any] = dict(self.kwargs)
        if self.max_episode_steps is not None:
            settings["max_episode_steps"] = self.max_episode_steps
        return gym.make_vec(self.id, num_envs=num_envs, **settings)

    @functools.cached_property
    def _sample(self) -> gym.Env[Any, Any]:
        return self.make()

    @property
    def _probe(self) -> gym.Env[Any, Any]:
        return self._sample.unwrapped

    def check_info(self, keys: Sequence[str]) -> None:
        """Refuse keys that the environment's `info` does not have after a step."""
        if keys:
            env = self.make()
            env.reset(seed=0)
            *_, info = env.step(env.action_space.sample())
            for key in keys:
                if key not in info:
                    raise ValueError(f"the info of {self.id} has no {key!r}; it has {sorted(info)}")

    @property
    def observation_space(self) -> gym.Space[Any]:
        return self._probe.observation_space

    @property
    def action_space(self) -> gym.Space[Any]:
        return self._probe.action_space

    @functools.cached_property
    def model(self) -> TabularModel | None:
        """The dynamics, for environments that publish them as a table `P`."""
        env = self._probe
        table, start = getattr(env, "P", None), getattr(env, "initial_state_distrib", None)
        if table is None or start is None:
            return None
        if getattr(env, "fickle_passenger", False):
            raise ValueError(f"{self.id} with fickle_passenger does what its table P does not say")
        mask = None
        if hasattr(env, "action_mask"):
            mask = np.array([env.action_mask(s) for s in range(len(table))], dtype=np.bool_)
        return TabularModel.from_table(table, start, mask)

    @property
    def num_actions(self) -> int:
        if not isinstance(self.action_space, gym.spaces.Discrete):
            raise TypeError(f"{self.id} has no discrete actions but {self.action_space}")
        return int(self.action_space.n)

    def table_shape(self) -> tuple[int, int]:
        """The number of states and actions; refuses spaces that no table can hold."""
        if not isinstance(self.observation_space, gym.spaces.Discrete):
            raise TypeError(
                f"a table needs discrete observations, but {self.id} has {self.observation_space}"
            )
        if self.observation_space.start != 0 or self.action_space.start != 0:  # type: ignore[attr-defined]
            raise ValueError(f"{self.id} does not number its states and actions from 0, as tables do")
        return int(self.observation_space.n), self.num_actions

    def mask(self, observations: IntArray) -> BoolArray:
        """[batch, num_actions]: which actions are valid; all, where the environment does not say."""
        if self.model is None:
            return np.ones((len(observations), self.num_actions), dtype=np.bool_)
        return self.model.mask[observations]

    def name_of_action(self, action: int) -> str:
        return self._action_names[action]

    def name_of_state(self, state: int) -> str:
        """The state in words, where the environment has any."""
        describe = getattr(self._probe, "describe_state", None)
        return f"state {state}" if describe is None else str(describe(state))

    def action(self, name: str | int) -> int:
        """The index of an action given by name or index."""
        if isinstance(name, str) and name in self._action_names:
            return self._action_names.index(name)
        if isinstance(name, int) and 0 <= name < self.num_actions:
            return name
        raise ValueError(f"{self.id} has no action {name!r}; it has {', '.join(self._action_names)}")

    @functools.cached_property
    def _action_names(self) -> tuple[str, ...]:
        names = self.action_names or getattr(self._probe, "action_names", ())
        names = tuple(names) or tuple(f"action {a}" for a in range(self.num_actions))
        if len(names) != self.num_actions:
            raise ValueError(f"{self.id} has {self.num_actions} actions but {len(names)} names: {names}")
        return names

    def state(self, description: StateDescription) -> int:
        """The index of a state given as an index, by its fields, or as `start`: one where episodes start."""
        num_states, _ = self.table_shape()
        if description == "start":
            return int(self.make().reset(seed=0)[0])
        if isinstance(description, int) and 0 <= description < num_states:
            return description
        if isinstance(description, Mapping) and hasattr(self._probe, "encode"):
            try:
                return int(self._probe.encode(**description))
            except TypeError as error:
                raise ValueError(f"{self.id} does not know the state {dict(description)}: {error}") from error
        raise ValueError(f"{self.id} does not know the state {description!r}; it has {num_states} states")

    def picture(self, state: int) -> Array | None:
        """[height, width, 3]: the state drawn, for environments that can be put into it."""
        if self.model is None:
            return None
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # toy_text draws with pygame; no screen is needed
        env = self.make(render_mode="rgb_array")
        env.reset(seed=0)
        env.unwrapped.s = state  # type: ignore[attr-defined]  # the convention of toy_text
        frame = np.asarray(env.render())
        env.close()
        return frame
