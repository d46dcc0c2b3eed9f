"""Sweeps that are told, whatever lies in their folders."""

import json
import logging
import shutil
import sys
from pathlib import Path

import pytest

from tests.support import good_files
from tests.support.good_files import MARKER
from tests.support.hostile_files import DEEP, with_keys
from tpd.run.summary import finished_jobs, launched_jobs, missing_jobs, summarise
from tpd.run.sweep import BEST, JobWatch, best_job
from tpd.store import saved_runs
from tpd.store.run_descriptions import RUN
from tpd.store.run_folders import (
    FAILED,
    FINISHED,
    STATUS,
    SWEEP,
    command,
    read_record,
    resume_folder,
    write_record,
)
from tpd.store.yaml_files import OVERRIDES
from tpd.tracking.runs import Run

ABOUT = f"{saved_runs.EXPLAINER}/{RUN}"
PLANNED = {0: ["seed=0"], 1: ["seed=1"]}


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two seeds."""
    folder = tmp_path_factory.mktemp("sweep")
    for number in PLANNED:
        job = folder / str(number)
        job.mkdir()
        good_files.job(job)
        with_keys(ABOUT, seed=number)(job)
        write_record(job / STATUS, number=number, seed=number)
    return folder


@pytest.fixture
def sweep(two_jobs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(two_jobs, tmp_path / "sweep"))


def test_finished_jobs_are_told(sweep: Path) -> None:
    jobs = finished_jobs(sweep)
    assert [job.seed for job in jobs] == ["0", "1"]
    assert missing_jobs(sweep, PLANNED) == {}
    summarise(jobs, sweep, Run())
    assert len(list(sweep.glob("plots/start_*"))) == 4


READ = [
    ABOUT,
    OVERRIDES,
    "errors.json",
    "metrics.json",
    "curve.json",
    "forecasts.json",
    "start.npz",
]


@pytest.mark.parametrize("content", [b'{"', b"{}"], ids=["cut", "nothing in it"])
@pytest.mark.parametrize("name", READ)
def test_a_job_whose_results_are_broken_is_missing_and_done_again(
    sweep: Path, name: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    broken = sweep / "1" / name
    broken.write_bytes(content)
    jobs = finished_jobs(sweep)
    assert [job.seed for job in jobs] == ["0"]
    assert str(broken) in caplog.text
    assert str(broken) in missing_jobs(sweep, PLANNED)["seed=1"]
    assert read_record(sweep / "1" / STATUS)["status"] == FAILED  # so that it is not skipped
    summarise(jobs, sweep, Run())


def test_nothing_of_a_run_is_made_to_tell_of_it(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sweep / good_files.STRANGER).write_text(good_files.MODULE)
    monkeypatch.syspath_prepend(str(sweep))
    monkeypatch.chdir(sweep)
    with_keys(ABOUT, env__id="stranger:Lake-v0")(sweep / "0")
    with_keys(ABOUT, env={"_target_": "os.mkdir", "_args_": [MARKER]})(sweep / "1")
    assert [job.seed for job in finished_jobs(sweep)] == ["0"]
    assert not (sweep / MARKER).exists()
    assert "stranger" not in sys.modules
    told = missing_jobs(sweep, PLANNED)["seed=1"]
    assert told.startswith(str(sweep / "1" / ABOUT))
    assert "\n" not in told


# What is known of runs

BROKEN = {"cut": b'{"comm', "a list": b"[]", "nothing": b"", "no text": b"\xff\xfe", "deep": DEEP}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("name", [STATUS, SWEEP])
def test_a_broken_record_is_named_and_stops_no_other_run(
    tmp_path: Path,
    name: str,
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "argv", ["tpd-run", "seed=3"])
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / name).write_bytes(content)
    (tmp_path / "begun").mkdir()
    write_record(tmp_path / "begun" / STATUS, command=command(), status="running")
    assert resume_folder(str(tmp_path), "new") == str(tmp_path / "begun")
    assert read_record(tmp_path / "old" / name) == {}
    assert caplog.text.count(str(tmp_path / "old" / name)) == 1
    write_record(tmp_path / "old" / name, status=FINISHED)
    assert read_record(tmp_path / "old" / name)["status"] == FINISHED


@pytest.mark.parametrize("content", [*BROKEN.values(), b"{}", b'{"status": "failed"}'])
def test_broken_records_of_jobs_are_survived(
    sweep: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    (sweep / "1" / STATUS).write_bytes(content)
    (sweep / "1" / "job.log").write_bytes(b"\xff")
    watch = JobWatch(sweep, 2)
    watch.stop()
    assert [job.seed for job in finished_jobs(sweep)] == ["0"]
    assert missing_jobs(sweep, PLANNED) == {"seed=1": "it did not finish"}


def test_what_was_launched_is_told_by_its_folder_if_nothing_else_is_known(sweep: Path) -> None:
    (sweep / "1" / OVERRIDES).write_text("{")
    assert launched_jobs(sweep) == {0: ["env=frozen_lake", "seed=0"], 1: [str(sweep / "1")]}


def test_a_sweeper_that_wrote_nonsense_is_told_so(tmp_path: Path) -> None:
    good_files.sweep(tmp_path)
    assert best_job(tmp_path) == "best: seed=1, with a mean skill of 0.5000"
    (tmp_path / BEST).write_text(json.dumps({"best_value": "x"}))
    assert best_job(tmp_path).startswith(f"the best settings are unknown: {tmp_path / BEST}: ")
