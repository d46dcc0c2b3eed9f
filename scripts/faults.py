"""Inject faults into runs (kills, full disks, lost servers), and check that nothing is lost.

python scripts/faults.py            all of it; writes docs/results/faults.md
python scripts/faults.py kills=5    some of it, quicker, and nothing is written

Every fault hits a real run, started as by a user. The same command is then repeated until the run has
finished, and its results are compared, bit for bit, with those of an undisturbed run.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mlflow import MlflowClient

from tests.support.breakable import Server, disk, enlarge
from tpd.store.run_folders import FINISHED, read_record
from tpd.tracking.journal import JOURNAL

SCRIPT = Path(__file__).with_name("run.py")
SYNC = Path(__file__).with_name("sync.py")
DOCUMENT = Path(__file__).parents[1] / "docs" / "results" / "faults.md"
SMALL = (
    "experiment=paper",
    "policy.steps=50000",
    "training.steps=400000",
    "training.shards=8",
    "training.processes=1",
    "evaluation.episodes=500",
    "evaluation.curve_points=6",
    "recording.episodes=2",
    "checkpoint_seconds=0",
    "overview=false",
)
WITH_OVERVIEW = (
    "env=frozen_lake",
    "policy.steps=1000000",
    "policy.stages=4",
    "training.steps=2000000",
    "training.shards=8",
    "training.processes=1",
    "evaluation.episodes=500",
    "evaluation.curve_points=6",
    "recording.episodes=1",
    "checkpoint_seconds=0",
)
AGENT = (
    "experiment=cart_pole",
    "policy=sb3_dqn",
    "policy.steps=4000",
    "policy.stages=8",
    "training.steps=8000",
    "training.shards=4",
    "training.processes=2",
    "explainer.hidden=[16]",
    "explainer.fit_updates=400",
    "evaluation=forecasts",
    "evaluation.forecast_episodes=20",
    "recording.episodes=1",
    "checkpoint_seconds=0",
    "overview=false",
)
KILLED = {"a run with discrete states": WITH_OVERVIEW, "a run with an SB3 agent and a network": AGENT}
KILLS, SWEEPS, SERVERS = 26, 3, 2
SECONDS_AT_MOST = 600
PAGE = """# Faults

`python scripts/faults.py` injects each fault into a real run and repeats the command until the run finishes.
It compares the results bit for bit with those of a run without faults: the error tables, the learning
curve, the forecasts and every array of the explainer. The MLflow store must contain every metric of
every step exactly once. The script writes this page, and fails if a result is lost.

{faults}

*Time to finish* is the wall-clock time of the repeated command. If the fault is in the MLflow server, the run
finishes without the server, and the time is that of `tpd-sync`. The *overview* is the maps, turning points
and report of a run. The runs are small, with a checkpoint after each stage (`checkpoint_seconds=0`); most of
their time is spent on starting Python and importing libraries.

## Concurrent writers

Several processes start at the same time and log metrics to one store, which does not exist yet. Each metric
is first written to the folder of its run. A process waits only for this write (*wait per metric*). The
metrics are then delivered from the folder to the store in batches.

