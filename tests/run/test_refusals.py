"""Commands that cannot be done are refused in one line, soon, and leave nothing behind."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import tpd_run
from tpd import __version__
from tpd.run import slurm, sweep
from tpd.run.cli import sync
from tpd.store.fingerprints import code_version
from tpd.store.run_folders import SWEEP, read_record, write_record

STARTS = {
    "env=null": "env=null: env has to be one of its options",
    "hydra.run.dir=file/x": "hydra.run.dir: the folder of the run cannot be made",
    "training=dataset training.path=/": "training: / holds no dataset",
    "tracking.uri=sqlite:///file/x.db": "tracking: the store .* cannot be written",
    "tracking.uri=sqlite:///a?b.db": "tracking: MLflow cannot keep runs where a name has % or ?",
}


@pytest.mark.parametrize("words", STARTS)
def test_a_run_that_cannot_start_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", "from tpd.run.cli import run; run()", *words.split(), "policy.steps=100"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    start = STARTS[words].partition(" .*")[0]
    assert start in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["uri=nonsense"], "uri must name a store that MLflow knows"),
        (["uri=nonsense://x"], "uri must name a store that MLflow knows"),
        (["uri="], "usage: tpd-sync"),
        (["nowhere"], "usage: tpd-sync"),
    ],
)
def test_a_store_that_there_is_not_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tpd-sync", *words])
    with pytest.raises(SystemExit, match=message):
        sync()
    assert {path.name for path in tmp_path.iterdir()} == {"outputs"}


@pytest.mark.parametrize("flags", [[], ["-m"]], ids=["run", "sweep"])
def test_a_folder_of_strangers_is_not_gone_on_in_when_its_files_lie_elsewhere(
    tmp_path: Path, flags: list[str]
) -> None:
    words = [*flags, "policy.steps=100", "tracking=none"]
    folder = tmp_path / "outputs" / ("sweeps" if flags else "runs") / "theirs"
    (folder / "0" / ".hydra").mkdir(parents=True)
    record = {"command": [*words, code_version()], "status": "running", "written_by": __version__}
    (folder / ("sweep.json" if flags else "status.json")).write_text(json.dumps(record))
    for place in (folder, folder / "0", folder / "0" / ".hydra"):
        for name in ("config.yaml", "run.log", "start.npz", "tracking.jsonl"):
            (tmp_path / name).write_text("mine")
            (place / name).symlink_to(tmp_path / name)
    done = tpd_run(tmp_path, *words, check=False)
    assert done.returncode != 0
    assert re.search(r"hydra\.(run|sweep)\.dir: .*theirs.* leads out of", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert {path.read_text() for path in tmp_path.glob("*.*")} == {"mine"}


@pytest.fixture
def slurm_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Programs of Slurm of which `squeue` does this; the file to which `scancel` writes what it is told."""
    monkeypatch.setattr(slurm, "SECONDS_BETWEEN_CHECKS", 0.01)
    monkeypatch.setattr(slurm, "SECONDS_OF_SILENCE", 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")

    def made(squeue: str) -> Path:
        (tmp_path / "bin").mkdir()
        for name, does in (("squeue", squeue), ("scancel", f'echo "$@" > {tmp_path}/cancelled')):
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{does}\n")
            (tmp_path / "bin" / name).chmod(0o755)
        return tmp_path / "cancelled"

    return made


def test_only_jobs_that_the_sweep_has_submitted_are_waited_for_and_cancelled(
    tmp_path: Path, slurm_of: Callable[[str], Path]
) -> None:
    """A folder of strangers names jobs of the user's that have nothing to do with it."""
    cancelled = slurm_of("echo 123; echo 456")
    for name in ("123_0", "123_1", "--me", "x", "7_"):
        (tmp_path / ".submitit" / name).mkdir(parents=True)
    write_record(tmp_path / SWEEP, status="running")
    before = slurm.submitted(tmp_path)
    assert before == {"123"}
    slurm.wait(tmp_path, before & sweep._recorded(read_record(tmp_path / SWEEP)))  # it does not wait
    watch = sweep.JobWatch(tmp_path, 1, before)
    (tmp_path / ".submitit" / "456_0").mkdir()
    watch.stop()
    assert sweep._recorded(read_record(tmp_path / SWEEP)) == {"456"}
    slurm.cancel(slurm.submitted(tmp_path) - before)
    assert cancelled.read_text() == "456\n"


@pytest.mark.parametrize("record", [None, "123", [123], {"123": 1}, [["123"]]])
def test_a_record_that_names_no_jobs_is_not_believed(record: object) -> None:
    assert sweep._recorded({"slurm": record}) == set()


def test_slurm_that_does_not_answer_is_not_asked_without_end(
    tmp_path: Path, slurm_of: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = slurm_of("echo it is down >&2; exit 1")
    with pytest.raises(TimeoutError, match="Slurm does not say whether it still has 123: it is down"):
        slurm.wait(tmp_path, {"123"})
    slurm.cancel({"123"})
    assert "the jobs 123 may still run" in caplog.text
    assert not cancelled.exists()
