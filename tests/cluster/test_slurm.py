"""A sweep on Slurm that loses a worker and its store on the way, and comes to the same end as one without."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.cluster.services import PARTITION, Cluster
from tpd.tracking.journal import JOURNAL

T = TypeVar("T")
pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent
SEEDS = 10
SECONDS = 3600
"""After which something hangs, however slow the machine is."""
FILES = ("errors.json", "metrics.json", "curve.json", "forecasts.json")
SMALL = [
    "-m",
    "experiment=paper",
    "policy.steps=20000",
    "training.steps=60000",
    "evaluation.episodes=200",
    "evaluation.curve_episodes=50",
    "evaluation.curve_points=4",
    "evaluation.forecast_episodes=100",
    "recording.episodes=0",
]
SWEEP = [*SMALL, f"seed=range({SEEDS})"]
ON_SLURM = [
    "hydra/launcher=slurm",
    f"hydra.launcher.partition={PARTITION}",
    "hydra.launcher.mem_gb=1",
    f"hydra.launcher.timeout_min={SECONDS // 60}",
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep on the cores of this machine, tracked in a file."""
    folder = tmp_path_factory.mktemp("local")
    done = start(folder, dict(os.environ), *SWEEP)
    assert done.wait() == 0, (folder / "terminal.log").read_text()
    return folder


def start(folder: Path, environment: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    """The command as a user types it, what it says in a file."""
    with (folder / "terminal.log").open("w") as terminal:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "run.py"), *words],
            cwd=folder,
            env=environment,
            # a shell's background jobs ignore SIGINT, and so would the sweep
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            stdout=terminal,
            stderr=terminal,
        )


def until(look: Callable[[], T | None]) -> T:
    """What is looked for, as soon as it is there."""
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        assert time.monotonic() < deadline, "what was waited for does not come"
        time.sleep(0.1)
    return found


def jobs(folder: Path, status: str) -> set[Path]:
    found = folder.glob("outputs/sweeps/*/*/status.json")
    return {path.parent for path in found if json.loads(path.read_text())["status"] == status}


def at_work(folder: Path) -> set[Path]:
    """The jobs that have begun to learn."""
    journals = ((job, job / JOURNAL) for job in jobs(folder, "running"))
    return {job for job, journal in journals if journal.exists() and "pi_mse" in journal.read_text()}


def worker_of(number: str) -> psutil.Process | None:
    """The process that Slurm runs a job of the sweep in."""
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        ours = command[:1] == [sys.executable] and "submitit.core._submit" in command
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if ours and process.environ()["SLURM_ARRAY_TASK_ID"] == number:
                return process
    return None


@contextlib.contextmanager
def held(folder: Path) -> Iterator[tuple[Path, psutil.Process]]:
    """A job that is at work and its process, which stands still: it cannot end meanwhile."""

    def hold() -> tuple[Path, psutil.Process] | None:
        for job in sorted(at_work(folder)):
            worker = worker_of(job.name)
            if worker is None:
                continue
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.suspend()
                if job in jobs(folder, "running"):
                    return job, worker
                worker.resume()
        return None

    found = until(hold)
    assert found is not None
    job, worker = found
    try:
        yield job, worker
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):  # it was killed
            worker.resume()


def queue_of(cluster: Cluster) -> str | None:
    """What Slurm has to do; None when it does not say."""
    squeue = ["squeue", "--me", "--noheader"]
    asked = subprocess.run(squeue, env=cluster.environment, capture_output=True, text=True)
    return asked.stdout if asked.returncode == 0 else None


def runs(uri: str, role: str, name: str = "paper") -> list[Run]:
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id], f"tags.`tpd.role` = '{role}'"))


def histories(uri: str, run: Run) -> dict[str, list[tuple[int, float]]]:
    """Every metric but the measured times, by its steps."""
    client = MlflowClient(uri)
    names = [name for name in run.data.metrics if not name.startswith("seconds/")]
    return {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        for name in names
    }


