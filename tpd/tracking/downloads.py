"""Lists the runs in a tracking store, and copies them as files, without running anything in them."""

import re
from pathlib import Path
from typing import NamedTuple

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from tpd.guards.files import brief
from tpd.guards.versions import FIRST_VERSION, WRITTEN_BY, require_version
from tpd.store import explainers
from tpd.store.saved_runs import EPISODES, EXPLAINER, FORECASTS, RESULT
from tpd.tracking.backend_store import RUN_VERSION, client_of, own_places, require_existing
from tpd.tracking.runs import ABOUT

MODELS = "models:/"
LARGEST_COPY = 2**30


class TrackedRun(NamedTuple):
    """A finished run of tpd in a store."""

    id: str
    name: str
    about: dict[str, str]
    """Environment, policy, explainer and seed, as far as they are recorded."""


def list_tracked(uri: str, most: int) -> list[TrackedRun]:
    """The newest finished runs that have an explainer and so can be asked, newest first."""
    require_existing(uri, f"there is no store {uri}: start a run first, or pass another store")
    client = client_of(uri)
    try:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        wanted = f"attributes.status = 'FINISHED' AND tags.`{RUN_VERSION}` != ''"
        order = ["attributes.start_time DESC"]
        found = client.search_runs(experiments, wanted, order_by=order, max_results=most)
    except MlflowException as error:
        raise ValueError(f"the store {uri} cannot be read: {' '.join(error.message.split())}") from error
    return [
        TrackedRun(
            run.info.run_id,
            str(run.info.run_name),
            {name: run.data.tags[name] for name in ABOUT if name in run.data.tags},
        )
        for run in found
        if run.outputs is None or run.outputs.model_outputs
    ]


def download(name: str, uri: str, folder: Path) -> Path:
    """Copy a run into the folder; `name` is the run's id or the URI of its model."""
    missing = f"run={name} is not the folder of a run, and there is no store {uri} (store=...)"
    require_existing(uri, missing)
    client = client_of(uri)
    try:
        run = client.get_run(_run_of_model(client, name) if name.startswith(MODELS) else name)
        require_version(f"run={name}", {WRITTEN_BY: run.data.tags.get(RUN_VERSION, FIRST_VERSION)})
        models = [output.model_id for output in run.outputs.model_outputs] if run.outputs else []
        if not models:
            raise ValueError(_without_explainer(client, run))
        explainer = client.get_logged_model(models[-1])
        for place in own_places(uri, run.info.artifact_uri, explainer.artifact_location):
            _require_modest(place)
        kept = {file.path for file in client.list_artifacts(run.info.run_id)}
        for file in kept & {EPISODES, RESULT, FORECASTS}:
            client.download_artifacts(run.info.run_id, file, str(folder))
        mlflow.artifacts.download_artifacts(
            artifact_uri=explainer.artifact_location, dst_path=str(folder / "model"), tracking_uri=uri
        )
    except MlflowException as error:
        reason = " ".join(error.message.split())
        raise ValueError(f"run={name} is neither the folder of a run nor in {uri}: {reason}") from error
    except (ValueError, OSError):
        raise
    except Exception as error:  # rows of a store may contain anything
        raise ValueError(f"run={name} cannot be read from {uri}: {brief(error)}") from error
    found = [path.parent for path in (folder / "model").rglob(explainers.DESCRIPTION)]
    if len(found) != 1:
        raise ValueError(f"run={name}: expected one {explainers.DESCRIPTION} in its model, got {len(found)}")
    found[0].rename(folder / EXPLAINER)
    return folder


def _require_modest(place: Path) -> None:
    """Refuse a folder that is too large to copy, or that has links leading out of it."""
    size = 0
    for path in place.rglob("*"):
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link, so nothing is copied")
        size += path.stat().st_size if path.is_file() else 0
        if size > LARGEST_COPY:
            raise ValueError(f"{place} is too large: at most {LARGEST_COPY:,} bytes are copied")


def _run_of_model(client: MlflowClient, name: str) -> str:
    registered = re.fullmatch(rf"{MODELS}([^@/]+)(?:@([^@/]+)|/(\d+))", name)
    if registered is None:
        return str(client.get_logged_model(name.removeprefix(MODELS)).source_run_id)
    model, alias, version = registered.groups()
    if alias:
        return str(client.get_model_version_by_alias(model, alias).run_id)
    return str(client.get_model_version(model, version).run_id)


def _without_explainer(client: MlflowClient, run: Run) -> str:
    seeds = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{run.info.run_id}'")
    if not seeds:
        return f"the run {run.info.run_id} ({run.info.status.lower()}) has no explainer"
    named = ", ".join(f"{seed.info.run_name}: run={seed.info.run_id}" for seed in reversed(seeds))
    return f"{run.info.run_name} is a sweep; ask one of its runs: {named}"
