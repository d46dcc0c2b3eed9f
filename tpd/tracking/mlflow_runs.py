"""Runs of jobs and sweeps in MLflow."""

import importlib.metadata
import json
import logging
import re
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlflow
from mlflow import MlflowClient, entities
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param
from mlflow.models import Model
from PIL import Image

import tpd
from tpd.guards.files import require_own_files
from tpd.tracking import notes, runs, served_model
from tpd.tracking.backend_store import RUN_VERSION, absolute, locked_store, own_places, prepare
from tpd.tracking.served_requests import questions
from tpd.tracking.ui import ui_command

COMMAND = "tpd-run"
VERSIONED = ("gymnasium", "hydra-core", "mlflow", "numba", "numpy", "stable-baselines3", "torch")
LONGEST_PARAM = 6000
PARAMS_PER_CALL = 100
METRICS_PER_CALL = 500
LONGEST_NOTE = 8000
WIDEST_PICTURE = 680
PICTURES, MOST_PIXELS, MOST_PIXELS_OF_NOTE = ("PNG", "JPEG"), 50_000_000, 200_000_000
"""The picture formats that may be opened: for others, Pillow may start programs."""
TABLES = "mlflow.loggedArtifacts"  # the tag that lists the tables for the UI
SOURCE = "mlflow.source."  # the tags that name program and commit
TOKEN = "tpd.token"  # the tag by which a run is found again


class MlflowTracking(runs.Tracking):
    """Tracks runs in an MLflow store: an SQLite file, a server, or any other URI.

    register: the model name under which the explainer of every finished run is registered; None for none.
    """

    def __init__(self, *, uri: str, experiment: str, register: str | None = None) -> None:
        self.uri, self.experiment = uri, experiment
        if register is not None and (
            not isinstance(register, str) or not re.fullmatch(runs.UNQUOTED, register)
        ):
            raise ValueError(f"register must be a name without / : @ or quotes, or null, got {register!r}")
        self.register = register

    def open(
        self,
        name: str,
        config: Mapping[str, Any],
        tags: Mapping[str, str],
        parent: str | None = None,
        token: str | None = None,
    ) -> "MlflowRun":
        """Start a run, with its settings, its code version and library versions.

        token: identifies the run for `resume`, even if its id is lost.
        """
        experiment_id = prepare(self.uri, self.experiment)
        client = MlflowClient(tracking_uri=self.uri)
        require_places(client, self.uri, experiment_id)
        every = {**tags, **_origin()} | ({} if token is None else {TOKEN: token})
        every |= {f"{SOURCE}name": every.pop(runs.PROGRAM, COMMAND), f"{SOURCE}type": "LOCAL"}
        if parent is not None:
            if client.get_run(parent).info.experiment_id != experiment_id:
                raise ValueError(f"the run {parent} does not belong to the experiment {self.experiment!r}")
            every["mlflow.parentRunId"] = parent
        run = client.create_run(experiment_id, tags=every, run_name=name)
        params = [Param(key, str(value)[:LONGEST_PARAM]) for key, value in _flat(config).items()]
        for i in range(0, len(params), PARAMS_PER_CALL):
            client.log_batch(run.info.run_id, params=params[i : i + PARAMS_PER_CALL])
        return MlflowRun(client, self.uri, run, self.register)

    def resume(self, run_id: str | None, token: str) -> "MlflowRun | None":
        """The run with this token and, if known, this id; None if there is none."""
        experiment_id, client = prepare(self.uri, self.experiment), MlflowClient(tracking_uri=self.uri)
        if run_id is None:
            found = client.search_runs([experiment_id], f"tags.`{TOKEN}` = '{token}'", max_results=1)
            if not found:
                return None
            run_id = found[0].info.run_id
        run = client.get_run(run_id)
        if run.data.tags.get(TOKEN) != token:
            raise PermissionError(f"run {run_id} of {self.uri} was not started from this folder")
        require_places(client, self.uri, run.info.experiment_id, run.info.artifact_uri)
        client.update_run(run_id, status="RUNNING")
        return MlflowRun(client, self.uri, run, self.register)

    def ui_command(self) -> str:
        """The command that shows the runs."""
        return f"open {self.uri} in a browser" if self.uri.startswith("http") else ui_command(self.uri)

    @property
    def address(self) -> str:
        return self.uri if self.uri.startswith("http") else f"http://{runs.LOOPBACK}:5000"

    def keeps_in(self, uri: str) -> bool:
        return absolute(uri) == absolute(self.uri)


