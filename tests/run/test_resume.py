"""Runs and sweeps that end before they are finished, and what the same command does then."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from mlflow import MlflowClient
from omegaconf import DictConfig

from tests.support import Compose, stores
from tests.support.breakable import Server, disk, enlarge
from tests.support.commands import IN_TURN, ROOT, fork_server
from tpd.core.types import Resumable
from tpd.run.experiment import learn
from tpd.run.parts import CHECKPOINT, ConfigError, Parts, build
from tpd.run.training import DatasetTraining
from tpd.show.progress import ProgressBars
from tpd.store import explainers
from tpd.store.checkpoints import Checkpoint
from tpd.store.run_folders import locked
from tpd.tracking.runs import Run

SMALL = [
    "experiment=paper",
    "policy.steps=20000",
    "training.steps=60000",
    "training.shards=4",
    "training.processes=1",
    "evaluation.episodes=200",
    "evaluation.curve_episodes=50",
    "evaluation.curve_points=4",
    "evaluation.forecast_episodes=50",
    "recording.episodes=0",
    "checkpoint_seconds=0",
    "overview=false",
    "~figures.figure_1",
]
NETWORK = [
    "explainer=network",
    "explainer.fit_updates=40",
    "explainer.hidden=[16]",
    "explainer.return_atoms=11",
    "explainer.horizon=5",
    "training.steps=4000",
]
EXPLAINERS = [["explainer=paper"], ["explainer=replayed"], ["explainer=polynomial"], NETWORK]
FAST = {("explainer=replayed", 1), ("explainer=paper", 3), ("explainer=network", 5)}
"""Every kind of learner and every stage once; the other cases are slow."""
INTERRUPTED = [
    pytest.param(
        words,
        survived,
        marks=() if (words[0], survived) in FAST else pytest.mark.slow,
        id=f"{words[0]}-{survived}",
    )
    for words in EXPLAINERS
    for survived in (1, 3, 5)
]


class Killed(BaseException):
    """What no part of a run expects."""


def arrays_of(parts: Parts, folder: Path) -> dict[str, bytes]:
    explainers.save(parts.explainer, parts.env, folder)
    with np.load(folder / explainers.ARRAYS) as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


def learned(config: DictConfig, folder: Path) -> tuple[Parts, dict[int, dict[str, float]]]:
    folder.mkdir(exist_ok=True)
    parts = build(config)
    curve = learn(parts, Run(), ProgressBars(False), folder)
    return parts, {step: errors.metrics() for step, errors in curve.items()}


def interrupted(config: DictConfig, folder: Path, survived: int) -> None:
    """Learn, and die when the checkpoint after a stage is written."""

    def die_after(self: Checkpoint, stage: int, resumed: dict[str, object]) -> None:
        save(self, stage, resumed)  # type: ignore[arg-type]
        if stage == survived:
            raise Killed

    save = Checkpoint.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", die_after)
        with pytest.raises(Killed):
            learned(config, folder)


Found = tuple[dict[str, bytes], dict[int, dict[str, float]]]
"""The arrays of an explainer, and its errors over the course of learning."""


@pytest.fixture(scope="module")
def found_without_interruption() -> dict[str, Found]:
    """By explainer: learned once, whenever the others die."""
    return {}


@pytest.mark.no_cover
@pytest.mark.parametrize(("explainer", "survived"), INTERRUPTED)
def test_learning_goes_on_to_the_same_bits(
    compose_config: Compose,
    tmp_path: Path,
    explainer: list[str],
    survived: int,
    monkeypatch: pytest.MonkeyPatch,
    found_without_interruption: dict[str, Found],
) -> None:
    """Stage 1 is the policy, the next four are shards; whoever comes back knows nothing but the file."""
    config = compose_config(*SMALL, *explainer)
    if explainer[0] not in found_without_interruption:
        parts, errors_due = learned(config, tmp_path / "whole")
        found_without_interruption[explainer[0]] = arrays_of(parts, tmp_path / "due"), errors_due
    due, curve = found_without_interruption[explainer[0]]
    interrupted(config, tmp_path, survived)
    again = build(config)
    monkeypatch.setattr(again.trainer, "train", lambda *arguments: pytest.fail("done already"))
    curve_again = learn(again, Run(), ProgressBars(False), tmp_path)
    assert arrays_of(again, tmp_path / "again") == due
    metrics = {step: errors.metrics() for step, errors in curve_again.items()}
    assert repr(metrics) == repr(curve)  # NaN is the same NaN


@pytest.mark.parametrize(
    "explainer",
    [["explainer=replayed"], pytest.param(NETWORK, marks=pytest.mark.slow)],
    ids=lambda words: words[0],
)
def test_shards_of_many_processes_are_stages_too(
    compose_config: Compose, tmp_path: Path, explainer: list[str]
) -> None:
    """As above, with two processes; what they write is the same as well, and none of it is refused."""
    words = [*SMALL, *explainer, "training.processes=2", "evaluation.curve_points=0"]
    due, _ = learned(compose_config(*words, "training.processes=1"), tmp_path / "whole")
    config = compose_config(*words, f"training.save_dataset={tmp_path / 'r'}")
    interrupted(config, tmp_path, 3)
    shards = [tmp_path / "r" / f"shard-0000{number}.parquet" for number in range(4)]
    written = [shard.stat().st_mtime_ns for shard in shards[:2]]
    (tmp_path / "r" / ".shard-00003.parquet.1").touch()  # by a process that was killed
    interrupted(config, tmp_path, 6)  # when the dataset is whole
    again, _ = learned(config, tmp_path)
    assert arrays_of(again, tmp_path / "again") == arrays_of(due, tmp_path / "due")
    assert [shard.stat().st_mtime_ns for shard in shards[:2]] == written
    assert len(list((tmp_path / "r").iterdir())) == 6  # with the description and the policy
    source = DatasetTraining(path=str(tmp_path / "r"), processes=2)
    assert source.steps == due.training.steps
    with pytest.raises(ConfigError, match="already contains a dataset"):
        build(compose_config(*words, f"training.save_dataset={tmp_path / 'r'}", "seed=1"))


AGENT = [
    "experiment=cart_pole",
    "evaluation=none",
    *NETWORK[1:],
    "training.steps=300",
    "recording.episodes=0",
    "checkpoint_seconds=0",
    "policy.stages=4",
    "+policy.algorithm.policy_kwargs.net_arch=[16]",
]
PPO = ["policy=sb3_ppo", "policy.steps=600", "policy.num_envs=2", "+policy.algorithm.n_steps=64"]
DQN = ["policy=sb3_dqn", "policy.steps=400", "+policy.algorithm.target_update_interval=70"]
TRAININGS = {
    "Q-learning": [*SMALL, "policy.stages=4"],
    "Q-learning, alongside": [*SMALL, "policy.stages=4", "training=alongside", "explainer=replayed"],
    "PPO": [*AGENT, *PPO],
    "PPO, alongside": [*(word for word in AGENT if "steps" not in word), *PPO, "training=alongside"],
    "DQN": [*AGENT, *DQN],
    "DQN, alongside": [*AGENT, *DQN, "training=alongside"],
}


FAST_TRAININGS = {"Q-learning, alongside", "PPO", "DQN, alongside"}
"""Every algorithm once, two of them with training alongside; the other cases are slow."""


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=() if name in FAST_TRAININGS else pytest.mark.slow, id=name)
        for name, words in TRAININGS.items()
    ],
)
def test_training_of_the_policy_goes_on_to_the_same_bits(
    compose_config: Compose, tmp_path: Path, words: list[str]
) -> None:
    config = compose_config(*words)
    due, _ = learned(config, tmp_path / "whole")
    interrupted(config, tmp_path, 2)
    again, _ = learned(config, tmp_path)
    assert arrays_of(again, tmp_path / "again") == arrays_of(due, tmp_path / "due")
    assert isinstance(again.trainer, Resumable)
    assert isinstance(due.trainer, Resumable)
    state, state_due = again.trainer.state(), due.trainer.state()
    assert list(state) == list(state_due)
    assert all(value.tobytes() == state_due[name].tobytes() for name, value in state.items())


# As a user sees it

NAMES = ("outcomes=fuel_taxi, seed 0", "outcomes=fragile, seed 0")
COMMAND = ROOT / "scripts" / "run.py"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "CI": "true", "PYTHONPATH": str(folder)}


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A command of its own, to be killed."""
    return subprocess.Popen(
        [sys.executable, str(COMMAND), *words],
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    )


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that is left alone."""
    return fork_server().run(COMMAND, list(words), folder, environment(folder), together=True, seconds=300)


def finish(folder: Path, *words: str) -> str:
    done = run(folder, *words)
    assert done.returncode == 0, done.stdout
    return done.stdout


def wait_for(folder: Path, pattern: str) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern}"
        time.sleep(0.01)


def found_by(run: Path) -> dict[str, str]:
    return {name: (run / name).read_text() for name in ("errors.json", "curve.json", "forecasts.json")}


def states_of(folder: Path) -> dict[str, str]:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("paper")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    return {str(run.info.run_name): str(run.info.status) for run in runs}


def metrics_of(folder: Path) -> dict[str, dict[str, list[tuple[int, float]]]]:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            assert run.info.run_name not in found
            assert run.info.status == "FINISHED"
            found[str(run.info.run_name)] = {
                name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
                if not name.startswith("seconds/")
            }
    return found


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        stores.copy(tmp_path / name / "mlflow.db")
    finish(tmp_path / "whole", *SMALL)
    process = start(tmp_path / "killed", *SMALL)
    wait_for(tmp_path / "killed", "outputs/runs/*/checkpoint.npz")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    told = finish(tmp_path / "killed", *SMALL)
    assert "resumed from the checkpoint after stage" in told
    (whole,), (killed,) = (tmp_path.glob(f"{name}/outputs/runs/*") for name in ("whole", "killed"))
    assert found_by(killed) == found_by(whole)
    assert metrics_of(tmp_path / "killed") == metrics_of(tmp_path / "whole")
    assert not (killed / CHECKPOINT).exists()


@pytest.mark.slow  # the test above is killed too, and tests/tracking/test_outbox.py has stores that are away
def test_what_is_killed_while_its_store_takes_nothing_has_lost_nothing(tmp_path: Path) -> None:
    """Not even the time to learn it all again."""
    server = Server(tmp_path)
    server.start()
    try:
        words = [*SMALL, f"tracking.uri={server.uri}"]
        process = start(tmp_path, *words)
        wait_for(tmp_path, "outputs/runs/*/checkpoint.npz")
        server.freeze()
        wait_for(tmp_path, "outputs/runs/*/errors.json")
        time.sleep(1)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        server.thaw()
        assert "resumed from the checkpoint after stage 5" in finish(tmp_path, *words)
    finally:
        server.stop()


@pytest.mark.slow
def test_a_sweep_whose_parent_alone_was_killed_goes_on_at_once(tmp_path: Path) -> None:
    words = ["-m", *SMALL, "seed=0,1", "training.steps=600000", "hydra.launcher.n_jobs=2", "tracking=none"]
    process = start(tmp_path, *words)
    wait_for(tmp_path, "outputs/sweeps/*/*/checkpoint.npz")
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    finish(tmp_path, *words)
    process.communicate()
    assert len(list(tmp_path.glob("outputs/sweeps/*/*/errors.json"))) == 2
    assert not [worker for worker in workers if worker.is_running() and worker.status() != "zombie"]


def test_a_sweep_repeats_only_what_failed(tmp_path: Path) -> None:
    (tmp_path / "fragile.py").write_text(
        "import numpy as np\nfrom pathlib import Path\n\ndef fails(t):\n"
        "    assert len(t) != 5000 or Path('mended').exists(), 'fails while learning'\n"
        "    return np.zeros(len(t))\n"
    )
    (tmp_path / "more" / "outcomes").mkdir(parents=True)
    (tmp_path / "more" / "outcomes" / "fragile.yaml").write_text(
        "_target_: tpd.core.outcomes.OutcomeSet\noutcomes:\n"
        "  - _target_: tpd.core.outcomes.event\n    name: never\n"
        "    function: {_target_: fragile.fails, _partial_: true}\n"
    )
    words = ["-m", *SMALL, "training.shards=1", "outcomes=fuel_taxi,fragile", IN_TURN]
    words += ["evaluation.forecast_episodes=0", "evaluation.curve_points=0", "--config-dir", "more"]
    stores.copy(tmp_path / "mlflow.db")
    failed = run(tmp_path, *words)
    told = failed.stdout
    assert failed.returncode != 0
    assert "seed 0 failed: " in told
    assert "the last lines of its log" in told
    assert "fails while learning" in told
    assert "1 of 2 jobs are missing" in told
    assert "Errors of paper, 1 seed, 1 of 2 jobs missing" in " ".join(told.split())
    statuses = states_of(tmp_path)
    assert statuses == {"paper sweep": "FAILED", NAMES[0]: "FINISHED", NAMES[1]: "FAILED"}
    (finished,) = tmp_path.glob("outputs/sweeps/*/0/errors.json")
    written = finished.stat().st_mtime_ns
    (tmp_path / "mended").touch()
    finish(tmp_path, *words)
    assert finished.stat().st_mtime_ns == written
    (sweep,) = tmp_path.glob("outputs/sweeps/*/sweep.json")
    assert json.loads(sweep.read_text())["status"] == "finished"
    assert len(metrics_of(tmp_path)) == 3  # the parent and its two jobs, all finished


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    words = ["-m", *SMALL, "seed=range(3)", "hydra.launcher.n_jobs=1"]
    process = start(tmp_path, *words)
    wait_for(tmp_path, "outputs/sweeps/*/1/checkpoint.npz")
    os.killpg(process.pid, signal.SIGINT)
    told = process.communicate(timeout=300)[0]
    assert process.returncode != 0
    assert "repeat the command to resume" in told
    statuses = states_of(tmp_path)
    assert statuses == {"paper sweep": "KILLED", "seed 0": "FINISHED", "seed 1": "KILLED"}
    finish(tmp_path, *words)
    assert sorted(metrics_of(tmp_path)) == ["paper sweep", "seed 0", "seed 1", "seed 2"]


def test_two_sweeps_do_not_share_a_folder(tmp_path: Path) -> None:
    with locked(tmp_path / "here"):
        refused = run(tmp_path, "-m", *SMALL, "seed=0", "hydra.sweep.dir=here")
    assert refused.returncode != 0
    assert "hydra.sweep.dir: another process is using here" in refused.stdout
    assert "Traceback" not in refused.stdout


# Disks


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk to fill")


@pytest.mark.slow
@needs_root
def test_a_full_disk_is_named_and_the_run_goes_on_when_it_has_room(tmp_path: Path) -> None:
    words = [*SMALL, "tracking=none"]
    with disk(tmp_path, "size=1m"):
        process = start(tmp_path, *words)
        told = process.communicate(timeout=120)[0]
        assert process.returncode != 0
        assert "No space left on device" in told.splitlines()[-1]
        assert "repeat the command to run them" in told.splitlines()[-1]
        enlarge(tmp_path)
        finish(tmp_path, *words)


@pytest.mark.slow
@needs_root
def test_a_read_only_folder_is_named_before_any_work(tmp_path: Path) -> None:
    with disk(tmp_path, "ro"):
        process = start(tmp_path, *SMALL)
        told = process.communicate(timeout=120)[0]
    assert process.returncode != 0
    assert "Read-only file system: 'outputs'" in told
