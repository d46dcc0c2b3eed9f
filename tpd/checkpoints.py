"""Checkpoints: what a run has learned so far, in one file of plain arrays that is whole or not there."""

import json
import logging
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tpd.files import whole
from tpd.types import Array, Resumable, Stage

log = logging.getLogger(__name__)

ABOUT = "about"


class Checkpoint:
    """A file that says after which stage a run was, and how its parts were then.

    fingerprint: of what is run; a checkpoint of anything else is not taken up.
    seconds: so much time lies between two savings at least.
    """

    def __init__(self, path: Path, fingerprint: str, seconds: float) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._seconds = seconds
        self._saved = time.monotonic()

    def save(self, stage: int, parts: Mapping[str, Resumable]) -> None:
        """Keep how the parts are after a stage, if the last time is long enough ago."""
        if time.monotonic() - self._saved < self._seconds:
            return
        about = json.dumps({"fingerprint": self._fingerprint, "stage": stage})
        arrays = {f"{name}/{key}": a for name, part in parts.items() for key, a in part.state().items()}
        with whole(self._path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **{ABOUT: np.array(about)}, **arrays)
        self._saved = time.monotonic()
        log.info("checkpoint after stage %d", stage)

    def resume(self, parts: Mapping[str, Resumable]) -> int:
        """Put the parts back; the stage after which they were so, 0 if there is nothing to go on from."""
        if not self._path.exists():
            return 0
        try:
            about, arrays = self._read()
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
            log.warning("%s cannot be read, so the run starts anew: %s", self._path, error)
            return 0
        if about["fingerprint"] != self._fingerprint:
            log.warning("%s is of other settings or code, so the run starts anew", self._path)
            return 0
        for name, part in parts.items():
            own = {key.removeprefix(f"{name}/"): a for key, a in arrays.items() if key.startswith(f"{name}/")}
            part.restore(own)
        log.info("going on after stage %d", about["stage"])
        return int(about["stage"])

    def _read(self) -> tuple[dict[str, Any], dict[str, Array]]:
        with np.load(self._path, allow_pickle=False) as stored:
            return json.loads(str(stored[ABOUT])), {key: stored[key] for key in stored if key != ABOUT}

    def remove(self) -> None:
        """The run is over."""
        self._path.unlink(missing_ok=True)


def go_through(stages: Sequence[Stage], parts: Mapping[str, object], checkpoint: Checkpoint | None) -> None:
    """Do one stage after the other, from the checkpoint on, if all parts can be put down and taken up."""
    resumable = {name: part for name, part in parts.items() if isinstance(part, Resumable)}
    if len(resumable) < len(parts):
        checkpoint = None
    done = 0 if checkpoint is None else checkpoint.resume(resumable)
    for number, stage in enumerate(stages[done:], start=done + 1):
        stage()
        if checkpoint is not None:
            checkpoint.save(number, resumable)
