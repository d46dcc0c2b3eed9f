"""Which folder a command resumes in."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tpd.store.run_folders import LOCK, STATUS, command, locked, resume_folder, write_record


def test_only_what_is_unfinished_and_free_is_gone_on_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tpd-run", "seed=3"])
    root = str(tmp_path)
    for name, status in (("a", "failed"), ("b", "running"), ("c", "finished")):
        (tmp_path / name).mkdir()
        write_record(tmp_path / name / STATUS, command=command(), status=status)
    assert resume_folder(root, "new") == f"{root}/b"
    with locked(tmp_path / "b"):
        assert resume_folder(root, "new") == f"{root}/a"
    monkeypatch.setattr(sys, "argv", ["tpd-run", "seed=4"])
    mine = f"{root}/new_{os.getpid()}"
    assert resume_folder(root, "new") == mine
    Path(mine).mkdir()
    assert resume_folder(root, "new") == f"{mine}_2"  # a clock that was set back


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    look = f"resume_folder({str(tmp_path)!r}, 'now')"
    script = f"from tpd.store.run_folders import resume_folder; print({look})"
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) for _ in range(3)]
    assert len({process.communicate()[0] for process in processes}) == 3


def test_looking_for_a_folder_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["tpd-run", "seed=3"])
    for name in ("begun", "busy"):
        (tmp_path / name).mkdir()
        write_record(tmp_path / name / STATUS, command=command(), status="running")
    with locked(tmp_path / "busy"):
        before = {path: path.stat() for path in tmp_path.rglob("*")}
        assert resume_folder(str(tmp_path), "new") == str(tmp_path / "begun")
        assert resume_folder(str(tmp_path / "elsewhere"), "new").startswith(str(tmp_path / "elsewhere"))
        after = {path: path.stat() for path in tmp_path.rglob("*")}
    assert {path: stat.st_mtime_ns for path, stat in before.items()} == {
        path: stat.st_mtime_ns for path, stat in after.items()
    }


def link(path: Path, target: Path) -> None:
    path.symlink_to(target)


def linked_folder(path: Path, target: Path) -> None:
    path.symlink_to(target.parent)


def pipe(path: Path, target: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("name", ["config.yaml", "run.log", "start.npz", "tracking.jsonl", LOCK, STATUS])
@pytest.mark.parametrize("make", [link, linked_folder, pipe])
def test_a_folder_whose_files_lie_elsewhere_is_not_claimed(
    tmp_path: Path, name: str, make: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "theirs" / ".hydra").mkdir(parents=True)
    for path in (tmp_path / "theirs" / name, tmp_path / "theirs" / ".hydra" / name):
        make(path, tmp_path / "mine.txt")
        with pytest.raises(ValueError, match=re.escape(str(path))), locked(tmp_path / "theirs"):
            raise AssertionError
        path.unlink()
    link(tmp_path / "theirs" / "within", tmp_path / "theirs" / ".hydra")
    with locked(tmp_path / "theirs"):
        assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_folder_that_lies_elsewhere_is_not_gone_on_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tpd-run", "seed=3"])
    (tmp_path / "mine").mkdir()
    (tmp_path / "runs").mkdir()
    write_record(tmp_path / "mine" / STATUS, command=command(), status="running")
    (tmp_path / "runs" / "theirs").symlink_to(tmp_path / "mine")
    assert resume_folder(str(tmp_path / "runs"), "new").startswith(f"{tmp_path}/runs/new")
