"""Checkpoints: what a run has learned so far, in one file of plain arrays that is whole or not there."""

import json
import logging
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tpd.files import whole
from tpd.types import Array, Resumable

log = logging.getLogger(__name__)

ABOUT = "about"


class Checkpoint:
    """Saves parts of a run now and then, and puts them back where they were.

    fingerprint: of what is being run; a checkpoint of anything else is not taken up.
    seconds: so much time lies between two of them at least.
    """

    def __init__(self, path: Path, fingerprint: str, parts: Mapping[str, object], seconds: float) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._parts = parts
        self._seconds = seconds
        self._saved = time.monotonic()

    def save(self, stage: int) -> None:
        """Keep what there is after a stage of the run, if the last time is long enough ago."""
        if time.monotonic() - self._saved < self._seconds:
            return
        arrays = dict[str, Array]()
        for name, part in self._parts.items():
            if not isinstance(part, Resumable):
                return
            arrays |= {f"{name}/{key}": value for key, value in part.state().items()}
        about = json.dumps({"fingerprint": self._fingerprint, "stage": stage})
        with whole(self._path) as unfinished, unfinished.open("wb") as file:
            np.savez(file, allow_pickle=False, **{ABOUT: np.array(about)}, **arrays)
        self._saved = time.monotonic()
        log.info("checkpoint after stage %d", stage)

    def resume(self) -> int:
        """Put everything back; the stage after which it was saved, 0 if there is nothing to go on from."""
        if not self._path.exists():
            return 0
        try:
            about, arrays = self._read()
        except (ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
            log.warning("%s cannot be read, so the run starts anew: %s", self._path, error)
            return 0
        if about["fingerprint"] != self._fingerprint:
            log.warning("%s is of other settings or code, so the run starts anew", self._path)
            return 0
        for name, part in self._parts.items():
            assert isinstance(part, Resumable)
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
