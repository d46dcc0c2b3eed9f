"""Short trials of a policy, with and without exploration: the rewards, ends and `info` of their steps."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from tpd.core.observations import batch
from tpd.core.seeding import generator, reset_seed
from tpd.core.types import Array, Policy, Transitions
from tpd.envs import Environment
from tpd.sources.exploration import Exploration, Explorer, random_actions
from tpd.sources.hidden_state import with_initial_state, with_next_state
from tpd.sources.stepping import reporting_step_errors

PHASES = ((0.0, 3000), (0.2, 1500), (1.0, 1500))
"""Rate of random actions and number of transitions: policy only, with exploration, random only."""
SECONDS = 20.0
"""Time limit, which only matters for very slow environments."""

Kind = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Trials:
    """The transitions of the trials, without observations, which may be large."""

    transitions: Transitions
    """[batch]: its observations are all 0; its info has every number that a source could collect"""
    unusable: Mapping[str, str]
    """The numbers in `info` that cannot be collected, by key, with the reason."""
    in_time: bool
    """Whether the trials were completed within the time limit."""


class _Infos:
    """The numbers in the `info` of each step, and the kinds of value seen for each key."""

    def __init__(self) -> None:
        self.steps = 0
        self._values: dict[str, list[Any]] = defaultdict(list)
        self._kinds: dict[str, set[Kind | None]] = defaultdict(set)

    def step(self, info: Mapping[str, Any]) -> None:
        self.steps += 1
        self.reset(info)
        for key, value in info.items():
            if _kind(value) is not None:
                self._values[key].append(np.asarray(value).item())

    def reset(self, info: Mapping[str, Any]) -> None:
        """Record the kinds of value of a reset, but no values: a vector env has one array per key."""
        for key, value in info.items():
            self._kinds[key].add(_kind(value))

    def columns(self) -> tuple[dict[str, Array], dict[str, str]]:
        """[step] for each key that can be collected, and the reason for each number that cannot."""
        usable, unusable = dict[str, Array](), dict[str, str]()
        for key, values in self._values.items():
            if not isinstance(key, str) or "${" in key:  # cannot be stored
                continue
            if len(values) < self.steps:
                unusable[key] = "is missing or not a number in some steps"
            elif len(self._kinds[key]) > 1:
                unusable[key] = "is not always the same kind of number"
            elif not np.isfinite(values).all():
                unusable[key] = "is not always finite"
            else:
                usable[key] = np.array(values)
        return usable, unusable


def _kind(value: Any) -> Kind | None:
    """What determines how gymnasium joins the values of several copies; None if it is not a single number."""
    if not isinstance(value, bool | int | float | np.generic | np.ndarray):
        return None
    array = np.asarray(value)
    single = array.dtype.kind in "biuf" and array.shape in ((), (1,))
    return (array.dtype.kind, array.shape) if single else None


def try_out(env: Environment, policy: Policy, *, seed: int) -> Trials:
    """Run the trials; reproducible by seed unless the time limit is reached."""
    rng, began = generator(seed, "trials"), time.perf_counter()
    infos, rows, in_time = _Infos(), list[tuple[Any, float, bool, bool]](), True
    with contextlib.closing(env.make()) as one:
        for number, (epsilon, steps) in enumerate(PHASES, start=1):
            until = began + SECONDS * number / len(PHASES)
            behaviour = Explorer(env, policy, Exploration(epsilon), rng)
            observation = _start(one, policy, infos, reset_seed(rng))
            for _ in range(steps):
                if time.perf_counter() > until:
                    in_time = False
                    break
                wild = epsilon == 1  # skips the policy, which is the slowest part
                action = random_actions(env, observation, rng) if wild else behaviour(observation).action
                with reporting_step_errors(one):
                    arrived, reward, terminated, truncated, info = one.step(action[0])
                    following = with_next_state(policy, observation, batch(one.observation_space, [arrived]))
                infos.step(info)
                rows.append((action[0], float(reward), bool(terminated), bool(truncated)))
                observation = _start(one, policy, infos, None) if terminated or truncated else following
    if not rows:
        raise ValueError(f"{env.id} made no step within {SECONDS:g} seconds, so no outcomes can be detected")
    columns, unusable = infos.columns()
    return Trials(_transitions(rows, columns), unusable, in_time)


def _start(one: gym.Env[Any, Any], policy: Policy, infos: _Infos, seed: int | None) -> Array:
    """[1, ...]: the first observation of an episode."""
    with reporting_step_errors(one):
        observed, info = one.reset(seed=seed)
        first = with_initial_state(policy, batch(one.observation_space, [observed]))
    infos.reset(info)
    return first


def _transitions(rows: list[tuple[Any, float, bool, bool]], info: Mapping[str, Array]) -> Transitions:
    actions, rewards, terminated, truncated = zip(*rows, strict=True)
    unseen = np.zeros(len(rows))
    return Transitions(
        observation=unseen,
        action=np.array(actions),
        next_observation=unseen,
        reward=np.array(rewards),
        terminated=np.array(terminated),
        truncated=np.array(truncated),
        info=info,
    )