class MlflowRun(runs.Run):
    """A run in an MLflow store; metrics are sent in batches."""

    def __init__(self, client: MlflowClient, uri: str, run: entities.Run, register: str | None) -> None:
        self._run_id = str(run.info.run_id)
        self._client, self._uri = client, uri
        self._experiment_id = str(run.info.experiment_id)
        self._about = {name: run.data.tags[name] for name in runs.ABOUT if name in run.data.tags}
        self._source = {name: tag for name, tag in run.data.tags.items() if name.startswith(SOURCE)}
        self._register = register
        self._pending: list[Metric] = []

    @property
    def id(self) -> str:
        return self._run_id

    def status(self) -> str:
        """RUNNING, or how it ended; raises an error if the store does not answer."""
        return str(self._client.get_run(self._run_id).info.status)

    def end(self, status: str) -> None:
        self.flush()
        if status == "FINISHED" and self._register is not None:
            for model in self._models():
                self._new_version(self._register, model.model_uri)
        self._client.set_terminated(self._run_id, status)

    def _models(self, name: str | None = None) -> Sequence[entities.LoggedModel]:
        """The models that the run already has, optionally only those of one name."""
        mine = f"source_run_id = '{self._run_id}'" + ("" if name is None else f" AND name = '{name}'")
        return self._client.search_logged_models([self._experiment_id], mine)

    def _new_version(self, name: str, model_uri: str) -> None:
        with locked_store(self._uri):  # otherwise jobs of a sweep could register the same version
            if self._client.search_model_versions(f"name = '{name}' and run_id = '{self._run_id}'"):
                return
            version = mlflow.register_model(model_uri, name, tags=self._about)
            if runs.SEED in self._about:
                alias = f"seed-{self._about[runs.SEED]}"
                self._client.set_registered_model_alias(name, alias, version.version)

    def abandon(self) -> None:
        children = f"tags.mlflow.parentRunId = '{self._run_id}' and attributes.status = 'RUNNING'"
        for child in self._client.search_runs([self._experiment_id], children):
            self._client.set_terminated(child.info.run_id, "KILLED")
        self.end("KILLED")

    def metrics(self, values: Mapping[str, float], step: int = 0, milliseconds: int | None = None) -> None:
        """Log numbers at a time (in milliseconds since 1970; default: now); repetitions are stored once."""
        when = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
        self._pending += [
            Metric(re.sub(r"[^\w\-. /:]", "_", name), value, when, step)
            for name, value in values.items()
            if abs(value) < float("inf")
        ]
        if len(self._pending) >= METRICS_PER_CALL:
            self.flush()

    def flush(self) -> None:
        """Send the pending metrics; they are dropped even if the store refuses them."""
        pending, self._pending = self._pending, []
        for begin in range(0, len(pending), METRICS_PER_CALL):
            self._client.log_batch(self._run_id, metrics=pending[begin : begin + METRICS_PER_CALL])

    def data(self, name: str, digest: str, rows: int, source: str | None = None) -> None:
        kind, where = ("local", {"uri": source}) if source is not None else ("code", {"tags": self._source})
        found = Dataset(name, digest, kind, json.dumps(where), profile=json.dumps({"num_rows": rows}))
        used = DatasetInput(found, [InputTag("mlflow.data.context", "training")])
        self._client.log_inputs(self._run_id, [used])

    def table(self, path: Path) -> None:
        self.files(path)
        tables = json.loads(self._client.get_run(self._run_id).data.tags.get(TABLES, "[]"))
        shown = {"path": path.name, "type": "table"}
        if shown not in tables:
            self._client.set_tag(self._run_id, TABLES, json.dumps([*tables, shown]))

    def files(self, path: Path, folder: str | None = None) -> None:
        if path.is_dir():
            self._client.log_artifacts(self._run_id, str(path), folder)
        else:
            self._client.log_artifact(self._run_id, str(path), folder)

    def model(self, folder: Path, name: str) -> None:
        if self._models(name):
            return
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # no output of MLflow in our terminal
        # models have no client API: they go to the global store and experiment of the process
        mlflow.set_tracking_uri(self._uri)
        mlflow.set_experiment(experiment_id=self._experiment_id)
        asked = questions(folder)
        described: dict[str, Any] = {}
        if asked is not None:
            described = {"input_example": asked.example, "metadata": asked.description}
            described["signature"] = served_model.signature(folder)
        Model.log(
            artifact_path=None,
            name=name,
            flavor=mlflow.pyfunc,
            run_id=self._run_id,
            loader_module="tpd.tracking.served_model",
            data_path=str(folder),
            pip_requirements=[f"tpd=={tpd.__version__}"],
            **described,
        )

    def describe(self, parts: Sequence[str | Path]) -> None:
        shown, left, pixels = list[str](), LONGEST_NOTE, 0
        for number, part in enumerate(parts):
            name = None if isinstance(part, str) else f"{number}_{part.name}"
            text = self._resolved(part) if isinstance(part, str) else self._shown(part, f"note/{name}")
            left -= len(text) + 2
            if left <= 0:
                continue
            if isinstance(part, Path):
                pixels += self._picture(part, f"{name}", MOST_PIXELS_OF_NOTE - pixels)
            shown.append(text)
        self._client.set_tag(self._run_id, "mlflow.note.content", "\n\n".join(shown))

    def _picture(self, path: Path, name: str, most: int) -> int:
        """Log a picture, scaled down for the page of the run; returns its number of pixels."""
        with tempfile.TemporaryDirectory() as folder, Image.open(path, formats=PICTURES) as picture:
            pixels = picture.width * picture.height
            if pixels > min(MOST_PIXELS, most):
                raise ValueError(f"{path}: too large, {picture.width} x {picture.height} pixels")
            picture.thumbnail((WIDEST_PICTURE, 10 * WIDEST_PICTURE))
            picture.save(Path(folder) / name, format=picture.format)
            self._client.log_artifact(self._run_id, str(Path(folder) / name), "note")
        return pixels

    def _shown(self, path: Path, kept: str) -> str:
        """The Markdown of a picture that is stored under this name."""
        query = urllib.parse.urlencode({"path": kept, "run_uuid": self._run_id})
        return f"![{notes.escaped(path.stem)}](get-artifact?{query})"

    def page(self, run_id: str | None = None, file: str | None = None) -> str:
        return self._resolved(runs.page(run_id, file))

    def serve_command(self, name: str) -> list[str]:
        return [self._resolved(word) for word in runs.serve_command(self._uri, name)]

    def _resolved(self, text: str) -> str:
        return text.replace(runs.THIS_RUN, self._run_id).replace(runs.THIS_EXPERIMENT, self._experiment_id)


def require_places(client: MlflowClient, uri: str, experiment_id: str, *locations: str | None) -> None:
    """Refuse to write files of a run, or models of its experiment, outside the store's own folders."""
    experiment = client.get_experiment(experiment_id).artifact_location
    own_places(uri, f"{experiment or ''}/models")
    for place in own_places(uri, *locations):
        require_own_files(place)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as a flat dict with dotted names."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _origin() -> dict[str, str]:
    """The version of the code and the libraries, as tags."""
    tags = {RUN_VERSION: tpd.__version__}
    tags |= {f"version.{name}": importlib.metadata.version(name) for name in VERSIONED}
    source = Path(tpd.__file__).parent
    commit = _git(source, "rev-parse", "HEAD")
    if commit is not None and _git(source, "ls-files", "--error-unmatch", "__init__.py") is not None:
        tags[f"{SOURCE}git.commit"] = commit
        tags["tpd.git_dirty"] = str(bool(_git(source, "status", "--porcelain"))).lower()
    return tags


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command; None without git or a repository."""
    try:
        safely = ["git", "-c", "core.fsmonitor=false"]  # a repository could name a program here
        done = subprocess.run([*safely, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
