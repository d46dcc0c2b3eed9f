"""SB3 replay buffers, live or saved, as transitions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.preprocessing import is_image_space

from sb3_ext.inert_pickles import PickledObject, array_of, read_pickle
from sb3_ext.unpickling import one_line
from tpd.core.observations import pack
from tpd.core.types import Array, BoolArray, IntArray, Transitions
from tpd.guards.settings import boolean, whole_number
from tpd.guards.sizes import require_memory

ORIGINS = tuple(f"stable_baselines3.common.buffers.{kind}ReplayBuffer" for kind in ("", "Dict", "NStep"))
LARGEST_BUFFER = 2**36
BATCH = 10_000
OBSERVED, ONE_EACH = ("observations", "next_observations"), ("rewards", "dones", "timeouts")


@dataclass(frozen=True)
class SavedBuffer:
    """A replay buffer saved by `model.save_replay_buffer`; its fields have SB3's names."""

    observations: Any
    """[row, env, ...], or a dict of such"""
    next_observations: Any
    actions: Array
    """[row, env, action]"""
    rewards: Array
    """[row, env]"""
    dones: Array
    timeouts: Array
    pos: int
    full: bool
    optimize_memory_usage: bool
    handle_timeout_termination: bool

    @property
    def buffer_size(self) -> int:
        return len(self.dones)

    @property
    def n_envs(self) -> int:
        return int(self.dones.shape[1])


def load_replay_buffer(path: str | Path) -> SavedBuffer:
    """Load a buffer saved by `model.save_replay_buffer`, without running its pickle."""
    try:
        file = Path(path)
        if file.is_file():
            require_memory("the replay buffer", (2, file.stat().st_size), "uint8", "save a smaller one")
        record = read_pickle(file, LARGEST_BUFFER)
        if not isinstance(record, PickledObject) or not isinstance(record.state, dict):
            raise ValueError(
                f"contains a {type(record).__name__}, not a replay buffer: pass the file that "
                "model.save_replay_buffer wrote"
            )
        if record.origin not in ORIGINS:
            raise ValueError(
                f"contains a {record.origin}, but only ReplayBuffer and DictReplayBuffer of "
                "Stable-Baselines3 can be read"
            )
        return _saved(record.state)
    except ValueError as error:
        raise ValueError(one_line(path, error)) from error


def _saved(state: dict[Any, Any]) -> SavedBuffer:
    """The buffer of a pickled record; refused if its arrays do not fit together."""
    shared, told = (_flag(state, name) for name in ("optimize_memory_usage", "handle_timeout_termination"))
    observed = [_arrays(state.get(name), name) for name in OBSERVED[: 1 if shared else 2]]
    actions, *one_each = (array_of(state.get(n), n) for n in ("actions", *ONE_EACH[: 3 if told else 2]))
    due = one_each[0].shape
    parts = [part for held in observed for part in (held.values() if isinstance(held, dict) else [held])]
    if len(due) != 2 or not due[1] or any(array.shape != due for array in one_each):
        raise ValueError("is damaged: its rewards, dones and timeouts must all have the shape (steps, envs)")
    if any(array.shape[:2] != due for array in (actions, *parts)):
        raise ValueError("is damaged: its arrays must all have the same number of steps and envs")
    rewards, dones, *timeouts = one_each
    return SavedBuffer(
        observations=observed[0],
        next_observations=observed[-1],
        actions=actions,
        rewards=rewards,
        dones=dones,
        timeouts=timeouts[0] if told else np.zeros_like(dones),
        pos=whole_number("pos", state.get("pos"), at_least=0, at_most=due[0]),
        full=_flag(state, "full"),
        optimize_memory_usage=shared,
        handle_timeout_termination=told,
    )


def _flag(state: dict[Any, Any], name: str) -> bool:
    """False if it is missing, as in old buffers."""
    return boolean(name, state.get(name, False))


def _arrays(stored: Any, name: str) -> Any:
    """An array, or a dict of arrays."""
    if isinstance(stored, dict) and stored:
        return {key: array_of(part, f"{name}.{key}") for key, part in stored.items()}
    return array_of(stored, name)


