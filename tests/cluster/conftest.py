"""A cluster of this machine, from Debian's packages, for as long as the tests run."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.services import (
    CLUSTER,
    POSTGRES,
    Cluster,
    mariadb,
    mlflow_server,
    munge,
    postgres,
    running,
    slurm,
)

PROGRAMS = ("munged", "mariadbd", "slurmctld", "slurmd", "slurmdbd")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if not any(POSTGRES.glob("*/bin/postgres")):
        missing.append("postgres")
    if missing:
        raise FileNotFoundError(
            f"there is no {missing[0]}: `make test-cluster` installs it, or do so by hand"
        )
    with tempfile.TemporaryDirectory(prefix="tpd-cluster-") as name:  # short: sockets are in it
        root = Path(name)
        root.chmod(0o755)  # PostgreSQL is another user
        folders = {part: root / part for part in ("munge", "mariadb", "slurm", "postgres", "mlflow")}
        for folder in folders.values():
            folder.mkdir()
        password = secrets.token_hex(8)
        accounts, port = mariadb(folders["mariadb"], password)
        database, address = postgres(folders["postgres"])
        server, uri = mlflow_server(folders["mlflow"], address)
        keys = munge(folders["munge"])
        daemons = slurm(folders["slurm"], folders["munge"] / "socket", port, password)
        environment = {**os.environ, "CI": "true", "SLURM_CONF": str(folders["slurm"] / CLUSTER)}
        with running(keys, accounts, *daemons, database, server):
            yield Cluster(environment, server, uri)
