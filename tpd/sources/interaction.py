"""Stepping vector environments: the one place that knows how episodes end and begin again."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from tpd.types import Array, IntArray, Transitions

Behaviour = Callable[[Array], IntArray]
"""observations [num_envs, ...] -> actions [num_envs]"""


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
