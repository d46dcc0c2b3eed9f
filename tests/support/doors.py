"""Every door: all that reads a file or a request, and what comes of hostile ones."""

import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import gymnasium as gym
import mlflow
import numpy as np
from mlflow.exceptions import MlflowException

from sb3_ext.buffers import load_replay_buffer
from sb3_ext.loading import load_agent
from sb3_ext.normalization import load_normalization
from sb3_ext.zoo import read_zoo_folder
from tests.support import good_files, hostile_files
from tests.support.good_files import MARKER, POLE
from tests.support.hostile_files import Spoil
from tpd.envs import dataset
from tpd.envs.dataset import DatasetDescription
from tpd.policies.stored import POLICY, DatasetPolicy
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.run.parts import CHECKPOINT
from tpd.run.summary import read_job
from tpd.run.sweep import BEST, read_best
from tpd.sources.parquet import read_shard, shard_path, shard_paths
from tpd.store import explainers, saved_runs
from tpd.store.checkpoints import Checkpoint
from tpd.store.explanations import load_explanation
from tpd.store.recordings import load_recording
from tpd.store.run_descriptions import RUN
from tpd.store.run_folders import STATUS, SWEEP, parse_record
from tpd.store.yaml_files import OVERRIDES
from tpd.tracking.delivery import DELIVERY_STATE, TRIES, deliver_all
from tpd.tracking.fetch import fetch
from tpd.tracking.journal import JOURNAL
from tpd.tracking.scoring_server import answer

SECONDS, ROOM = 60, 2 * 2**30
LONGEST_LINE, MLFLOW_LINE = 800, 80
ENFORCED = "Failed to enforce schema"
READ, REFUSED, RAN, HUNG, UNCLEAR = "read as plain data", "refused", "RAN", "HUNG", "NOT CLEAR"


@dataclass(frozen=True)
class Door:
    """A kind of file, and who reads it."""

    kind: str
    reader: str
    make: Callable[[Path], None]
    """Makes a good one in a folder."""
    read: Callable[[Path], object]
    """Reads what lies in a folder."""
    file: str
    """In the folder: what hostile bytes are put in place of."""
    own: Mapping[str, Spoil] = field(default_factory=dict)
    """What is hostile to this kind alone."""
    harmless: tuple[str, ...] = ()
    """What may be read all the same, for nothing of it is believed or looked at."""
    culprits: tuple[str, ...] = ()
    """What else than the file the one line may name."""
    anything: bool = True
    """Whether it is handed all that can be put in place of any file; False where another door was."""


@dataclass(frozen=True)
class Case:
    """One hostile input at one door."""

    door: Door
    name: str
    spoil: Spoil

    def __str__(self) -> str:
        return f"{self.door.kind}: {self.name}"


@dataclass(frozen=True)
class Result:
    """What came of it."""

    what: str
    line: str

    def fine(self, case: Case) -> bool:
        """Whether nothing ran, and what is wrong was refused."""
        return self.what == REFUSED or (self.what == READ and case.name in case.door.harmless)


def cases() -> list[Case]:
    """Every door with every hostile input."""
    return [
        Case(door, name, spoil)
        for door in DOORS
        for name, spoil in {
            **(hostile_files.anywhere(door.file) if door.anything else {}),
            **door.own,
        }.items()
    ]


