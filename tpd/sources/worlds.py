"""Environments at moments of episodes, stepped together: in this process, or in forks of it.

A forked process only steps its environments. The policy stays in the parent, which calls it once for all
environments; so the forks need no threads of torch or OpenMP, which do not survive a fork.
"""

import contextlib
import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

import gymnasium as gym
import numpy as np

from tpd.core.types import Array, BoolArray, IntArray
from tpd.sources.random_sources import random_state

Env = gym.Env[Any, Any]
StepResult = tuple[Any, float, bool, bool, dict[str, Any]]

PATIENCE = 120.0
"""Seconds that the forks may take for one step."""
DIED = "a forked process died while it stepped its environments, possibly out of memory"


class WorldError(RuntimeError):
    """An environment that failed in a fork of the process."""


class LocalWorlds:
    """Environments in this process."""

    def __init__(self, envs: Sequence[Env], watched: bool = False) -> None:
        self._envs = envs
        self._undrawn = [random_state(env) for env in envs] if watched else []

    def step(self, rows: Sequence[int] | IntArray, actions: Array) -> list[StepResult]:
        """[row]: take one step in each of these rows."""
        return [self._envs[row].step(action) for row, action in zip(rows, actions, strict=True)]

    def drew(self) -> BoolArray:
        """[row]: whether a random number was drawn since the environments were made."""
        pairs = zip(self._envs, self._undrawn, strict=True)
        return np.array([random_state(env) != before for env, before in pairs], dtype=np.bool_)

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()


class ForkedWorlds:
    """Environments in forks of this process, each of which makes its own share.

    The forks exit when they are closed, or when this process dies.
    """

    def __init__(
        self,
        makers: Sequence[Callable[[], Sequence[Env]]],
        sizes: Sequence[int],
        watched: bool = False,
        patience: float = PATIENCE,
    ) -> None:
        self._ends = np.cumsum(sizes)
        self._patience = patience
        self._children: list[tuple[int, Connection]] = []
        try:
            with _frozen():
                for make in makers:
                    self._fork(make, watched)
        except BaseException:
            self.close()
            raise

    def step(self, rows: Sequence[int] | IntArray, actions: Array) -> list[StepResult]:
        """[row]: take one step in each of these rows, which must be sorted."""
        rows = np.asarray(rows)
        bounds = np.searchsorted(rows, self._ends)
        shares = list(zip([0, *bounds[:-1]], bounds, [0, *self._ends[:-1]], strict=True))
        asked = [child for child, (first, end, _) in enumerate(shares) if first < end]
        for child in asked:
            first, end, origin = shares[child]
            self._send(child, ("step", rows[first:end] - origin, actions[first:end]))
        return [result for child in asked for result in self._receive(child)]

    def drew(self) -> BoolArray:
        """[row]: whether a random number was drawn since the environments were made."""
        for child in range(len(self._children)):
            self._send(child, ("drew",))
        return np.concatenate([self._receive(child) for child in range(len(self._children))])

    def close(self) -> None:
        """Kill the forks; they need no cleanup."""
        children, self._children = self._children, []
        for child, connection in children:
            connection.close()
            os.kill(child, signal.SIGKILL)
        for child, _ in children:
            os.waitpid(child, 0)

    def _fork(self, make: Callable[[], Sequence[Env]], watched: bool) -> None:
        ours, theirs = Pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the fork keeps it blocked
        try:
            child = os.fork()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        if child == 0:
            try:
                for connection in (ours, *(connection for _, connection in self._children)):
                    connection.close()  # otherwise the death of the parent goes unnoticed
                _serve(theirs, make, watched)
            finally:
                os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._children.append((child, ours))

    def _send(self, child: int, message: tuple[Any, ...]) -> None:
        try:
            self._children[child][1].send(message)
        except OSError as error:
            raise WorldError(DIED) from error

    def _receive(self, child: int) -> Any:
        connection = self._children[child][1]
        if not connection.poll(self._patience):
            raise WorldError(f"one step in a forked process took more than {self._patience:g} s")
        try:
            answer, failed = connection.recv()
        except (EOFError, OSError) as error:
            raise WorldError(DIED) from error
        if failed:
            raise WorldError(f"an environment failed in a forked process: {answer}")
        return answer


Worlds = LocalWorlds | ForkedWorlds


def _serve(parent: Connection, make: Callable[[], Sequence[Env]], watched: bool) -> None:
    """Serve the parent's requests in a fork until the parent exits."""
    try:
        worlds = LocalWorlds(make(), watched)
        while True:
            method, *arguments = parent.recv()
            parent.send((getattr(worlds, method)(*arguments), False))
    except (EOFError, ConnectionError):
        return
    except BaseException as error:
        parent.send((f"{type(error).__name__}: {error}", True))


@contextlib.contextmanager
def _frozen() -> Iterator[None]:
    """Stop the garbage collector from touching memory shared with the forks, which would copy it."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
