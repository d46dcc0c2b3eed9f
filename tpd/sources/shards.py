"""Shards of transitions: collected or read by several processes, for one learner."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tpd.core.types import Handlers, Learner, Stage, Transitions, TransitionsHandler
from tpd.envs import Environment
from tpd.envs.dataset import DatasetDescription
from tpd.sources.parquet import read_shard, shard_path, write_shard
from tpd.sources.workers import in_processes

Shard = Callable[[], Iterator[Transitions]]
"""Starts to collect or read transitions, in the process that calls it."""
Work = Callable[[Sequence[Shard]], Iterator[None]]
"""Learns from shards and yields after each."""
AHEAD = 4
"""Upper bound on shard files per process waiting on disk, if collecting is faster than learning."""


@runtime_checkable
class MergingLearner(Learner, Protocol):
    """A learner whose copies can learn from different shards and then be merged, with the same result."""

    def empty(self) -> "MergingLearner":
        """A new learner with the same settings that has seen nothing."""

    def merge(self, other: Any) -> None:
        """Add everything that the other one has learned."""


@dataclass(frozen=True)
class LearnedElsewhere(Transitions):
    """Transitions that another process has learned from; only their number is known here."""

    number: int = 0

    @classmethod
    def of(cls, number: int) -> "LearnedElsewhere":
        """A placeholder for this many transitions."""
        nothing, no = np.empty(0), np.empty(0, dtype=np.bool_)
        return cls(nothing, nothing, nothing, nothing, no, no, number=number)

    def __len__(self) -> int:
        return self.number


def in_stages(work: Work, shards: Sequence[Shard]) -> list[Stage]:
    """One stage per shard; a resumed run starts at the stage that is called first."""
    going: list[Iterator[None]] = []

    def advance(number: int) -> None:
        if not going:
            going.append(work(shards[number:]))
        next(going[0])
        if number == len(shards) - 1:
            deque(going.pop(), maxlen=0)  # runs its cleanup

    return [partial(advance, number) for number in range(len(shards))]


def learn_in_turn(learning: Handlers, shards: Sequence[Shard]) -> Iterator[None]:
    """Pass all transitions to the `learning` handlers, shard by shard."""
    for shard in shards:
        for batch in shard():
            for learn in learning:
                learn(batch)
        yield


def can_merge(learning: Handlers) -> bool:
    """Whether all learners can be merged; handlers that are no learners do not matter."""
    learners = [owner for owner in map(_owner, learning) if isinstance(owner, Learner)]
    return bool(learners) and all(isinstance(learner, MergingLearner) for learner in learners)


def learn_in_processes(
    learning: Handlers, processes: int, env: Environment, shards: Sequence[Shard]
) -> Iterator[None]:
    """Like `learn_in_turn`, but worker processes learn from the shards and the results are merged."""
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
    learning: Handlers,
    processes: int,
    env: Environment,
    description: DatasetDescription,
    shards: Sequence[Shard],
) -> Iterator[None]:
    """Like `learn_in_turn`, but worker processes collect the shards to files, which are read here."""
    for begin in range(0, len(shards), AHEAD * processes):
        some = shards[begin : begin + AHEAD * processes]
        with TemporaryDirectory(prefix="tpd-") as folder:
            paths = [shard_path(Path(folder), number) for number in range(len(some))]
            tasks = [
                partial(_exhaust, partial(also_written, path, shard))
                for path, shard in zip(paths, some, strict=True)
            ]
            for path, _ in zip(paths, in_processes(tasks, processes, env), strict=True):
                yield from learn_in_turn(learning, [partial(read_shard, path, description)])
                path.unlink()


def also_written(path: Path, shard: Shard) -> Iterator[Transitions]:
    """The transitions of a shard, written to a file while they are read."""
    return write_shard(path, shard())


def _owner(learn: TransitionsHandler) -> object:
    """The object whose method this is; None for a function."""
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
