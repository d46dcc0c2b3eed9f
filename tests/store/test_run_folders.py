"""Which folder a command resumes in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpd.store.run_folders import STATUS, command, locked, resume_folder, write_record


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