{load}
"""
COMPARED = ("errors.json", "curve.json", "forecasts.json", "metrics.json")
NOT_COMPARED = ("seconds/", "time/")
WORKER = "popen_loky"  # in the command line of all joblib workers


Tracked = dict[str, dict[str, list[tuple[int, float]]]]
"""By run name and metric name: steps and values."""


@dataclass
class Row:
    """One row of the table."""

    fault: str
    tried: int = 0
    lost: int = 0
    recovered: list[float] = field(default_factory=list)
    """Seconds from repeating the command to its end, or to the same point."""
    remark: str = ""

    def __str__(self) -> str:
        took = f"{np.median(self.recovered):.1f} s" if self.recovered else "-"
        return f"| {self.fault} | {self.tried} | {self.lost or 'nothing'} | {took} | {self.remark} |"


def start(folder: Path, *words: str, script: Path = SCRIPT) -> subprocess.Popen[bytes]:
    """Start a command as a user would, in its own process group."""
    with (folder / "terminal.txt").open("ab") as terminal:
        return subprocess.Popen(
            [sys.executable, str(script), *words],
            cwd=folder,
            stdout=terminal,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CI": "true", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        )


def finish(folder: Path, *words: str, script: Path = SCRIPT) -> float:
    """Run a command to its end; returns the seconds it took."""
    began = time.monotonic()
    process = start(folder, *words, script=script)
    if process.wait(SECONDS_AT_MOST) != 0:
        raise RuntimeError((folder / "terminal.txt").read_text()[-3000:])
    return time.monotonic() - began


def kill(process: subprocess.Popen[bytes], with_signal: signal.Signals = signal.SIGKILL) -> None:
    """Kill a command and all processes that it has started."""
    os.killpg(process.pid, with_signal)
    process.wait()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def only_run(where: Path) -> Path:
    (status,) = where.glob("outputs/runs/*/status.json")
    return status.parent


def finished(where: Path) -> bool:
    """Whether a run or a sweep has finished."""
    paths = [*where.glob("outputs/runs/*/status.json"), *where.glob("outputs/sweeps/*/sweep.json")]
    records = map(read_record, paths)
    return any(record.get("status") == FINISHED for record in records)


def left_by(run: Path) -> dict[str, object]:
    """All results of a run, bit for bit."""
    found: dict[str, object] = {name: (run / name).read_text() for name in COMPARED if (run / name).exists()}
    with np.load(run / "explainer" / "arrays.npz", allow_pickle=False) as arrays:
        found |= {name: arrays[name].tobytes() for name in arrays}
    return found


def tracked(uri: str) -> Tracked:
    """All metrics in the store, by run name; the runs must have finished."""
    client = MlflowClient(uri)
    found = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            name = str(run.info.run_name)
            if name in found or run.info.status != "FINISHED":
                raise RuntimeError(f"{name} is there twice, or {run.info.status}")
            found[name] = {
                metric: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, metric)]
                for metric in run.data.metrics
                if not metric.startswith(NOT_COMPARED)
            }
    return found


def differences(one: dict[str, object], other: dict[str, object]) -> int:
    """Number of results that differ."""
    return sum(one.get(name) != other.get(name) for name in one.keys() | other.keys())


def untracked(due: Tracked, found: Tracked) -> int:
    """Number of metrics with a missing value, or with two values for one step.

    A resumed sweep has additional values, logged while jobs were missing.
    """
    lost = 0
    for run, metrics in due.items():
        for name, values in metrics.items():
            kept = found.get(run, {}).get(name, [])
            lost += not set(values) <= set(kept) or len({step for step, _ in kept}) < len(kept)
    return lost


def store(where: Path) -> str:
    return f"sqlite:///{where}/mlflow.db"


def stage_of(where: Path) -> str:
    """How far a run got, judged by its files."""
    runs = list(where.glob("outputs/runs/*"))
    if not runs:
        return "starting"
    log = "".join(path.read_text() for path in runs[0].glob("*.log"))
    for words, stage in (
        ("overview took", "tracking"),
        ("saving took", "overview"),
        ("evaluation took", "saving"),
        ("learning took", "evaluation"),
        ("checkpoint after", "collecting and learning"),
    ):
        if words in log:
            return stage
    return "building and training the policy"


def kills(count: int) -> Iterator[Row]:
    """SIGKILL at random moments of runs, `count` times for each kind."""
    rng = random.Random(0)
    for kind, words in KILLED.items():
        yield kill_often(Row(f"`kill -9` at a random moment of {kind}"), words, count, rng)


def kill_often(row: Row, words: Sequence[str], count: int, rng: random.Random) -> Row:
    """Kill a run again and again until it has finished, then start another one."""
    moments = Counter[str]()
    with folder() as where:
        idle, undisturbed = timed(where, words)
        due, due_tracked = left_by(only_run(where)), tracked(store(where))
    while row.tried < count:
        with folder() as where:
            while row.tried < count:
                process = start(where, *words)
                try:
                    process.wait(rng.uniform(idle / 2, undisturbed))
                    break
                except subprocess.TimeoutExpired:
                    kill(process)
                    row.tried += 1
                    moments[stage_of(where)] += 1
                if finished(where):  # finished, but killed before it could exit
                    break
            if not finished(where):
                row.recovered.append(finish(where, *words))
            row.lost += differences(due, left_by(only_run(where)))
            row.lost += untracked(due_tracked, tracked(store(where)))
            print(f"{row.fault}: {row.tried}, lost: {row.lost}", flush=True)
    said = ", ".join(f"{stage} ({number})" for stage, number in moments.most_common())
    row.remark = f"killed during {said}; without a fault: {undisturbed:.1f} s"
    return row


def timed(where: Path, words: Sequence[str]) -> tuple[float, float]:
    """The seconds until a run starts its work, and until its end."""
    began, process = time.monotonic(), start(where, *words)
    while not list(where.glob("outputs/runs/*/status.json")) and process.poll() is None:
        time.sleep(0.1)
    idle = time.monotonic() - began
    if process.wait(SECONDS_AT_MOST) != 0:
        raise RuntimeError((where / "terminal.txt").read_text()[-3000:])
    return idle, time.monotonic() - began


def sweeps(count: int) -> Iterator[Row]:
    """Kill a sweep of four seeds, one of its workers, or its terminal, in the middle."""
    words = ("-m", *SMALL, "seed=range(4)", "hydra.launcher.n_jobs=2")
    with folder() as where:
        undisturbed = finish(where, *words)
        due = {
            path.parent.name: left_by(path.parent) for path in where.glob("outputs/sweeps/*/*/status.json")
        }
        due_tracked = tracked(store(where))
    rng = random.Random(1)
    for fault, strike in (
        ("`kill -9` of a whole sweep", lambda process: kill(process)),
        ("`kill -9` of the parent process of a sweep, but not of its workers", kill_parent),
        ("`kill -9` of one worker of a sweep", kill_worker),
        ("Ctrl-C in a sweep", lambda process: kill(process, signal.SIGINT)),
    ):
        row = Row(fault, remark=f"without a fault: {undisturbed:.1f} s")
        while row.tried < count:
            with folder() as where:
                process = start(where, *words)
                time.sleep(rng.uniform(0.3, 0.9) * undisturbed)
                strike(process)
                if finished(where):  # finished before the fault
                    continue
                row.tried += 1
                row.recovered.append(finish(where, *words))
                left = {
                    path.parent.name: left_by(path.parent)
                    for path in where.glob("outputs/sweeps/*/*/status.json")
                }
                row.lost += differences(dict(due), dict(left))
                row.lost += len(list(where.glob("outputs/sweeps/*"))) - 1  # it was not resumed
                row.lost += untracked(due_tracked, tracked(store(where)))
            print(f"{fault}: {row.tried}, lost: {row.lost}", flush=True)
        yield row


def kill_parent(process: subprocess.Popen[bytes]) -> None:
    """Kill the started process only; its children must notice by themselves."""
    process.kill()
    process.wait()


def kill_worker(process: subprocess.Popen[bytes]) -> None:
    """Kill one worker of a sweep, and let the rest end by itself."""
    group = ["ps", "-o", "pid=,args=", "-g", str(process.pid)]
    listed = subprocess.run(group, capture_output=True, text=True)
    workers = [line.split()[0] for line in listed.stdout.splitlines() if WORKER in line]
    if workers:
        os.kill(int(workers[-1]), signal.SIGKILL)
    process.wait(SECONDS_AT_MOST)


def servers(count: int) -> Iterator[Row]:
    """The store goes away, or stops answering, during a run."""
    with folder() as where:
        undisturbed = finish(where, *SMALL)
        due, due_tracked = left_by(only_run(where)), tracked(store(where))
    rng = random.Random(2)
    for fault, strike, mend in (
        ("the MLflow server is killed in the middle of a run", Server.stop, Server.start),
        ("the MLflow server stops answering in the middle of a run", Server.freeze, Server.thaw),
        ("the MLflow server can still read its store, but not write to it", Server.lock, Server.unlock),
    ):
        row = Row(fault, remark="`tpd-sync` delivers the missing data")
        for _ in range(count):
            with folder() as where, ExitStack() as at_last:
                server = Server(where)
                at_last.callback(server.stop)
                server.start()
                process = start(where, *SMALL, f"tracking.uri={server.uri}")
                while not list(where.glob(f"outputs/runs/*/{JOURNAL}")) and process.poll() is None:
                    time.sleep(0.1)  # a run that cannot start is refused, and has nothing to lose
                time.sleep(rng.uniform(0, 0.5) * undisturbed)
                strike(server)
                if process.wait(SECONDS_AT_MOST) != 0:
                    raise RuntimeError((where / "terminal.txt").read_text()[-3000:])
                row.lost += differences(due, left_by(only_run(where)))
                mend(server)
                row.recovered.append(finish(where, "outputs", f"uri={server.uri}", script=SYNC))
                row.tried += 1
                row.lost += untracked(due_tracked, tracked(server.uri))
            print(f"{fault}: {row.tried}, lost: {row.lost}", flush=True)
        yield row


def full_disks(count: int) -> Iterator[Row]:
    """The disk is full in the middle of a run, and has space again afterwards."""
    remark = "the error message is one line; the same command resumes the run"
    row = Row("the disk is full in the middle of a run", remark=remark)
    with folder() as where:
        finish(where, *SMALL, "tracking=none")
        due = left_by(only_run(where))
    for megabytes in range(1, count + 1):
        with folder() as where, disk(where, f"size={megabytes}m"):
            process = start(where, *SMALL, "tracking=none")
            if process.wait(SECONDS_AT_MOST) == 0:
                raise RuntimeError(f"{megabytes} MB were enough")
            if "No space left" not in (where / "terminal.txt").read_text().splitlines()[-1]:
                row.lost += 1
            row.tried += 1
            enlarge(where)
            row.recovered.append(finish(where, *SMALL, "tracking=none"))
            row.lost += differences(due, left_by(only_run(where)))
        print(f"{row.fault}: {row.tried}, lost: {row.lost}", flush=True)
    yield row


LOAD = """
import sys, time
from pathlib import Path
from tpd.tracking.outbox import open_run
from tpd.tracking.runs import MlflowTracking
number, uri, where = sys.argv[1:]
took = []
with open_run(MlflowTracking(uri=uri, experiment="load"), Path(where), number, {}, {}) as run:
    for step in range(1000):
        began = time.perf_counter()
        run.metrics({"loss": step / 1000}, step)
        took.append(time.perf_counter() - began)