def attempt(case: Case, scratch: Path, seconds: float = SECONDS) -> Result:
    """Hand the input over, with little time and memory; the good file is made once in `scratch`."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        folder = Path(name) / "door"
        shutil.copytree(_template(case.door, scratch), folder)
        case.spoil(folder)
        what, line = _in_a_child(case.door.read, folder, seconds)
        if (folder / MARKER).exists():
            return Result(RAN, "")
    line = line.replace(f"{folder}/", "").replace(str(folder), "the folder")
    culprits = (Path(case.door.file).name, *case.door.culprits)
    clear = any(culprit in line for culprit in culprits) and "\n" not in line and len(line) <= LONGEST_LINE
    return Result(UNCLEAR if what == REFUSED and not clear else what, line)


def _template(door: Door, scratch: Path) -> Path:
    template = scratch / door.make.__name__
    if not template.exists():
        template.mkdir()
        door.make(template)
    return template


class _Reader:
    """A child that reads one folder after the other: forking one for each would take longer than reading."""

    def __init__(self, read: Callable[[Path], object]) -> None:
        context = multiprocessing.get_context("fork")  # the libraries take seconds to load
        self.of = read
        self._folders, folders = context.Pipe()
        self._process = context.Process(target=_report, args=(read, folders), daemon=True)
        self._process.start()
        folders.close()

    def read(self, folder: Path, seconds: float) -> tuple[str, str]:
        """What came of reading."""
        try:
            self._folders.send(folder)
            if not self._folders.poll(seconds):
                return HUNG, f"not done after {seconds} s"
            what, line = self._folders.recv()
        except (EOFError, ConnectionError):
            return UNCLEAR, "the process died"
        return what, line

    def stop(self) -> None:
        self._process.kill()
        self._process.join()
        self._folders.close()


_readers: list[_Reader] = []
"""The last one, if it can read more."""


def _in_a_child(read: Callable[[Path], object], folder: Path, seconds: float) -> tuple[str, str]:
    """What came of reading; a child that did anything but read or refuse reads nothing more."""
    if _readers and _readers[0].of is not read:
        _readers.pop().stop()
    if not _readers:
        _readers.append(_Reader(read))
    what, line = _readers[0].read(folder, seconds)
    if what not in (READ, REFUSED) or (folder / MARKER).exists():
        _readers.pop().stop()
    return what, line


def _report(read: Callable[[Path], object], folders: Connection) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM,) * 2)
    path = list(sys.path)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        while True:
            folder = folders.recv()
            os.chdir(folder)
            sys.path[:] = [str(folder), *path]
            try:
                read(folder)
            except (ValueError, TypeError, OSError) as error:
                folders.send((REFUSED, str(error)))
            except BaseException as error:
                folders.send((UNCLEAR, f"{type(error).__name__}: {error}"))
            else:
                folders.send((READ, ""))


# Who reads


def read_explainer(folder: Path) -> None:
    explainers.load(folder / saved_runs.EXPLAINER)


def read_shards(folder: Path) -> None:
    description = DatasetDescription.read(folder)
    for path in shard_paths(folder, description):
        list(read_shard(path, description))


def read_run(folder: Path, trusted: tuple[str, ...] = ()) -> None:
    """All that its description names is made."""
    run = saved_runs.read(folder, trusted)
    run.env.check()
    run.outcomes()


def fetch_run(folder: Path) -> None:
    read_run(fetch(good_files.moved(folder), good_files.uri(folder), folder / "fetched"))


def ask(folder: Path) -> None:
    """Put the question in a folder as MLflow's server does."""
    model = mlflow.pyfunc.load_model(str(folder / "model"))
    path = folder / "question.json"
    if not path.is_file():
        raise ValueError("question.json is no request")
    try:
        answered = answer(path.read_bytes(), "application/json", model, model.metadata.get_input_schema())
    except MlflowException as error:
        raise ValueError(_said(error)) from error
    json.loads(answered.response, parse_constant=_refuse_constant)


def _said(error: MlflowException) -> str:
    """The line of ours, or the beginning of what MLflow says of a column that is missing."""
    told: str = error.message
    if ENFORCED not in told:
        return told
    return f"MLflow: {' '.join(told.rpartition('Error: ')[2].split())[:MLFLOW_LINE]}"


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def read_agent(folder: Path, trust: bool = False) -> None:
    load_agent(folder / "agent.zip", gym.make(POLE), trust=trust)


