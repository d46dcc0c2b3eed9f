"""Things to break: a real MLflow server that goes and comes back, a disk that is small or read-only."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import stores

SECONDS_TO_START = 120


class Server:
    """A real MLflow server; what it had, it has again when it comes back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self._port}"
        stores.copy(folder / "server.db")
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: sqlite3.Connection | None = None

    def start(self) -> None:
        """Come (back), and wait until it answers."""
        options = ["--workers", "1", "--host", "127.0.0.1", "--port", str(self._port)]
        store = ["--backend-store-uri", f"sqlite:///{self._folder}/server.db"]
        artifacts = ["--artifacts-destination", str(self._folder / "artifacts")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", *options, *store, *artifacts],
            cwd=self._folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + SECONDS_TO_START
        while not self._answers():
            if time.monotonic() > deadline:
                raise TimeoutError("the server does not start")
            time.sleep(0.3)

    def _answers(self) -> bool:
        with socket.socket() as knocking:
            return knocking.connect_ex(("127.0.0.1", self._port)) == 0

    def stop(self) -> None:
        """Go away, without a word."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def lock(self) -> None:
        """Answer what is asked, but take nothing: somebody else writes to its database."""
        self._lock = sqlite3.connect(
            self._folder / "server.db", isolation_level=None, check_same_thread=False
        )
        self._lock.execute("PRAGMA journal_mode=WAL")
        self._lock.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        """Take things again."""
        assert self._lock is not None
        self._lock.close()

    def freeze(self) -> None:
        """Answer nobody any more, without going away."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Answer again."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)


@contextmanager
def disk(folder: Path, options: str) -> Iterator[None]:
    """Make a folder a file system of its own, which only root can do: "size=1m", "ro"."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    """Give such a disk room."""
    subprocess.run(["mount", "-o", "remount,size=200m", str(folder)], check=True)
