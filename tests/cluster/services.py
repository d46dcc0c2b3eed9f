"""A cluster of one machine: munge, Slurm with its accounting, PostgreSQL and an MLflow server.

Everything lives in one folder and on ports of its own, and ends with whoever started it.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

SECONDS_TO_START = 900  # a limit for what hangs, not for a machine that is slow
SECONDS_TO_END = 120
HOST = "127.0.0.1"
NODE = socket.gethostname().split(".")[0]
PARTITION = "debug"
CLUSTER = "slurm.conf"
MEGABYTES = 2000
POSTGRES = Path("/usr/lib/postgresql")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as knocking:
        return knocking.connect_ex((HOST, port)) == 0


class Service:
    """A process in a session of its own, which can be ended and started again."""

    def __init__(
        self,
        command: list[str],
        folder: Path,
        ready: Callable[[], bool],
        *,
        user: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._command, self._folder, self._ready = command, folder, ready
        self._user, self._env = user, {**os.environ, **(env or {})}
        self._log = folder / f"{Path(command[0]).name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._env,
                user=self._user,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + SECONDS_TO_START
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._command[0]} does not start: {self._log.read_text()[-2000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        """End it as is usual, and what it started if it does not."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """End it and what it started at once, as a crash would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def munge(folder: Path) -> Service:
    """Says who is who, by a socket in the folder."""
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    paths = [f"--{name}-file={folder / name}" for name in ("key", "pid", "log", "seed")]
    socket_path = folder / "socket"
    command = ["munged", "--force", "--foreground", *paths, f"--socket={socket_path}"]
    return Service(command, folder, socket_path.exists)


def mariadb(folder: Path, password: str) -> tuple[Service, int]:
    """The database of Slurm's accounting, and its port."""
    me, port = pwd.getpwuid(os.getuid()).pw_name, free_port()
    data, first = f"--datadir={folder / 'data'}", folder / "first.sql"
    who = f"slurm@'{HOST}'"
    first.write_text(f"CREATE USER {who} IDENTIFIED BY '{password}';\nGRANT ALL ON *.* TO {who};\n")
    install = ["mariadb-install-db", "--no-defaults", f"--user={me}", data, "--skip-test-db"]
    subprocess.run(install, check=True, capture_output=True)
    where = [
        f"--bind-address={HOST}",
        "--skip-name-resolve",
        f"--port={port}",
        f"--socket={folder / 'socket'}",
    ]
    command = ["mariadbd", "--no-defaults", f"--user={me}", data, *where, f"--pid-file={folder / 'pid'}"]
    return Service([*command, f"--init-file={first}"], folder, lambda: answers(port)), port


def postgres(folder: Path) -> tuple[Service, str]:
    """The database of the MLflow server, and its address; it refuses to be root's."""
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    binaries = max(POSTGRES.glob("*/bin"))
    data, port = str(folder / "data"), free_port()
    init = [str(binaries / "initdb"), "--pgdata", data, "--username", "mlflow", "--auth", "trust"]
    subprocess.run(init, check=True, capture_output=True, user=user, cwd=folder)
    command = [str(binaries / "postgres"), "-D", data, "-p", str(port), "-h", HOST, "-k", str(folder)]
    address = f"postgresql+psycopg2://mlflow@{HOST}:{port}/postgres"
    return Service(command, folder, lambda: answers(port), user=user), address


def mlflow_server(folder: Path, database: str) -> tuple[Service, str]:
    """An MLflow server on a database, and its address."""
    port = free_port()
    store = ["--backend-store-uri", database, "--artifacts-destination", str(folder / "artifacts")]
    where = ["--host", HOST, "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *store, *where]
    quick = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return Service(command, folder, lambda: answers(port), env=quick), f"http://{HOST}:{port}"


def slurm(folder: Path, munge_socket: Path, database_port: int, password: str) -> list[Service]:
    """The accountant, the controller and the node of a cluster of this machine, in the order to start."""
    me = pwd.getpwuid(os.getuid()).pw_name
    accounting, control, node = free_port(), free_port(), free_port()
    shared = f"AuthType=auth/munge\nAuthInfo=socket={munge_socket}\nSlurmUser={me}\n"
    accountant = folder / "slurmdbd.conf"
    accountant.write_text(
        f"{shared}DbdHost=localhost\nDbdAddr={HOST}\nDbdPort={accounting}\nPidFile={folder}/slurmdbd.pid\n"
        f"StorageType=accounting_storage/mysql\nStorageHost={HOST}\nStoragePort={database_port}\n"
        f"StorageUser=slurm\nStoragePass={password}\nStorageLoc=accounting\n"
    )
    accountant.chmod(0o600)
    (folder / CLUSTER).write_text(
        f"{shared}ClusterName=tpd\nSlurmctldHost={NODE}({HOST})\nSlurmdUser={me}\n"
        f"SlurmctldPort={control}\nSlurmdPort={node}\n"
        f"SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.pid\n"
        f"StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool\n"
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n"
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nMpiDefault=none\n"
        "AccountingStorageType=accounting_storage/slurmdbd\n"
        f"AccountingStorageHost={HOST}\nAccountingStoragePort={accounting}\n"
        f"AccountingStoragePass={munge_socket}\n"
        f"NodeName={NODE} NodeAddr={HOST} CPUs=2 RealMemory={MEGABYTES} State=UNKNOWN\n"
        f"PartitionName={PARTITION} Nodes={NODE} Default=YES MaxTime=INFINITE State=UP\n"
    )
    env = {"SLURM_CONF": str(folder / CLUSTER)}
    ports = {"slurmdbd": accounting, "slurmctld": control, "slurmd": node}
    return [Service([name, "-D"], folder, partial(answers, port), env=env) for name, port in ports.items()]


@contextmanager
def running(*services: Service) -> Iterator[None]:
    """Start them in this order, and end them in the other."""
    with ExitStack() as started:
        for service in services:
            started.callback(service.stop)
            service.start()
        yield


@dataclass(frozen=True)
class Cluster:
    """Slurm, and the MLflow server that its jobs report to."""

    environment: dict[str, str]
    """In which Slurm's commands find it."""
    server: Service
    uri: str
