"""Recorded episodes on disk, as arrays."""

from pathlib import Path

import numpy as np

from tpd.core.types import Array, Episodes, Transitions
from tpd.guards.files import ANY, REAL, WHOLE, StoredArrays, blame, write_arrays
from tpd.sources.episodes import Recording, check_frame

RECORDED = ("observation", "action", "next_observation", "reward", "terminated", "truncated")


def save_recording(recording: Recording, path: Path) -> None:
    """Write recorded episodes as arrays; their pictures one after the other, as bytes."""
    transitions = recording.episodes.transitions
    arrays: dict[str, Array] = {name: getattr(transitions, name) for name in RECORDED}
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
    transitions = Transitions(
        observation=stored.take("observation", (*batch, ...), ANY, finite=False),
        action=stored.take("action", (*batch, ...), ANY, finite=False),
        next_observation=stored.take("next_observation", (*batch, ...), ANY, finite=False),
        reward=stored.take("reward", batch, REAL, finite=False),
        terminated=stored.take("terminated", batch, "b"),
        truncated=stored.take("truncated", batch, "b"),
    )
    begins = stored.take("begins", (None,), WHOLE)
    stored.check("begins", np.diff(begins, append=batch[0]) > 0)
    stored.check("begins", begins[:1] == 0)
    seeds = stored.take("seeds", begins.shape, WHOLE)
    stored.check("seeds", seeds >= 0)
    happened = stored.take("happened", (*batch, None), REAL)
    masks = stored.take("masks", (*batch, None), "b", optional=True)
    frames = _frames(stored)
    rows = stored.take("frame_rows", (len(frames),), WHOLE)
    stored.check("frame_rows", (np.diff(rows, prepend=-1) > 0) & (rows < batch[0]))
    stored.check("frame_rows", np.isin(begins, rows) | (len(frames) == 0))
    return Recording(Episodes(transitions, begins), happened, seeds, masks, frames, rows)


def _frames(stored: StoredArrays) -> tuple[bytes, ...]:
    """The pictures of some steps, or none at all."""
    joined, ends = stored.take("frames", (None,), "u"), stored.take("frame_ends", (None,), WHOLE)
    stored.check("frame_ends", (np.diff(ends, prepend=0) >= 0) & (ends <= len(joined)))
    frames = tuple(frame.tobytes() for frame in np.split(joined, ends)[:-1])  # the last is what is left
    for index, frame in enumerate(frames):
        with blame(stored.path):
            check_frame(frame, f"frame {index}")
    return frames
