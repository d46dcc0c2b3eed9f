"""Checkpoints: whole and of the same settings, or not read."""

import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.predictors import test_mixture, test_model
from tests.sb3_ext import test_stages
from tests.support import datasets, small_mdp
from tests.support.networks import small_network, small_transitions
from tests.support.q_learning import q_learning
from tpd.core.outcomes import Observed
from tpd.core.types import Array, Resumable, Transitions
from tpd.evaluation.errors import Errors
from tpd.evaluation.learning_curve import LearningCurve
from tpd.predictors.network.replay_buffer import ReplayBuffer
from tpd.predictors.step_sizes import polynomial
from tpd.predictors.tabular import TabularFHTD
from tpd.run.parts import CHECKPOINT
from tpd.store.checkpoints import Checkpoint, run_stages


class Tally:
    """A part that counts, and refuses what it did not say itself."""

    def __init__(self) -> None:
        self.count = np.zeros(3, dtype=np.int64)

    def state(self) -> dict[str, Array]:
        return {"count": self.count}

    def restore(self, state: Mapping[str, Array]) -> None:
        self.count = state["count"].copy()

    def add(self) -> None:
        self.count += 1


def spoilt(path: Path, how: str) -> None:
    """Leave something else there."""
    with np.load(path) as stored:
        good = dict(stored)
    about = json.loads(str(good["about"]))
    if how == "an array alone":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
        return
    others = {
        "a pickle": {"about": np.array([about], dtype=object)},
        "nothing about it": {"about": np.array("{}")},
        "about a list": {"about": np.array("[]")},
        "a stage that there is not": {"about": np.array(json.dumps(about | {"stage": 999}))},
        "another stage": {"about": np.array(json.dumps(about | {"stage": 1}))},
        "a stage in words": {"about": np.array(json.dumps(about | {"stage": "two"}))},
        "a cut array": {"tally/count": good["tally/count"][:1]},
        "another array": {"tally/count": good["tally/count"] + 1},
    }
    arrays = good | others.get(how, {})
    if how == "an array less":
        del arrays["tally/count"]
    np.savez(path, **arrays)


SPOILT = (
    "an array alone",
    "a pickle",
    "nothing about it",
    "about a list",
    "a stage that there is not",
    "another stage",
    "a stage in words",
    "a cut array",
    "another array",
    "an array less",
)


@pytest.mark.parametrize("how", [*SPOILT, "cut", "empty", "other settings"])
def test_a_checkpoint_that_is_not_whole_or_not_ours_is_not_read(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, settings = tmp_path / CHECKPOINT, "other" if how == "other settings" else "ours"

    def counted(settings: str) -> list[int]:
        tally = Tally()
        run_stages([tally.add] * 2, {"tally": tally}, Checkpoint(path, settings, 0))
        return tally.count.tolist()

    assert counted("ours") == [2, 2, 2]
    if how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif how == "empty":
        path.write_bytes(b"")
    elif how in SPOILT:
        spoilt(path, how)
    assert counted(settings) == [2, 2, 2]
    assert f"the checkpoint cannot be used ({path}: " in caplog.text
    caplog.clear()
    assert counted(settings) == [2, 2, 2]
    assert "cannot be used" not in caplog.text


# What was forged: fingerprint and digest hold no secret


def tabular() -> TabularFHTD:
    settings: dict[str, Any] = {"horizon": 4, "form": "efo", "discount": 1.0, "dtype": "float64"}
    settings["step_size"] = polynomial(0.8)
    return TabularFHTD(small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), **settings)


def network() -> Any:
    return small_network(small_mdp.policy(), fit_updates=4, return_atoms=11, updates_per_step=0.001)


def curve() -> LearningCurve:
    each = np.zeros(2)
    return LearningCurve(lambda step: Errors(("a", "b"), each, each, each, each, 1.0, 1.0, np.nan), 9_000, 3)


def learned(learner: Any) -> Any:
    learner.update(small_transitions(small_mdp.policy(), 3_000))
    if hasattr(learner, "fit"):
        learner.fit()
    return learner


def trained(trainer: Any) -> Any:
    trainer.train(stage=0)
    return trainer