def read_statistics(folder: Path, trust: bool = False) -> None:
    load_normalization(folder / "statistics.pkl", good_files.box(), trust=trust)


def read_buffer(folder: Path) -> None:
    load_replay_buffer(folder / "buffer.pkl")


def read_finished_job(folder: Path) -> None:
    """As the summary of a sweep does."""
    read_job(folder)


def take_up(folder: Path) -> None:
    """As a run does that goes on, with a learner that has seen nothing."""
    learner = good_files.explained().predictor
    assert isinstance(learner, ReplayedFHTD)
    Checkpoint(folder / CHECKPOINT, "ours", seconds=0).take_up({"explainer": learner.empty()}, stages=2)


def read_policy(folder: Path) -> None:
    DatasetPolicy(good_files.lake(), np.random.default_rng(0), path=str(folder))


# The doors

DESCRIPTION, ARRAYS, WEIGHTS, ABOUT = (
    f"{saved_runs.EXPLAINER}/{name}"
    for name in (explainers.DESCRIPTION, explainers.ARRAYS, explainers.AGENT, RUN)
)
DATASET, SHARD = dataset.DESCRIPTION, shard_path(Path(), 0).name


def deliver(folder: Path) -> None:
    """As often as it takes until a store is taken to refuse something."""
    told = list[str]()
    left = [deliver_all(folder, lambda _, said: told.append(said), lambda _: True) for _ in range(TRIES)]
    if left[-1]:
        raise ValueError(told[-1])


ABSENT = "no such file"
TABLES = {"errors.json": "pi_mse", "curve.json": "step", "forecasts.json": "skill"}


def _job_door(kind: str, file: str, own: Mapping[str, Spoil], harmless: tuple[str, ...] = ()) -> Door:
    kind = f"job of a sweep: {kind}"
    return Door(kind, "`summary.read_job`", good_files.job, read_finished_job, file, own, harmless)


