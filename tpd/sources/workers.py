"""Worker processes: run tasks in parallel, return results in order, and exit with their parent."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from typing import TypeVar

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from joblib import Parallel, delayed

from tpd.envs import Environment

SECONDS_BETWEEN_CHECKS = 0.5


@cache
def exit_with_parent(parent: int) -> None:
    """Exit when the parent process dies; does nothing if this process is not a child of it."""
    if os.getppid() == parent:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_CHECKS)
    os._exit(1)  # at once: nobody waits for this process, and another may resume its work


T = TypeVar("T")


def in_processes(tasks: Sequence[Callable[[], T]], processes: int, env: Environment) -> Iterator[T]:
    """Run tasks in worker processes and yield their results in order; tasks may make the environment."""
    pool = Parallel(n_jobs=processes, backend="loky", return_as="generator", batch_size=1, max_nbytes=None)
    spec, done = gym.spec(env.id), 0
    try:
        for result in pool(delayed(_call)(task, spec, os.getpid()) for task in tasks):
            yield result
            done += 1
    except BrokenProcessPool as error:
        raise RuntimeError(
            f"one of {processes} processes died, possibly out of memory, after {done} of {len(tasks)} tasks"
            ": use fewer processes (training.processes)"
        ) from error


def _call(task: Callable[[], T], spec: EnvSpec, parent: int) -> T:
    exit_with_parent(parent)
    gym.registry.setdefault(spec.id, spec)  # the script that registered it does not run here
    return task()