def replay_buffer_batches(
    buffer: ReplayBuffer | SavedBuffer,
    batch_size: int = BATCH,
    *,
    info_keys: Sequence[str] = (),
    time_limits: bool = True,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
) -> Iterator[Transitions]:
    """Yield the steps of a buffer in batches of about `batch_size`, with one batch in memory at a time.

    time_limits: False if the environment has none, for buffers that do not distinguish time limits from
        terminations.
    observation_space, action_space: those of the environment itself, since a saved buffer's spaces are not
        read, and SB3 stores images channels first.
    """
    if isinstance(buffer, ReplayBuffer):
        if observation_space is None and any(map(is_image_space, _parts(buffer.observation_space))):
            raise ValueError(
                f"the replay buffer contains images ({buffer.observation_space}), and SB3 may have "
                "transposed them: pass the env's own observation_space"
            )
        observation_space = observation_space or buffer.observation_space
        action_space = action_space or buffer.action_space
    if observation_space is None or action_space is None:
        raise ValueError("a saved buffer is read without its spaces: pass observation_space and action_space")
    rows = _rows(buffer)
    timeouts = _checked(buffer, rows, info_keys, time_limits)
    per_batch = max(1, whole_number("batch_size", batch_size, at_least=1) // buffer.n_envs)
    for begin in range(0, len(rows), per_batch):
        part = slice(begin, begin + per_batch)
        yield _transitions(buffer, rows[part], timeouts[part], observation_space, action_space)


def _parts(space: spaces.Space[Any]) -> Sequence[spaces.Space[Any]]:
    return list(space.values()) if isinstance(space, spaces.Dict) else [space]


def count(buffer: ReplayBuffer | SavedBuffer) -> int:
    """How many transitions a buffer holds."""
    return len(_rows(buffer)) * buffer.n_envs


def _rows(buffer: ReplayBuffer | SavedBuffer) -> IntArray:
    """[step]: the rows that hold whole steps, oldest first."""
    if not buffer.full:
        return np.arange(buffer.pos)
    rows = (buffer.pos + np.arange(buffer.buffer_size)) % buffer.buffer_size
    # the oldest observation has made room for the newest next one
    return rows[1:] if buffer.optimize_memory_usage else rows


def _checked(
    buffer: ReplayBuffer | SavedBuffer, rows: IntArray, info_keys: Sequence[str], time_limits: bool
) -> BoolArray:
    """[step, env]: which steps were truncated by a time limit; refused if a requested entry is missing."""
    if info_keys:
        raise ValueError(
            f"a replay buffer does not store info, so outcomes that read {', '.join(info_keys)} cannot be "
            "computed from it: use ExplainerCallback during training, or collect transitions afterwards"
        )
    if not len(rows):
        raise ValueError("the replay buffer is empty: train the agent first, or load a saved replay buffer")
    done = buffer.dones[rows] > 0
    if buffer.optimize_memory_usage and done[:-1].any():
        raise ValueError(
            "a replay buffer with optimize_memory_usage=True does not store the last observation of every "
            "episode: train with optimize_memory_usage=False, or use ExplainerCallback"
        )
    if getattr(buffer, "handle_timeout_termination", False):  # old buffers do not have it
        return np.asarray((buffer.timeouts[rows] > 0) & done)
    if time_limits and done.any():
        raise ValueError(
            "a replay buffer with handle_timeout_termination=False does not distinguish a time limit from a "
            "termination: pass time_limits=False if the env has none"
        )
    return np.zeros_like(done)


def _transitions(
    buffer: ReplayBuffer | SavedBuffer,
    rows: IntArray,
    timeouts: BoolArray,
    observed: spaces.Space[Any],
    acted: spaces.Space[Any],
) -> Transitions:
    if buffer.optimize_memory_usage:
        next_observations, next_rows = buffer.observations, (rows + 1) % buffer.buffer_size
    else:
        next_observations, next_rows = buffer.next_observations, rows
    return Transitions(
        observation=_observations(buffer.observations, rows, observed),
        action=_actions(buffer.actions[rows], acted),
        next_observation=_observations(next_observations, next_rows, observed),
        reward=buffer.rewards[rows].ravel().astype(np.float64),
        terminated=((buffer.dones[rows] > 0) & ~timeouts).ravel(),
        truncated=timeouts.ravel(),
        stream=np.tile(np.arange(timeouts.shape[1]), len(rows)),
    )


def _observations(stored: Any, rows: IntArray, space: spaces.Space[Any]) -> Array:
    """[batch, ...] from [row, env, ...], or from a dict of those."""
    if not isinstance(space, spaces.Dict):
        if isinstance(stored, dict):
            raise ValueError(f"the replay buffer has Dict observations, but the env has {space}")
        return _in_space(stored[rows], space)
    if not isinstance(stored, dict) or sorted(stored) != sorted(space):
        raise ValueError(f"the replay buffer does not have the observation keys of the env, {sorted(space)}")
    return pack({key: _in_space(stored[key][rows], space[key]) for key in space})


def _in_space(stored: Array, space: spaces.Space[Any]) -> Array:
    """[batch, ...] from [step, env, ...], in the layout of the env."""
    due, found = space.shape or (), stored.shape[2:]
    if found == due or (due, found) == ((), (1,)):
        return stored.reshape(-1, *due)
    if len(due) == 3 and due == (*found[1:], found[0]):
        return np.moveaxis(stored.reshape(-1, *found), 1, -1)
    raise ValueError(f"the replay buffer has observations of shape {found}, but the env has {due}")


def _actions(stored: Array, space: spaces.Space[Any]) -> Array:
    """[batch, ...] from [step, env, action]: the actions as the environment received them."""
    if isinstance(space, spaces.Discrete):
        return stored.reshape(-1).astype(np.int64)
    assert space.shape is not None
    actions = stored.reshape(-1, *space.shape)
    if isinstance(space, spaces.Box):  # off-policy algorithms store them scaled to [-1, 1]
        return np.asarray(space.low + 0.5 * (actions + 1.0) * (space.high - space.low), dtype=space.dtype)
    return actions
