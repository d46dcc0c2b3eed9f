"""Checkpoints: the learned state of an unfinished run, in one npz file that is written atomically."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from tpd.core.types import Array, Resumable, Stage, State
from tpd.guards.atomic import atomic_write
from tpd.guards.files import blame, read_arrays
from tpd.guards.settings import whole_number

log = logging.getLogger(__name__)

ABOUT = "about"


class Checkpoint:
    """A file with the number of completed stages and the state of all parts after them.

    fingerprint: of the run; a checkpoint with another fingerprint is ignored.
    seconds: minimal time between two saves.
    """

    def __init__(self, path: Path, fingerprint: str, seconds: float) -> None:
        self._path, self._fingerprint, self._seconds = path, fingerprint, seconds
        self._saved = time.monotonic()

    def save(self, stage: int, parts: Mapping[str, Resumable]) -> None:
        """Save the state of the parts after a stage, unless the last save was less than `seconds` ago."""
        if time.monotonic() - self._saved < self._seconds:
            return
        arrays = {f"{name}/{key}": a for name, part in parts.items() for key, a in part.state().items()}
        about = {"fingerprint": self._fingerprint, "stage": stage, "digest": self._digest(stage, arrays)}
        with atomic_write(self._path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **{ABOUT: np.array(json.dumps(about))}, **arrays)
        self._saved = time.monotonic()
        log.info("checkpoint written after stage %d", stage)

    def resume(self, parts: Mapping[str, Resumable], stages: int) -> int:
        """Restore the parts and return the number of completed stages; 0 if there is no valid checkpoint."""
        if not self._path.exists():
            return 0
        fresh = dict[str, State]()
        try:
            stage, arrays = self.read(stages)
            fresh = {name: {k: _copied(a) for k, a in part.state().items()} for name, part in parts.items()}
            self._restore(parts, arrays)
        except (ValueError, OSError) as error:
            log.warning("the checkpoint cannot be used (%s): the run starts from the beginning", error)
            for name, state in fresh.items():  # some of these parts are already restored
                parts[name].restore(state)
            return 0
        log.info("resumed from the checkpoint after stage %d of %d", stage, stages)
        return stage

    def take_up(self, parts: Mapping[str, Resumable], stages: int) -> int:
        """The same, but raises an error if the checkpoint is invalid, and may leave some parts restored."""
        stage, arrays = self.read(stages)
        self._restore(parts, arrays)
        return stage

    def _restore(self, parts: Mapping[str, Resumable], arrays: Mapping[str, Array]) -> None:
        with blame(self._path):
            for name, part in parts.items():
                prefix = f"{name}/"
                part.restore({k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)})

    def read(self, stages: int) -> tuple[int, dict[str, Array]]:
        """The stage and the arrays; raises an error if the checkpoint is corrupted or of another run."""
        arrays = read_arrays(self._path)
        with blame(self._path):
            about = json.loads(str(arrays.pop(ABOUT)))
            if about["fingerprint"] != self._fingerprint:
                raise ValueError("it was written with other settings or code")
            stage = whole_number("its stage", about["stage"], at_least=0)
            if about["digest"] != self._digest(stage, arrays):
                raise ValueError("its digest does not match, so it was changed or corrupted")
            if stage > stages:
                raise ValueError(f"it was written after stage {stage}, but this run has only {stages} stages")
        return stage, arrays

    def _digest(self, stage: int, arrays: Mapping[str, Array]) -> str:
        """A SHA-256 digest of fingerprint, stage and arrays."""
        digest = hashlib.sha256(json.dumps([self._fingerprint, stage]).encode())
        for name, array in sorted(arrays.items()):
            digest.update(json.dumps([name, np.lib.format.dtype_to_descr(array.dtype), array.shape]).encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()


def _copied(array: Array) -> Array:
    """A copy; arrays of zeros are allocated lazily, since large tables are often empty."""
    plain = array.dtype.kind in "biuf"
    return np.zeros(array.shape, array.dtype) if plain and not array.any() else array.copy()


def run_stages(
    stages: Sequence[Stage],
    parts: Mapping[str, object],
    checkpoint: Checkpoint | None,
    resumed: Callable[[int], None] = lambda done: None,
) -> None:
    """Run the stages in order, starting from the checkpoint if all parts are resumable.

    resumed: called with the number of stages that were already done.
    """
    resumable = {name: part for name, part in parts.items() if isinstance(part, Resumable)}
    if len(resumable) < len(parts):
        checkpoint = None
    done = 0 if checkpoint is None else checkpoint.resume(resumable, len(stages))
    resumed(done)
    for number, stage in enumerate(stages[done:], start=done + 1):
        stage()
        if checkpoint is not None:
            checkpoint.save(number, resumable)
