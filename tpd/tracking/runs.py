"""Runs in MLflow: what a job or a sweep leaves behind."""

import importlib.metadata
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import mlflow
import pandas as pd
from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.models import Model
from mlflow.models.signature import ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import Array

import tpd
from tpd import storage
from tpd.tracking.store import prepare

VERSIONED = ("gymnasium", "hydra-core", "mlflow", "numba", "numpy", "stable-baselines3", "torch")
LONGEST_PARAM = 6000
PARAMS_PER_CALL = 100
METRICS_PER_CALL = 500


class Tracking(Protocol):
    """Where runs are kept."""

    def open(
        self, name: str, config: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None
    ) -> "Run":
        """Start a run."""

    def ui_command(self) -> str | None:
        """What to type to look at the runs."""


class Run(Protocol):
    """One run being kept; leaving its context ends it."""

    @property
    def id(self) -> str | None: ...

    def __enter__(self) -> "Run": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def end(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED."""

    def abandon(self) -> None:
        """End the run and those under it that still run, as KILLED."""

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Keep numbers; those that are not finite are left out."""

    def table(self, frame: pd.DataFrame, name: str) -> None:
        """Keep a table."""

    def files(self, path: Path, folder: str | None = None) -> None:
        """Keep a file, or all files of a folder."""

    def model(self, folder: Path, name: str) -> None:
        """Keep a saved explainer as a model."""


class MlflowTracking:
    """Keeps runs in an MLflow store: an SQLite file, a server, or whatever the URI names."""

    def __init__(self, *, uri: str, experiment: str) -> None:
        self.uri = uri
        self.experiment = experiment

    def open(
        self, name: str, config: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None
    ) -> "MlflowRun":
        """Start a run, with its settings, its origin and the versions it ran on."""
        experiment_id = prepare(self.uri, self.experiment)
        client = MlflowClient(tracking_uri=self.uri)
        every = {**_origin(), **tags}
        if parent is not None:
            every["mlflow.parentRunId"] = parent
        run = client.create_run(experiment_id, tags=every, run_name=name)
        params = [Param(key, str(value)[:LONGEST_PARAM]) for key, value in _flat(config).items()]
        for i in range(0, len(params), PARAMS_PER_CALL):
            client.log_batch(run.info.run_id, params=params[i : i + PARAMS_PER_CALL])
        return MlflowRun(client, self.uri, experiment_id, run.info.run_id)

    def ui_command(self) -> str:
        """What to type to look at the runs."""
        if self.uri.startswith("http"):
            return f"open {self.uri} in a browser"
        python = os.path.relpath(sys.executable)  # its mlflow, whether or not it is on the PATH
        return f"{python} -m mlflow ui --backend-store-uri {self.uri}"


class MlflowRun:
    """A run of an MLflow store; metrics go there in batches."""

    def __init__(self, client: MlflowClient, uri: str, experiment_id: str, run_id: str) -> None:
        self.id: str | None = run_id
        self._run_id = run_id
        self._client = client
        self._uri = uri
        self._experiment_id = experiment_id
        self._pending: list[Metric] = []

    def __enter__(self) -> "MlflowRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("FINISHED" if kind is None else "FAILED" if issubclass(kind, Exception) else "KILLED")

    def end(self, status: str) -> None:
        self._flush()
        self._client.set_terminated(self._run_id, status)

    def abandon(self) -> None:
        children = f"tags.mlflow.parentRunId = '{self._run_id}' and attributes.status = 'RUNNING'"
        for child in self._client.search_runs([self._experiment_id], children):
            self._client.set_terminated(child.info.run_id, "KILLED")
        self.end("KILLED")

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        now = time.time_ns() // 1_000_000
        self._pending += [
            Metric(re.sub(r"[^\w\-. /:]", "_", name), value, now, step)
            for name, value in values.items()
            if abs(value) < float("inf")
        ]
        if len(self._pending) >= METRICS_PER_CALL:
            self._flush()

    def _flush(self) -> None:
        while self._pending:
            self._client.log_batch(self._run_id, metrics=self._pending[:METRICS_PER_CALL])
            del self._pending[:METRICS_PER_CALL]

    def table(self, frame: pd.DataFrame, name: str) -> None:
        self._client.log_table(self._run_id, frame.reset_index() if frame.index.name else frame, name)

    def files(self, path: Path, folder: str | None = None) -> None:
        if path.is_dir():
            self._client.log_artifacts(self._run_id, str(path), folder)
        else:
            self._client.log_artifact(self._run_id, str(path), folder)

    def model(self, folder: Path, name: str) -> None:
        # models have no client of their own: they go to the store and experiment set for the process
        mlflow.set_tracking_uri(self._uri)
        mlflow.set_experiment(experiment_id=self._experiment_id)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*input example.*")
            Model.log(
                artifact_path=None,
                name=name,
                flavor=mlflow.pyfunc,
                run_id=self._run_id,
                loader_module="tpd.tracking.served",
                data_path=str(folder),
                pip_requirements=[f"tpd=={tpd.__version__}"],
                signature=ModelSignature(inputs=Schema(columns(folder))),
            )


def columns(folder: Path) -> list[ColSpec | TensorSpec]:
    """What the saved explainer in a folder has to be asked with: numbers, or vectors of them."""
    numbered = storage.numbered(folder)
    kinds = [DataType.long if one else Array(DataType.double) for one in numbered]
    return [ColSpec(kind, name) for kind, name in zip(kinds, ("state", "action"), strict=True)]


class NoTracking:
    """Keeps nothing beyond the files of the output folder."""

    def open(
        self, name: str, config: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None
    ) -> "NoRun":
        return NoRun()

    def ui_command(self) -> None:
        return None


class NoRun:
    """A run that is not kept."""

    id: str | None = None

    def __enter__(self) -> "NoRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def end(self, status: str) -> None:
        return None

    def abandon(self) -> None:
        return None

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        return None

    def table(self, frame: pd.DataFrame, name: str) -> None:
        return None

    def files(self, path: Path, folder: str | None = None) -> None:
        return None

    def model(self, folder: Path, name: str) -> None:
        return None


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings under dotted names."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _origin() -> dict[str, str]:
    """Which code made the run, on which versions."""
    tags = {"tpd.version": tpd.__version__}
    tags |= {f"version.{name}": importlib.metadata.version(name) for name in VERSIONED}
    source = Path(tpd.__file__).parent
    commit = _git(source, "rev-parse", "HEAD")
    if commit is not None and _git(source, "ls-files", "--error-unmatch", "__init__.py") is not None:
        tags["mlflow.source.git.commit"] = commit
        tags["tpd.git_dirty"] = str(bool(_git(source, "status", "--porcelain"))).lower()
    return tags


def _git(folder: Path, *arguments: str) -> str | None:
    """The answer of git, or None where there is no git or no repository."""
    try:
        done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