def mixed(learner: Any) -> Any:
    learner.update(test_model.transitions()[:2000])
    learner.fit()
    return learner


def filled(buffer: ReplayBuffer) -> ReplayBuffer:
    """Eight steps of one episode in the room of six: rows 2 to 5 are older than rows 0 and 1."""
    for numbers in (np.arange(5), np.arange(5, 8)):
        flags, each = np.zeros(len(numbers), np.bool_), np.zeros((len(numbers), 2), np.float32)
        stream = np.zeros(len(numbers), np.int64)
        steps = Transitions(numbers, numbers, numbers + 1, each[:, 0], flags, flags, stream=stream)
        buffer.add(steps, Observed(each, each), flags)
    return buffer


def watched(curve: Any) -> Any:
    curve(small_transitions(small_mdp.policy(), 3_000))
    return curve


Make = Callable[[Any], Any]
PARTS: dict[str, tuple[Callable[[], Any], Make]] = {
    "replayed": (datasets.learner, learned),
    "tabular": (tabular, learned),
    "network": (network, learned),
    "mixture": (lambda: test_mixture.mixture(fit_updates=4), mixed),
    "Q-learning": (lambda: q_learning(small_mdp.environment(), 500), trained),
    "curve": (curve, watched),
    "replay": (lambda: ReplayBuffer(6), filled),
    **{name: (partial(test_stages.agent, name), trained) for name in ("DQN", "SAC", "A2C")},
}


@cache
def taught(kind: str) -> Mapping[str, Array]:
    """What a part that has learned says of itself."""
    make, teach = PARTS[kind]
    return dict(teach(make()).state())


def refuses(part: Resumable, state: Mapping[str, Array]) -> bool:
    try:
        part.restore(state)
    except Exception:
        return True
    return False


def assert_as_new(part: Resumable, new: Mapping[str, Array], why: str) -> None:
    now = part.state()
    assert now.keys() == new.keys(), why
    for name, array in new.items():
        assert (array.dtype, array.tobytes()) == (now[name].dtype, now[name].tobytes()), (why, name)


@pytest.mark.parametrize(
    "kind",
    # a mixture consists of a network and a model, which are tried by themselves
    [pytest.param(kind, marks=pytest.mark.slow if kind == "mixture" else []) for kind in PARTS],
)
def test_an_array_of_another_kind_is_refused_and_a_new_part_stays_new(kind: str) -> None:
    good, part = taught(kind), PARTS[kind][0]()
    new = {name: array.copy() for name, array in part.state().items()}
    for name, array in good.items():
        less = {other: value for other, value in good.items() if other != name}
        others = {"words": np.array("words"), "an axis more": array[None]}
        ways = {"missing": less, **{way: {**good, name: other} for way, other in others.items()}}
        if array.ndim and len(array) > 1 and "ending" not in name:
            ways["short"] = {**good, name: array[:-1]}
        for way, forged in ways.items():
            if way == "short" and name.endswith(FREE):
                continue
            assert refuses(part, forged), f"{name} was taken: {way}"
        part.restore(new)
        assert_as_new(part, new, name)
    part.restore(good)
    assert_as_new(part, good, "good")


def weight(state: Mapping[str, Array], prefix: str) -> Array:
    """Some weights of a network."""
    return next(array for name, array in state.items() if name.startswith(prefix) and "weight" in name)


def statistic(state: Mapping[str, Array], kind: str) -> Array:
    """What a network keeps beside its weights."""
    return next(array for name, array in state.items() if name.endswith(f".{kind}"))


FREE = ("split.episodes", "latest", "due", "returns", "lengths", "successes")
"""Arrays whose length follows from nothing else."""

