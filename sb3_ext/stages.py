"""Splits a Stable-Baselines3 training into stages, with its state as plain arrays in between."""

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from torch import nn

from tpd.core.types import Array, State
from tpd.guards.files import ANY, REAL, WHOLE, CheckedArrays
from tpd.predictors.network.state import (
    optimizer_state,
    prefixed,
    put_optimizer_state,
    put_weights,
    unprefixed,
    weights,
)

BUFFERS = (ReplayBuffer, DictReplayBuffer, NStepReplayBuffer)
COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")
NUMBERED = COLUMNS[:3]
"""The columns that hold state or action numbers, if these are discrete."""
FIGURES = (
    "num_timesteps",
    "exploration_rate",
    "_current_progress_remaining",
    "_episode_num",
    "_n_calls",
    "_n_updates",
)
PROGRESS = "_update_current_progress_remaining"
"""SB3's method that is replaced during a stage."""


def indivisible(model: BaseAlgorithm) -> str | None:
    """Why the training of a model cannot be split into stages; None if it can."""
    if (buffer := _buffer(model)) is None:
        return None
    if type(buffer) not in BUFFERS:
        known = ", ".join(kind.__name__ for kind in BUFFERS)
        return f"its replay buffer is a {type(buffer).__name__}, but only {known} are supported"
    if buffer.optimize_memory_usage:
        return "a replay buffer with optimize_memory_usage=True does not store where an episode was truncated"
    return None


def begin(model: BaseAlgorithm, seed: int) -> None:
    """Prepare the next `learn` to reset its environments, with a new seed."""
    buffer = _buffer(model)
    if buffer is not None and buffer.size():
        last = buffer.pos - 1
        buffer.timeouts[last] = np.logical_or(buffer.timeouts[last], buffer.dones[last] == 0)
    model.set_random_seed(seed)
    model._last_obs = None


@contextmanager
def progress_of(model: BaseAlgorithm, steps: int) -> Iterator[None]:
    """Let schedules follow a whole training of `steps` steps, although `learn` knows only one stage."""

    def update(done: int, stage: int) -> None:
        getattr(type(model), PROGRESS)(model, done, steps)

    vars(model)[PROGRESS] = update
    try:
        yield
    finally:
        del vars(model)[PROGRESS]


def state(model: BaseAlgorithm, *, over: bool) -> State:
    """The state of the model and, if its training is not over, what the next stage starts from."""
    found = {name: np.array(getattr(model, name)) for name in FIGURES if hasattr(model, name)}
    for name, learned in _learned(model).items():
        if isinstance(learned, nn.Module):
            found |= prefixed(name, weights(learned))
        elif isinstance(learned, torch.optim.Optimizer):
            found |= prefixed(name, optimizer_state(learned))
        else:
            found[name] = learned.detach().numpy().copy()
    found["returns"] = np.array([episode["r"] for episode in model.ep_info_buffer or ()])
    found["lengths"] = np.array([episode["l"] for episode in model.ep_info_buffer or ()])
    found["successes"] = np.array(model.ep_success_buffer or ())
    buffer = _buffer(model)
    if buffer is not None and not over:
        found["pos"], found["full"] = np.array(buffer.pos), np.array(buffer.full)
        rows = buffer.size()
        found |= prefixed("buffer", {name: column[:rows] for name, column in _columns(buffer).items()})
    return found


def restore(model: BaseAlgorithm, state: State, *, over: bool) -> None:
    """Restore a state; over: whether the training was over, so that there is no stage to continue."""
    stored = CheckedArrays(state)
    for name in FIGURES:
        if hasattr(model, name):
            whole = isinstance(getattr(model, name), int)
            figure = stored.take(name, (), WHOLE if whole else REAL)
            stored.check(name, np.asarray(figure >= 0 if whole else abs(figure) <= 1))
            setattr(model, name, figure.item())
    for name, learned in _learned(model).items():
        if isinstance(learned, nn.Module):
            put_weights(learned, unprefixed(name, state))
        elif isinstance(learned, torch.optim.Optimizer):
            put_optimizer_state(learned, unprefixed(name, state))
        else:
            learned.data.copy_(torch.from_numpy(stored.like(name, learned.numpy(force=True))))
    returns, lengths = (stored.take(name, (None,), REAL).tolist() for name in ("returns", "lengths"))
    latest = zip(returns, lengths, strict=True)
    window = model._stats_window_size
    model.ep_info_buffer = deque(({"r": total, "l": length} for total, length in latest), maxlen=window)
    model.ep_success_buffer = deque(stored.take("successes", (None,), ANY).tolist(), maxlen=window)
    buffer = _buffer(model)
    if buffer is not None and not over:
        pos, full = stored.number("pos", buffer.buffer_size - 1), bool(stored.take("full", (), "b"))
        rows, kept = buffer.buffer_size if full else pos, CheckedArrays(unprefixed("buffer", state))
        for name, column in _columns(buffer).items():
            space = buffer.action_space if name == "actions" else buffer.observation_space
            low, high = -np.inf, np.inf
            if name in NUMBERED and isinstance(space, spaces.Discrete):
                low, high = 0, int(space.n) - 1
            column[:rows] = kept.like(name, column, rows=rows, low=low, high=high)
        buffer.pos, buffer.full = pos, full


def _learned(model: BaseAlgorithm) -> dict[str, Any]:
    """Networks, optimizers and single variables, as SB3 lists them for its zips."""
    modules, variables = model._get_torch_save_params()
    found = {}
    for path in [*modules, *variables]:
        learned: Any = model
        for name in path.split("."):
            learned = getattr(learned, name)
        found[path.replace(".", "_")] = learned
    return found


def _buffer(model: BaseAlgorithm) -> ReplayBuffer | None:
    buffer = getattr(model, "replay_buffer", None)
    assert buffer is None or isinstance(buffer, ReplayBuffer)
    return buffer


def _columns(buffer: ReplayBuffer) -> dict[str, Array]:
    """[row, env, ...]: the arrays of the buffer; observations of a Dict space by key."""
    columns: dict[str, Array] = {}
    for name in COLUMNS:
        column = getattr(buffer, name)
        if isinstance(column, Mapping):
            columns |= prefixed(name, column)
        else:
            columns[name] = column
    return columns
