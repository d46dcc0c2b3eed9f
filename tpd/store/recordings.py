"""Saves and loads recorded episodes as npz files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpd.core.types import Array, Episodes, Transitions
from tpd.envs import Environment
from tpd.envs.spaces import check_members
from tpd.guards.files import ANY, REAL, WHOLE, StoredArrays, blame, write_arrays
from tpd.sources.episodes import EARLY_FRAMES, LAST_FRAMES, MOST_PICTURED, Recording, check_frame
from tpd.store.legends import ROUNDING

RECORDED = ("observation", "action", "next_observation", "reward", "terminated", "truncated")


def save_recording(recording: Recording, path: Path) -> None:
    """Write recorded episodes as arrays; the pictures are concatenated as bytes."""
    arrays: dict[str, Array] = {name: getattr(recording.episodes.transitions, name) for name in RECORDED}
    arrays |= {
        "begins": recording.episodes.begins,
        "happened": recording.happened,
        "seeds": recording.seeds,
        "frames": np.frombuffer(b"".join(recording.frames), dtype=np.uint8),
        "frame_rows": recording.frame_rows,
        "frame_ends": np.cumsum([len(frame) for frame in recording.frames], dtype=np.int64),
    }
    if recording.masks is not None:
        arrays["masks"] = recording.masks
    write_arrays(path, arrays)


def load_recording(path: Path) -> Recording:
    """Read what `save_recording` wrote."""
    stored = StoredArrays(path)
    batch = stored.take("reward", (None,), REAL, finite=False).shape
    kinds = {"reward": REAL, "terminated": "b", "truncated": "b"}
    shapes = {name: batch if name in kinds else (*batch, ...) for name in RECORDED}
    columns: dict[str, Any] = {
        name: stored.take(name, shapes[name], kinds.get(name, ANY), finite=False) for name in RECORDED
    }
    begins = stored.take("begins", (None,), WHOLE)
    stored.check("begins", np.diff(begins, append=batch[0]) > 0)
    stored.check("begins", begins[:1] == 0)
    seeds = stored.take("seeds", begins.shape, WHOLE)
    stored.check("seeds", seeds >= 0)
    happened = stored.take("happened", (*batch, None), REAL)
    masks = stored.optional("masks", (*batch, None), "b")
    frames = _frames(stored, len(begins))
    rows = stored.take("frame_rows", (len(frames),), WHOLE)
    stored.check("frame_rows", (np.diff(rows, prepend=-1) > 0) & (rows < batch[0]))
    stored.check("frame_rows", np.isin(begins, rows) | (len(frames) == 0))
    return Recording(Episodes(Transitions(**columns), begins), happened, seeds, masks, frames, rows)


def require_fit(recording: Recording, env: Environment, bounds: Sequence[tuple[float, float]]) -> None:
    """Refuse episodes that do not fit the environment, or outcomes outside of these bounds."""
    transitions = recording.episodes.transitions
    for name in ("observation", "next_observation"):
        check_members(name, getattr(transitions, name), env.observation_space, hidden_state=None)
    check_members("action", transitions.action, env.action_space)
    if not np.isfinite(transitions.reward).all():
        raise ValueError("all rewards must be finite")
    if recording.happened.shape[1] != len(bounds):
        raise ValueError(
            f"the recording has {recording.happened.shape[1]} outcomes, but the explainer has "
            f"{len(bounds)}: the files are of different runs"
        )
    low, high = np.array(bounds, dtype=np.float64).T
    slack = ROUNDING * (high - low)
    if ((recording.happened < low - slack) | (recording.happened > high + slack)).any():
        raise ValueError("happened: the outcomes have values outside their bounds")
    masks = recording.masks
    if masks is not None and not (
        env.discrete and masks.shape[1] == env.num_actions and masks.any(axis=1).all()
    ):
        raise ValueError("each action mask must fit the actions of the environment and allow at least one")


def _frames(stored: StoredArrays, episodes: int) -> tuple[bytes, ...]:
    """The pictures of some steps; may be empty."""
    joined, ends = stored.take("frames", (None,), "u"), stored.take("frame_ends", (None,), WHOLE)
    most = min(episodes, MOST_PICTURED) * (EARLY_FRAMES + LAST_FRAMES)
    if len(ends) > most:
        raise ValueError(
            f"{stored.path}: {len(ends)} pictures of {episodes} episodes, at most {most} are allowed"
        )
    stored.check("frame_ends", (np.diff(ends, prepend=0) >= 0) & (ends <= len(joined)))
    frames = tuple(frame.tobytes() for frame in np.split(joined, ends)[:-1])  # the last part is the remainder
    for index, frame in enumerate(frames):
        with blame(stored.path):
            check_frame(frame, f"frame {index}")
    return frames