FORGED: dict[str, tuple[str, Callable[[dict[str, Array]], object]]] = {
    "arrays of unequal lengths": (
        "replayed",
        lambda z: z.update(
            pair=np.zeros(5_000_000, np.int64),
            count=np.ones(5_000_000, np.int64),
            **{name: z[name][:1] for name in ("next_state", "outcome", "continuation")},
        ),
    ),
    "counts below 0": ("replayed", lambda z: z["count"].fill(-5)),
    "events of 7": ("replayed", lambda z: z["outcome"].fill(7)),
    "pairs that there are not": ("replayed", lambda z: z["pair"].fill(10**9)),
    "next states that there are not": ("replayed", lambda z: z["next_state"].fill(10**12)),
    "a future that goes on after the end": ("replayed", lambda z: z["continuation"].fill(1)),
    "visits below 0": ("tabular", lambda z: z["visits"].fill(-1)),
    "a follower far away": ("network", lambda z: z["replay.column_7"].fill(10**12)),
    "a follower before the first": ("network", lambda z: z["replay.column_7"].fill(-2)),
    "a follower that is older": ("replay", lambda z: z["column_7"].put(5, 4)),
    "a follower of two": ("replay", lambda z: z["column_7"].put(3, 0)),
    "a follower elsewhere": ("replay", lambda z: z["column_0"].put(5, 99)),
    "a follower that is kept for selection": ("replay", lambda z: z["column_6"].put(5, True)),
    "weights that are no numbers": ("network", lambda z: weight(z, "network.").fill(np.nan)),
    "weights without end": ("network", lambda z: weight(z, "target_network.").fill(1e30)),
    "best weights without end": ("network", lambda z: weight(z, "selection.0.").fill(-1e30)),
    "moments that are no numbers": ("network", lambda z: z["optimizer.0.exp_avg"].fill(np.nan)),
    "squares below 0": ("network", lambda z: z["optimizer.0.exp_avg_sq"].fill(-1)),
    "a count of updates below 0": ("network", lambda z: z["optimizer.0.step"].fill(-3)),
    "returns by weights without end": ("network", lambda z: weight(z, "returns.network.").fill(1e30)),
    "a model of weights without end": ("mixture", lambda z: weight(z, "model.model.").fill(1e30)),
    "an agent of weights that are no numbers": ("DQN", lambda z: weight(z, "policy").fill(np.inf)),
    "steps below 0": ("DQN", lambda z: z["num_timesteps"].fill(-(10**9))),
    "an exploration rate of 5": ("DQN", lambda z: z["exploration_rate"].fill(5)),
    "a variance below 0": ("mixture", lambda z: statistic(z, "variance").fill(-1)),
    "a unit of 0": ("network", lambda z: statistic(z, "unit").fill(0)),
    "a deviation of 0": ("mixture", lambda z: statistic(z, "deviation").fill(0)),
    "a loss that is no number": ("network", lambda z: z["selection.losses"].fill(np.nan)),
    "a loss of the model that is no number": ("mixture", lambda z: z["model._best_loss"].fill(np.nan)),
    "more written than is there": ("network", lambda z: z["replay.written"].fill(10**9)),
    "a latest step far away": (
        "network",
        lambda z: z.update({"replay.latest": np.array([[0, 10**12]])}),
    ),
    "states that there are not": ("network", lambda z: z["replay.column_0"].fill(10**6)),
    "actions that there are not": ("network", lambda z: z["replay.column_1"].fill(10**6)),
    "outcomes that cannot be": ("network", lambda z: z["replay.column_3"].fill(7)),
    "updates without end": ("network", lambda z: z["_owed"].fill(1e12)),
    "a share of 5": ("mixture", lambda z: z["weights"].fill(5)),
    "a place beyond the buffer": ("DQN", lambda z: z["pos"].fill(10**9)),
    "actions of a buffer that there are not": ("DQN", lambda z: z["buffer.actions"].fill(99)),
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_checkpoint_is_one_warning_and_the_run_starts_anew(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind, forge = FORGED[how]
    arrays = {name: array.copy() for name, array in taught(kind).items()}
    forge(arrays)
    forged, tally, part = Tally(), Tally(), PARTS[kind][0]()
    forged.state = lambda: arrays  # type: ignore[method-assign]
    new = {name: array.copy() for name, array in part.state().items()}
    counted = Tally()
    counted.add()
    path = tmp_path / CHECKPOINT
    Checkpoint(path, "ours", 0).save(1, {"tally": counted, "part": forged})
    assert Checkpoint(path, "ours", 0).resume({"tally": tally, "part": part}, 2) == 0
    assert tally.count.tolist() == [0, 0, 0]
    assert_as_new(part, new, how)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"the checkpoint cannot be used ({path}: ")
    assert "\n" not in warnings[0]
