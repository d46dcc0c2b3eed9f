"""Which folder a command resumes in."""

import sys
from concurrent.futures import ThreadPoolExecutor
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
    assert resume_folder(root, "new") == f"{root}/new"
    assert resume_folder(root, "c") == f"{root}/c_2"  # a clock that was set back


def test_runs_of_the_same_second_have_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(10) as threads:
        folders = list(threads.map(resume_folder, [str(tmp_path)] * 10, ["now"] * 10))
    assert len(set(folders)) == 10