print(*took)
"""


def said_by(process: subprocess.Popen[bytes]) -> str:
    """The output of a process, after it has ended."""
    told, trouble = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(trouble.decode()[-3000:])
    return told.decode()


def load(count: int) -> Iterator[str]:
    """Start processes at once on a store that does not exist yet, with 1000 metrics each."""
    yield (
        "| store | processes | metrics each | metrics lost | wait per metric, median | wait per metric, p99 "
        "| all delivered after |"
    )
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for kind in ("an SQLite file", "an MLflow server"):
        with folder() as where, ExitStack() as at_last:
            server = Server(where)
            at_last.callback(server.stop)
            uri = store(where)
            if kind == "an MLflow server":
                server.start()
                uri = server.uri
            began = time.monotonic()
            processes = [
                subprocess.Popen(
                    [sys.executable, "-c", LOAD, str(number), uri, str(where / f"run_{number}")],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
                for number in range(count)
            ]
            told = [said_by(process) for process in processes]
            seconds = time.monotonic() - began
            took = np.array([float(word) for said in told for word in said.splitlines()[-1].split()])
            found = tracked(uri)
            due = [(step, step / 1000) for step in range(1000)]
            lost = sum(len(set(due) ^ set(found.get(str(n), {}).get("loss", []))) for n in range(count))
            lost += sum(abs(len(run["loss"]) - 1000) for run in found.values())
        micro = 1e6 * np.quantile(took, [0.5, 0.99])
        yield (
            f"| {kind} | {count} | 1000 | {lost or 'nothing'} "
            f"| {micro[0]:.0f} µs | {micro[1]:.0f} µs | {seconds:.1f} s |"
        )


FAULTS: dict[str, tuple[Callable[[int], Iterator[Row]], int]] = {
    "kills": (kills, KILLS),
    "sweeps": (sweeps, SWEEPS),
    "servers": (servers, SERVERS),
    "full_disks": (full_disks, 3),
}


def main() -> None:
    asked = dict(word.split("=") for word in sys.argv[1:])
    if unknown := asked.keys() - {*FAULTS, "load"}:
        sys.exit(f"no fault {', '.join(unknown)}; there are {', '.join([*FAULTS, 'load'])}")
    rows = [
        row
        for name, (strike, often) in FAULTS.items()
        if not asked or name in asked
        for row in strike(int(asked.get(name, often)))
    ]
    loaded = list(load(int(asked.get("load", 10)))) if not asked or "load" in asked else []
    head = "| fault | times | results lost | time to finish, median | details |"
    table = [head, "|---|--:|--:|--:|---|", *map(str, rows)]
    print("\n".join([*table, "", *loaded]))
    if not asked:
        DOCUMENT.write_text(PAGE.format(faults="\n".join(table), load="\n".join(loaded)))
    if any(row.lost for row in rows) or any("nothing" not in line for line in loaded[2:]):
        sys.exit("something was lost")


if __name__ == "__main__":
    main()
