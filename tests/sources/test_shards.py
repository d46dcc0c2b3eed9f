"""Shards of transitions, collected by many processes for one explainer: the same whoever collects them."""

import os
import tempfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.datasets import Given, assert_same, learner, training
from tests.support.learning import train
from tpd.core.outcomes import OutcomeError, OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import Learner, Transitions, concatenate
from tpd.envs import Environment
from tpd.predictors.replayed.counts import Counts
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.step_sizes import constant
from tpd.predictors.tabular import TabularFHTD
from tpd.run.training import DatasetTraining
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.sources.shards import LearnedElsewhere, MergingLearner, can_merge

STEPS = 20_001


def run(learner: Learner | None = None, env: Environment | None = None, **settings: Any) -> list[Transitions]:
    """Collect and learn; what a follower sees of it."""
    seen: list[Transitions] = []
    updates = [] if learner is None else [learner.update]
    source = training(**{"steps": STEPS, **settings})
    env = env or small_mdp.environment()
    source.check(env, ())
    train(source, env, Given(), generator(0, "collection"), learning=[*updates, seen.append])
    return seen


def stepwise() -> TabularFHTD:
    """Learns in the order of what it sees, so that nothing can be merged."""
    return TabularFHTD(
        small_mdp.environment(),
        Given().policy,
        small_mdp.outcomes(),
        horizon=8,
        form="efo",
        discount=1.0,
        step_size=constant(0.1),
        dtype="float32",
    )


def assert_same_table(first: Any, second: Any) -> None:
    for name in ("pairs", "expected", "visits"):
        assert_same(getattr(first.table(), name), getattr(second.table(), name))


def test_counts_merge_exactly_whatever_room_they_have() -> None:
    rng = np.random.default_rng(0)
    pair, state = rng.zipf(4.0, size=20_000) % 50, rng.integers(2, size=20_000)
    outcome = rng.integers(3, size=(20_000, 2)).astype(np.float32)
    together, merged = Counts(width=2, room=4), Counts(width=2, room=4)
    for part in np.array_split(np.arange(20_000), [5, 5, 11_000]):
        apart = Counts(width=2, room=4)
        for counts in (together, apart):
            counts.add(pair[part], state[part], outcome[part], outcome[part])
        merged.merge(apart.edges)
    assert merged.edges.count.max() > 1000
    for name, expected in vars(together.edges).items():
        assert_same(getattr(merged.edges, name), expected)
    merged.add(pair, state, outcome, outcome)  # and go on counting
    assert merged.edges.count.sum() == 40_000


def test_one_shard_is_collected_as_ever() -> None:
    batches = collect(
        small_mdp.environment(),
        Given().policy,
        generator(0, "collection"),
        steps=STEPS,
        exploration=Exploration(0.2),
        num_envs=10,
    )
    expected, seen = list(batches), run(shards=1)
    assert [len(batch) for batch in seen] == [len(batch) for batch in expected]
    for name in ("observation", "action", "next_observation", "reward"):
        assert_same(getattr(concatenate(seen), name), getattr(concatenate(expected), name))


def test_shards_differ_from_each_other_and_add_up() -> None:
    seen = concatenate(run(shards=3, processes=1))
    assert len(seen) == STEPS
    first, second = seen[:6667].next_observation, seen[6667:13334].next_observation
    assert (first != second).mean() > 0.5


@pytest.mark.parametrize("make", [learner, stepwise], ids=["merged", "read from files"])
def test_what_is_learned_does_not_depend_on_the_number_of_processes(make: Any) -> None:
    alone, many, other = make(), make(), make()
    run(alone, shards=3, processes=1)
    seen = run(many, shards=3, processes=2)
    run(other, shards=2, processes=1)
    assert sum(map(len, seen)) == STEPS
    assert_same_table(many, alone)
    assert other.table().expected.tobytes() != alone.table().expected.tobytes()


def test_only_so_many_files_wait_to_be_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpd.sources.shards.AHEAD", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    alone, many, waiting = stepwise(), stepwise(), list[int]()
    run(alone, shards=5, processes=1)
    source = training(steps=STEPS, shards=5, processes=2)

    def look(transitions: Transitions) -> None:
        waiting.append(len(list(tmp_path.glob("tpd-*/shard-*"))))

    learning = [many.update, look]
    train(source, small_mdp.environment(), Given(), generator(0, "collection"), learning=learning)
    assert set(waiting) <= {1, 2}
    assert not list(tmp_path.iterdir())
    assert_same_table(many, alone)


def test_a_dataset_of_many_shards_is_learned_from_by_many_processes(tmp_path: Path) -> None:
    live, here, apart = learner(), learner(), learner()
    run(live, shards=3, processes=2, save_dataset=str(tmp_path / "r"))
    assert len(list((tmp_path / "r").glob("shard-*.parquet"))) == 3
    for again, processes in ((here, 1), (apart, 2)):
        source = DatasetTraining(path=str(tmp_path / "r"), processes=processes)
        train(source, small_mdp.environment(), Given(), generator(0, "other"), learning=[again.update])
        assert_same_table(again, live)


def test_an_env_that_only_this_process_registered_is_known_to_the_others() -> None:
    gym.register("HomeMade-v0", lambda **settings: small_mdp.SmallMDP(**settings), max_episode_steps=50)
    try:
        assert sum(map(len, run(learner(), Environment("HomeMade-v0"), shards=2, processes=2))) == STEPS
    finally:
        del gym.registry["HomeMade-v0"]


def test_only_learners_that_can_be_are_merged() -> None:
    assert isinstance(learner(), MergingLearner)
    assert not isinstance(stepwise(), MergingLearner)
    assert can_merge([learner().update, print])
    assert not can_merge([learner().update, stepwise().update])
    assert not can_merge([print])
    assert len(LearnedElsewhere.of(7)) == 7


def test_an_empty_copy_shares_nothing_that_is_learned() -> None:
    full = learner()
    run(full, shards=1)
    before, other = full.table().expected.copy(), full.empty()
    assert len(other.table().pairs) == 0
    run(other, shards=1, epsilon=0.9)
    assert_same(full.table().expected, before)


def test_a_wrong_outcome_in_another_process_is_told_as_here() -> None:
    wrong = OutcomeSet([event("never", lambda t: np.full(len(t), 2.0))])
    bad = ReplayedFHTD(small_mdp.environment(), Given().policy, wrong, horizon=2)
    with pytest.raises(OutcomeError, match="outcome 'never' is 2"):
        run(bad, shards=2, processes=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shards": 0}, "shards must be 1 or more, got 0"),
        ({"shards": 3, "processes": 0}, "processes must be 1 or more, got 0"),
        ({"shards": 3, "steps": 2}, "got steps=2 and shards=3"),
        ({"save_dataset": "somewhere", "steps": 0}, "got steps=0 and shards=1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training(**settings)


def test_a_process_that_dies_is_told_in_one_line(tmp_path: Path) -> None:
    deadly = OutcomeSet([event("end", lambda t: os._exit(1))])
    bad = ReplayedFHTD(small_mdp.environment(), Given().policy, deadly, horizon=2)
    with pytest.raises(RuntimeError, match=r"one of 2 processes died.* 0 of 2 tasks") as caught:
        run(bad, shards=2, processes=2, save_dataset=str(tmp_path / "r"))
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "r").glob("shard-*"))
