"""Checkpoints: whole and of the same settings, or not read."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tpd.core.types import Array
from tpd.run.parts import CHECKPOINT
from tpd.store.checkpoints import Checkpoint, run_stages


class Tally:
    """A part that counts, and refuses what it did not say itself."""

    def __init__(self) -> None:
        self.count = np.zeros(3, dtype=np.int64)

    def state(self) -> dict[str, Array]:
        return {"count": self.count}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.count = state["count"].copy()

    def add(self) -> None:
        self.count += 1


def spoilt(path: Path, how: str) -> None:
    """Leave something else there."""
    with np.load(path) as stored:
        good = dict(stored)
    about = json.loads(str(good["about"]))
    if how == "an array alone":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
        return
    others = {
        "a pickle": {"about": np.array([about], dtype=object)},
        "nothing about it": {"about": np.array("{}")},
        "about a list": {"about": np.array("[]")},
        "a stage that there is not": {"about": np.array(json.dumps(about | {"stage": 999}))},
        "another stage": {"about": np.array(json.dumps(about | {"stage": 1}))},
        "a stage in words": {"about": np.array(json.dumps(about | {"stage": "two"}))},
        "a cut array": {"tally/count": good["tally/count"][:1]},
        "another array": {"tally/count": good["tally/count"] + 1},
    }
    arrays = good | others.get(how, {})
    if how == "an array less":
        del arrays["tally/count"]
    np.savez(path, **arrays)


SPOILT = (
    "an array alone",
    "a pickle",
    "nothing about it",
    "about a list",
    "a stage that there is not",
    "another stage",
    "a stage in words",
    "a cut array",
    "another array",
    "an array less",
)


@pytest.mark.parametrize("how", [*SPOILT, "cut", "empty", "other settings"])
def test_a_checkpoint_that_is_not_whole_or_not_ours_is_not_read(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, settings = tmp_path / CHECKPOINT, "other" if how == "other settings" else "ours"

    def counted(settings: str) -> list[int]:
        tally = Tally()
        run_stages([tally.add] * 2, {"tally": tally}, Checkpoint(path, settings, 0))
        return tally.count.tolist()

    assert counted("ours") == [2, 2, 2]
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "empty":
        path.write_bytes(b"")
    elif how in SPOILT:
        spoilt(path, how)
    assert counted(settings) == [2, 2, 2]
    assert f"the run starts anew, for its checkpoint cannot be taken up: {path}: " in caplog.text
    caplog.clear()
    assert counted(settings) == [2, 2, 2]
    assert "starts anew" not in caplog.text
