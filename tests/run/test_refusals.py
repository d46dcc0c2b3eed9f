"""Commands that cannot be done are refused in one line, soon, and leave nothing behind."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.commands import tpd_run
from tpd import __version__
from tpd.run import slurm
from tpd.run.cli import sync
from tpd.store.fingerprints import code_version
from tpd.store.run_folders import SWEEP, write_record

STARTS = {
    "env=null": "env=null: env must be one of its options",
    "experiment=agent env.id=CartPole-v1 policy.path=none.zip": "policy: none.zip: there is no such file",
    "experiment=agent env.id=CartPol-v1 policy.path=file": "; did you mean CartPole-v1?",
    "experiment=agent env.id=CartPole-v1 policy.path=file": "policy: ",
    "experiment=agent policy.path=file": "env: set the environment of the agent, env.id=...",
    "experiment=cart_pol": "did you mean cart_pole?",
    "hydra.run.dir=file/x": "hydra.run.dir: the folder of the run cannot be created",
    "training=dataset training.path=/": "training: / is not a dataset",
    "tracking.uri=sqlite:///file/x.db": "tracking: the store .* cannot be written",
    "tracking.uri=sqlite:///a?b.db": "tracking: MLflow cannot store runs in a path with % or ?",
}


@pytest.mark.parametrize("words", STARTS)
def test_a_run_that_cannot_start_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    short = [] if "experiment" in words else ["policy.steps=100"]
    done = tpd_run(tmp_path, *words.split(), *short, check=False)
    assert done.returncode != 0
    start = STARTS[words].partition(" .*")[0]
    assert start in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.db"))
    begun = words.startswith("tracking")  # the store may be there when the command is repeated
    assert {path.name for path in tmp_path.iterdir()} == ({"file", "outputs"} if begun else {"file"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["uri=nonsense"], "uri must be a store that MLflow supports"),
        (["uri=nonsense://x"], "uri must be a store that MLflow supports"),
        (["uri="], "uri must be a store, such as"),
        *(([f"uri={nameless}"], "uri must be a store, such as") for nameless in ("sqlite://", "sqlite:///")),
        (["uri=http://127.0.0.1:1"], "http://127.0.0.1:1 does not answer"),
        (["uri=sqlite:///outputs"], "outputs must be a file that you may read and write"),
        (["nowhere"], "there is no folder nowhere"),
        (["outputs", "outputs"], "usage: tpd-sync"),
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


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_the_usage_of_tpd_sync_can_be_asked_for(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tpd-sync", word])
    sync()
    printed = capsys.readouterr()
    assert "usage: tpd-sync [folder]" in printed.out
    assert not printed.err


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
    assert re.search(r"hydra\.(run|sweep)\.dir: .*theirs.* points outside", done.stderr), done.stderr
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
    sweep, others = tmp_path / "a sweep", tmp_path / "others"
    script, theirs = (folder / ".submitit" / "submission_file_1.sh" for folder in (sweep, others))
    cancelled = slurm_of(f"echo '123 {theirs}'; echo '124 (null)'; echo '456 {script}'; echo '456 {script}'")
    for name in ("123_0", "124_0"):
        (sweep / ".submitit" / name).mkdir(parents=True)
    write_record(sweep / SWEEP, status="running", slurm=["123", "124"])
    assert slurm.queued(sweep, 0) == {"456"}
    slurm.cancel(sweep)
    assert cancelled.read_text() == "456\n"
    script.parent.rename(others)
    slurm.wait(sweep)  # it does not wait


def test_what_is_waited_for_is_told(
    tmp_path: Path, slurm_of: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (tmp_path / ".submitit").mkdir()
    asked = tmp_path / "asked"
    slurm_of(f"[ -e {asked} ] || echo '456 {tmp_path}/.submitit/submission_file_1.sh'; touch {asked}")
    slurm.wait(tmp_path)
    assert f"Slurm still has jobs of {tmp_path}: waiting for them (456)" in caplog.text


def test_slurm_that_does_not_answer_is_not_asked_without_end(
    tmp_path: Path, slurm_of: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    cancelled = slurm_of("echo it is down >&2; exit 1")
    (tmp_path / ".submitit").mkdir()
    with pytest.raises(TimeoutError, match=f"whether jobs of {tmp_path} are still running: it is down"):
        slurm.wait(tmp_path)
    slurm.cancel(tmp_path)
    assert f"jobs of {tmp_path} may still be running" in caplog.text
    assert not cancelled.exists()
