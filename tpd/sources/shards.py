"""Transitions in shards, which many processes can collect, or read, for one and the same learner."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tpd.core.types import Learner, Stage, Transitions, TransitionsHandler
from tpd.envs import Environment
from tpd.envs.dataset import DatasetDescription
from tpd.sources.parquet import read_shard, shard_path, write_shard
from tpd.sources.workers import in_processes

Shard = Callable[[], Iterator[Transitions]]
"""Begins to collect or read transitions, in whichever process it is called."""
Work = Callable[[Sequence[Shard]], Iterator[None]]
"""Goes through shards and stops after each."""
AHEAD = 4
"""So many files for each process lie on the disk at most, when collecting is faster than learning."""


@runtime_checkable
class MergingLearner(Learner, Protocol):
    """A learner that learns the same from shards in turn as from what others learned of each."""

    def empty(self) -> "MergingLearner":
        """Another one that has seen nothing."""

    def merge(self, other: Any) -> None:
        """Learn all that the other one has learned."""


@dataclass(frozen=True)
class LearnedElsewhere(Transitions):
    """Transitions that another process has learned from: here there is nothing of them but their number."""

    number: int = 0

    @classmethod
    def of(cls, number: int) -> "LearnedElsewhere":
        """So many of them."""
        nothing, no = np.empty(0), np.empty(0, dtype=np.bool_)
        return cls(nothing, nothing, nothing, nothing, no, no, number=number)

    def __len__(self) -> int:
        return self.number


def in_stages(work: Work, shards: Sequence[Shard]) -> list[Stage]:
    """One stage for each shard; the work begins with the shard whose stage comes first, whichever it is."""
    going: list[Iterator[None]] = []

    def advance(number: int) -> None:
        if not going:
            going.append(work(shards[number:]))
        next(going[0])
        if number == len(shards) - 1:
            deque(going.pop(), maxlen=0)  # lets it put away what it has used

    return [partial(advance, number) for number in range(len(shards))]


def learn_in_turn(learning: Sequence[TransitionsHandler], shards: Sequence[Shard]) -> Iterator[None]:
    """Show all transitions to whoever learns, a shard after the other."""
    for shard in shards:
        for batch in shard():
            for learn in learning:
                learn(batch)
        yield


def can_merge(learning: Sequence[TransitionsHandler]) -> bool:
    """Whether all who learn can be merged; whoever only counts along does not matter."""
    learners = [owner for owner in map(_owner, learning) if isinstance(owner, Learner)]
    return bool(learners) and all(isinstance(learner, MergingLearner) for learner in learners)


def learn_in_processes(
    learning: Sequence[TransitionsHandler], processes: int, env: Environment, shards: Sequence[Shard]
) -> Iterator[None]:
    """As `learn_in_turn`, with others who learn from each shard in its own process and are then merged."""
    learners = [owner for owner in map(_owner, learning) if isinstance(owner, MergingLearner)]
    counting = [learn for learn in learning if not isinstance(_owner(learn), MergingLearner)]
    tasks = [partial(_teach, shard, [learner.empty() for learner in learners]) for shard in shards]
    for others, number in in_processes(tasks, processes, env):
        for learner, other in zip(learners, others, strict=True):
            learner.merge(other)
        for count in counting:
            count(LearnedElsewhere.of(number))
        yield


def learn_from_files(
    learning: Sequence[TransitionsHandler],
    processes: int,
    env: Environment,
    description: DatasetDescription,
    shards: Sequence[Shard],
) -> Iterator[None]:
    """As `learn_in_turn`, with shards that are collected in processes of their own and read from disk."""
    for begin in range(0, len(shards), AHEAD * processes):
        some = shards[begin : begin + AHEAD * processes]
        with TemporaryDirectory(prefix="tpd-") as folder:
            paths = [shard_path(Path(folder), number) for number in range(len(some))]
            tasks = [
                partial(_exhaust, also_written(path, shard)) for path, shard in zip(paths, some, strict=True)
            ]
            for path, _ in zip(paths, in_processes(tasks, processes, env), strict=True):
                yield from learn_in_turn(learning, [partial(read_shard, path, description)])
                path.unlink()


def also_written(path: Path, shard: Shard) -> Shard:
    """The shard, which is also written to a file."""
    return partial(_written, path, shard)


def _written(path: Path, shard: Shard) -> Iterator[Transitions]:
    return write_shard(path, shard())


def _owner(learn: TransitionsHandler) -> object:
    """Whose method this is, if it is one."""
    return getattr(learn, "__self__", None)


def _teach(shard: Shard, learners: Sequence[MergingLearner]) -> tuple[Sequence[MergingLearner], int]:
    number = 0
    for batch in shard():
        number += len(batch)
        for learner in learners:
            learner.update(batch)
    return learners, number


def _exhaust(shard: Shard) -> None:
    deque(shard(), maxlen=0)