JOB_DOORS = (
    _job_door("overrides", OVERRIDES, hostile_files.words(OVERRIDES), ("half of it",)),
    *(_job_door(name, name, hostile_files.table(name, number), (ABSENT,)) for name, number in TABLES.items()),
    _job_door("metrics.json", "metrics.json", hostile_files.metrics("metrics.json")),
    _job_door(
        "an explanation", "start.npz", hostile_files.arrays("start.npz", "expected"), (hostile_files.OUTSIDE,)
    ),
)
"""What the summary of a sweep reads; a table that is absent was not made."""
DOORS = (
    Door(
        "saved agent",
        "`load_agent`",
        good_files.agent,
        read_agent,
        "agent.zip",
        hostile_files.agent("agent.zip"),
        (hostile_files.OUTSIDE, hostile_files.OTHER_PICKLES, hostile_files.SETTINGS),
    ),
    Door(
        "VecNormalize statistics",
        "`load_normalization`",
        good_files.statistics,
        read_statistics,
        "statistics.pkl",
        hostile_files.statistics("statistics.pkl"),
    ),
    Door(
        "RL-Zoo agent: config.yml",
        "`read_zoo_folder`",
        good_files.zoo,
        read_zoo_folder,
        "config.yml",
        hostile_files.zoo_config("config.yml"),
        (ABSENT,),
        ("stranger.Wrapper", "gymnasium.wrappers.importlib"),
    ),
    Door(
        "RL-Zoo agent: args.yml",
        "`read_zoo_folder`",
        good_files.zoo,
        read_zoo_folder,
        "args.yml",
        hostile_files.zoo("args.yml"),
        (ABSENT,),
    ),
    Door(
        "replay buffer",
        "`load_replay_buffer`",
        good_files.buffer,
        read_buffer,
        "buffer.pkl",
        hostile_files.pickles("buffer.pkl"),
    ),
    Door(
        "tabular explainer: arrays",
        "`explainers.load`",
        good_files.table,
        read_explainer,
        ARRAYS,
        hostile_files.arrays(ARRAYS, "expected"),
        (hostile_files.OUTSIDE,),
    ),
    Door(
        "tabular explainer: JSON",
        "`explainers.load`",
        good_files.table,
        read_explainer,
        DESCRIPTION,
        hostile_files.description(DESCRIPTION),
    ),
    Door(
        "network explainer: arrays",
        "`explainers.load`",
        good_files.network,
        read_explainer,
        ARRAYS,
        hostile_files.arrays(ARRAYS, "weight.steps.heads.shared.weight"),
        (hostile_files.OUTSIDE,),
        (saved_runs.EXPLAINER,),
        anything=False,
    ),
    Door(
        "network explainer: JSON",
        "`explainers.load`",
        good_files.network,
        read_explainer,
        DESCRIPTION,
        hostile_files.network(DESCRIPTION),
        culprits=(saved_runs.EXPLAINER,),
        anything=False,
    ),
    Door(
        "network of return distributions: arrays",
        "`explainers.load`",
        good_files.returns,
        read_explainer,
        ARRAYS,
        hostile_files.arrays(ARRAYS, "return.heads.shared.weight") | hostile_files.units(ARRAYS),
        (hostile_files.OUTSIDE,),
        (saved_runs.EXPLAINER,),
        anything=False,
    ),
    Door(
        "network of return distributions: JSON",
        "`explainers.load`",
        good_files.returns,
        read_explainer,
        DESCRIPTION,
        hostile_files.returns(DESCRIPTION),
        culprits=(saved_runs.EXPLAINER,),
        anything=False,
    ),
    Door(
        "explanation",
        "`load_explanation`",
        good_files.explanation,
        lambda folder: load_explanation(folder / "explanation.npz"),
        "explanation.npz",
        hostile_files.arrays("explanation.npz", "expected"),
        (hostile_files.OUTSIDE,),
    ),
    Door(
        "recorded episodes",
        "`load_recording`",
        good_files.recording,
        lambda folder: load_recording(folder / saved_runs.EPISODES),
        saved_runs.EPISODES,
        hostile_files.arrays(saved_runs.EPISODES, "happened") | hostile_files.pictures(saved_runs.EPISODES),
        (hostile_files.OUTSIDE,),
    ),
    Door(
        "dataset: JSON",
        "`DatasetDescription.read`",
        good_files.shards,
        read_shards,
        DATASET,
        hostile_files.shards(DATASET),
        culprits=(SHARD, "dataset"),
    ),
    Door(
        "dataset: a shard",
        "`read_shard`",
        good_files.shards,
        read_shards,
        SHARD,
        hostile_files.shard(SHARD),
    ),
    Door(
        "description of a run",
        "`saved_runs.read`",
        good_files.run,
        read_run,
        ABOUT,
        hostile_files.about(ABOUT),
        culprits=("of this run",),
    ),
    Door(
        "agent stored with its explainer: settings",
        "`explainers.load`",
        good_files.stored_agent,
        read_explainer,
        DESCRIPTION,
        hostile_files.stored_agent(DESCRIPTION),
        culprits=(saved_runs.EXPLAINER,),
        anything=False,
    ),
    Door(
        "agent stored with its explainer: arrays",
        "`explainers.load`",
        good_files.stored_agent,
        read_explainer,
        WEIGHTS,
        hostile_files.arrays(WEIGHTS, "weight.action_net.bias"),
        (hostile_files.OUTSIDE,),
        (saved_runs.EXPLAINER,),
    ),
    Door(
        "checkpoint of a run",
        "`Checkpoint.read`",
        good_files.checkpoint,
        lambda folder: Checkpoint(folder / CHECKPOINT, "ours", seconds=0).read(stages=2),
        CHECKPOINT,
        hostile_files.arrays(CHECKPOINT, "explainer/outcome") | hostile_files.checkpoint(CHECKPOINT),
    ),
    Door(
        "checkpoint of a run: counted transitions",
        "`Checkpoint.take_up`",
        good_files.checkpoint,
        take_up,
        CHECKPOINT,
        hostile_files.counts(CHECKPOINT),
        anything=False,
    ),
    Door(
        "status file of a run",
        "`run_folders.parse_record`",
        good_files.job,
        lambda folder: parse_record(folder / STATUS),
        STATUS,
        hostile_files.record(STATUS),
    ),
    Door(
        "status file of a sweep",
        "`run_folders.parse_record`",
        good_files.sweep,
        lambda folder: parse_record(folder / SWEEP),
        SWEEP,
        hostile_files.record(SWEEP),
    ),
    *JOB_DOORS,
    Door(
        "best trial of a sweeper",
        "`sweep.read_best`",
        good_files.sweep,
        lambda folder: read_best(folder / BEST),
        BEST,
        hostile_files.best(BEST),
    ),
    Door(
        "tracking data of a run: address of the store",
        "`deliver_all` (`tpd-sync`)",
        good_files.tracked,
        deliver,
        DELIVERY_STATE,
        hostile_files.address(DELIVERY_STATE),
        (ABSENT,),
    ),
    Door(
        "tracking data of a run: journal",
        "`deliver_all` (`tpd-sync`)",
        good_files.tracked,
        deliver,
        JOURNAL,
        hostile_files.journal(JOURNAL),
        (ABSENT, "nothing in it", "half of it"),
        ("/etc/hostname", "secret"),
    ),
    Door(
        "policy of a dataset",
        "`DatasetPolicy`",
        good_files.policy,
        read_policy,
        POLICY,
        hostile_files.arrays(POLICY, "probabilities") | hostile_files.policy(POLICY),
        (hostile_files.OUTSIDE,),
    ),
    Door(
        "MLflow model",
        "`fetch` and `saved_runs.read`",
        good_files.served,
        fetch_run,
        "model/MLmodel",
        hostile_files.model("model/MLmodel"),
        (*hostile_files.anywhere(""), hostile_files.LOADER, hostile_files.PICKLED),
        (explainers.DESCRIPTION,),
    ),
    Door(
        "request to a served model",
        "`ServedExplainer.predict`",
        good_files.served,
        ask,
        "question.json",
        hostile_files.question("question.json"),
        culprits=("row", "MLflow:", "JSON", "dataframe_"),
    ),
)