def test_a_sweep_that_lost_a_worker_and_its_store_ends_like_one_that_did_not(
    cluster: Cluster, local: Path, tmp_path: Path
) -> None:
    words = [*SWEEP, *ON_SLURM, f"tracking.uri={cluster.uri}"]
    sweep = start(tmp_path, cluster.environment, *words)
    until(lambda: len(jobs(tmp_path, "finished")) >= 2)
    cluster.server.kill()
    with held(tmp_path) as (victim, worker):
        worker.kill()
    assert sweep.wait(timeout=SECONDS) != 0
    assert f"1 of {SEEDS} jobs are missing" in (tmp_path / "terminal.log").read_text()
    done_before = jobs(tmp_path, "finished")
    assert len(done_before) == SEEDS - 1
    assert victim not in done_before
    written = {job: (job / "errors.json").stat().st_mtime_ns for job in done_before}

    cluster.server.start()
    again = start(tmp_path, cluster.environment, *words)
    assert again.wait(timeout=SECONDS) == 0, (tmp_path / "terminal.log").read_text()
    assert jobs(tmp_path, "finished") == done_before | {victim}
    assert all((job / "errors.json").stat().st_mtime_ns == when for job, when in written.items())

    (ours,), (theirs,) = tmp_path.glob("outputs/sweeps/*"), local.glob("outputs/sweeps/*")
    for number in range(SEEDS):
        for name in FILES:
            mine, other = ours / str(number) / name, theirs / str(number) / name
            assert mine.read_bytes() == other.read_bytes(), f"{name} of job {number}"
    assert_same_runs(cluster.uri, f"sqlite:///{local}/mlflow.db", tmp_path)


def test_what_outlives_its_parent_is_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    words = [*SMALL, "seed=0,1", *ON_SLURM, f"tracking.uri={cluster.uri}", "name=orphans"]
    sweep = start(tmp_path, cluster.environment, *words)
    terminal = tmp_path / "terminal.log"
    with held(tmp_path):
        sweep.kill()
        sweep.wait()
        again = start(tmp_path, cluster.environment, *words)
        until(lambda: "Slurm still has jobs of" in terminal.read_text() or again.poll() is not None)
    assert again.wait(timeout=SECONDS) == 0, terminal.read_text()
    assert "Slurm still has jobs of" in terminal.read_text()
    assert len(jobs(tmp_path, "finished")) == 2
    logs = sorted(tmp_path.glob("outputs/sweeps/*/*/run.log"))
    assert ["is already finished" in log.read_text() for log in logs] == [True, True]
    assert {run.info.status for run in runs(cluster.uri, "job", "orphans")} == {"FINISHED"}


def test_an_interrupted_sweep_leaves_nothing_in_the_queue(cluster: Cluster, tmp_path: Path) -> None:
    words = [*SMALL, "seed=range(4)", *ON_SLURM, f"tracking.uri={cluster.uri}", "name=interrupted"]
    sweep = start(tmp_path, cluster.environment, *words)
    with held(tmp_path):  # until Slurm ends it
        sweep.send_signal(signal.SIGINT)
        assert sweep.wait(timeout=SECONDS) != 0
        assert "repeat the command to run them" in (tmp_path / "terminal.log").read_text()
        until(lambda: queue_of(cluster) == "")
    assert len(jobs(tmp_path, "finished")) < 4
    (parent,) = runs(cluster.uri, "sweep", "interrupted")
    assert parent.info.status == "KILLED"


def assert_same_runs(uri: str, local_uri: str, folder: Path) -> None:
    """One parent, its children, every metric of every step once, and the same table."""
    (parent,), (other,) = runs(uri, "sweep"), runs(local_uri, "sweep")
    assert parent.info.status == "FINISHED"
    for name, history in histories(uri, parent).items():
        assert [step for step, _ in history] == [SEEDS - 1, SEEDS], name
    final = {name: history[-1] for name, history in histories(uri, parent).items()}
    assert final == {name: history[-1] for name, history in histories(local_uri, other).items()}
    tables = []
    for number, (store, run) in enumerate([(uri, parent), (local_uri, other)]):
        target = folder / f"table{number}"
        target.mkdir()
        path = MlflowClient(store).download_artifacts(run.info.run_id, "errors.json", str(target))
        tables.append(Path(path).read_bytes())
    assert tables[0] == tables[1]
    children = {run.data.tags["seed"]: run for run in runs(uri, "job")}
    assert len(runs(uri, "job")) == len(children) == SEEDS
    for run in runs(local_uri, "job"):
        child = children[run.data.tags["seed"]]
        assert child.info.status == "FINISHED"
        assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert histories(uri, child) == histories(local_uri, run)
