"""SB3 replay buffers, live or saved, as transitions."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.save_util import load_from_pkl

from tpd.core.observations import pack
from tpd.core.types import Array, BoolArray, IntArray, Transitions
from tpd.guards.settings import whole_number


def from_replay_buffer(
    buffer: ReplayBuffer,
    *,
    info_keys: Sequence[str] = (),
    time_limits: bool = True,
    observation_space: spaces.Space[Any] | None = None,
) -> Transitions:
    """Every step that the buffer holds, in the order of time; the steps of several envs alternate.

    time_limits: False says that the env has none, for buffers that do not tell a time limit from
    a termination. observation_space: the env's own, for images, which SB3 stores channels first.
    Under VecNormalize, SB3 has stored the last observation of an episode as far as its clipping
    allows; the callback sees the true one.
    """
    rows = _rows(buffer)
    return _transitions(buffer, rows, _checked(buffer, rows, info_keys, time_limits), observation_space)


def replay_buffer_batches(
    buffer: ReplayBuffer,
    batch_size: int = 10_000,
    *,
    info_keys: Sequence[str] = (),
    time_limits: bool = True,
    observation_space: spaces.Space[Any] | None = None,
) -> Iterator[Transitions]:
    """The same in batches of about `batch_size`, of which only one is in memory at a time."""
    rows = _rows(buffer)
    timeouts = _checked(buffer, rows, info_keys, time_limits)
    per_batch = max(1, whole_number("batch_size", batch_size, at_least=1) // buffer.n_envs)
    for begin in range(0, len(rows), per_batch):
        part = slice(begin, begin + per_batch)
        yield _transitions(buffer, rows[part], timeouts[part], observation_space)


def load_replay_buffer(path: str | Path, *, trust: bool = False) -> ReplayBuffer:
    """A buffer saved by `model.save_replay_buffer`."""
    if not trust:
        raise ValueError(
            f"{path} is a pickle, and reading it runs whatever code it holds: pass trust=True if it is yours"
        )
    try:
        buffer = load_from_pkl(path)
    except Exception as error:  # a pickle can run anything, so anything can be raised
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path} is no replay buffer that can be read ({reason})") from error
    if not isinstance(buffer, ReplayBuffer):
        raise TypeError(f"{path} holds a {type(buffer).__name__}, not a replay buffer")
    return buffer


def _rows(buffer: ReplayBuffer) -> IntArray:
    """[step]: the rows that hold whole steps, oldest first."""
    if not buffer.full:
        return np.arange(buffer.pos)
    rows = (buffer.pos + np.arange(buffer.buffer_size)) % buffer.buffer_size
    # the oldest observation has made room for the newest next one
    return rows[1:] if buffer.optimize_memory_usage else rows


def _checked(buffer: ReplayBuffer, rows: IntArray, info_keys: Sequence[str], time_limits: bool) -> BoolArray:
    """[step, env]: which steps were cut by a time limit, if all that is asked for can be had."""
    if info_keys:
        raise ValueError(
            f"a replay buffer keeps no info, so outcomes that read {', '.join(info_keys)} cannot be seen "
            "in it: use ExplainerCallback while training, or collect afterwards"
        )
    if not len(rows):
        raise ValueError("the replay buffer is empty")
    done = buffer.dones[rows] > 0
    if buffer.optimize_memory_usage and done[:-1].any():
        raise ValueError(
            "a replay buffer with optimize_memory_usage=True has lost the last observation of every "
            "episode: train with optimize_memory_usage=False, or use ExplainerCallback"
        )
    if getattr(buffer, "handle_timeout_termination", False):  # old buffers know no such thing
        return np.asarray((buffer.timeouts[rows] > 0) & done)
    if time_limits and done.any():
        raise ValueError(
            "a replay buffer with handle_timeout_termination=False does not tell a time limit from a "
            "termination: pass time_limits=False if the env has none"
        )
    return np.zeros_like(done)


def _transitions(
    buffer: ReplayBuffer, rows: IntArray, timeouts: BoolArray, env_space: spaces.Space[Any] | None
) -> Transitions:
    if buffer.optimize_memory_usage:
        next_observations, next_rows = buffer.observations, (rows + 1) % buffer.buffer_size
    else:
        next_observations, next_rows = buffer.next_observations, rows
    return Transitions(
        observation=_observations(buffer.observations, rows, buffer.observation_space, env_space),
        action=_actions(buffer.actions[rows], buffer.action_space),
        next_observation=_observations(next_observations, next_rows, buffer.observation_space, env_space),
        reward=buffer.rewards[rows].ravel().astype(np.float64),
        terminated=((buffer.dones[rows] > 0) & ~timeouts).ravel(),
        truncated=timeouts.ravel(),
        stream=np.tile(np.arange(timeouts.shape[1]), len(rows)),
    )


def _observations(
    stored: Any, rows: IntArray, space: spaces.Space[Any], env_space: spaces.Space[Any] | None
) -> Array:
    """[batch, ...] from [row, env, ...], or from a dict of those."""
    if not isinstance(space, spaces.Dict):
        return _in_space(stored[rows], space, env_space)
    if env_space is None:
        return pack({key: _in_space(stored[key][rows], space[key], None) for key in space})
    if not isinstance(env_space, spaces.Dict) or list(env_space) != list(space):
        raise ValueError(f"the replay buffer holds observations of {space}, not of {env_space}")
    return pack({key: _in_space(stored[key][rows], space[key], env_space[key]) for key in space})


def _in_space(stored: Array, space: spaces.Space[Any], env_space: spaces.Space[Any] | None) -> Array:
    """[batch, ...] from [step, env, ...], in the layout of the env."""
    assert space.shape is not None
    flat = stored.reshape(-1, *space.shape)
    if not is_image_space(space):
        return flat
    if env_space is None:
        raise ValueError(
            f"the replay buffer holds images of shape {space.shape}, which SB3 may have turned: "
            "pass the env's own observation_space"
        )
    if env_space.shape == space.shape:
        return flat
    if env_space.shape == (*space.shape[1:], space.shape[0]):
        return np.moveaxis(flat, 1, -1)
    raise ValueError(f"the replay buffer holds images of shape {space.shape}, the env has {env_space.shape}")


def _actions(stored: Array, space: spaces.Space[Any]) -> Array:
    """[batch, ...] from [step, env, action]: as the env received them."""
    if isinstance(space, spaces.Discrete):
        return stored.reshape(-1).astype(np.int64)
    assert space.shape is not None
    actions = stored.reshape(-1, *space.shape)
    if isinstance(space, spaces.Box):  # off-policy algorithms store them rescaled to [-1, 1]
        return np.asarray(space.low + 0.5 * (actions + 1.0) * (space.high - space.low), dtype=space.dtype)
    return actions