# Only when told


def load_model(folder: Path) -> None:
    mlflow.pyfunc.load_model(str(folder / "model"))


def _told(
    kind: str, how: str, make: Callable[[Path], None], read: Callable[[Path], object], file: str, name: str
) -> Case:
    door = next(door for door in DOORS if door.kind == kind)
    spoils = {**hostile_files.anywhere(file), **door.own}
    return Case(Door(kind, how, make, read, file), name, spoils[name])


PICKLE = "a pickle that runs code"
TOLD = (
    _told(
        "saved agent",
        "`load_agent(..., trust=True)`",
        good_files.agent,
        partial(read_agent, trust=True),
        "agent.zip",
        hostile_files.SETTINGS,
    ),
    _told(
        "VecNormalize statistics",
        "`load_normalization(..., trust=True)`",
        good_files.statistics,
        partial(read_statistics, trust=True),
        "statistics.pkl",
        PICKLE,
    ),
    _told(
        "description of a run",
        "`tpd-explain trust=[stranger]`",
        good_files.run,
        partial(read_run, trusted=("stranger",)),
        ABOUT,
        hostile_files.IMPORTS,
    ),
    _told(
        "MLflow model",
        "`mlflow.pyfunc.load_model` or `mlflow models serve`, which import the module that the model names",
        good_files.served,
        load_model,
        "model/MLmodel",
        hostile_files.LOADER,
    ),
)
"""What runs the code of a file, because the user said so."""
