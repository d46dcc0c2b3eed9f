"""The MLflow store: made ready once, before anything writes to it."""

import contextlib
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException

from tpd import __version__
from tpd.guards.versions import WRITTEN_BY, require_version

SQLITE = "sqlite:///"
KIND = "mlflow.experimentKind"  # the UI shows what belongs to training, not to chats
SECONDS_TO_ANSWER = 10
RUN_VERSION = "tpd.version"
EXAMPLES = "as sqlite:///mlflow.db or http://host:5000"


def prepare(uri: str, experiment: str) -> str:
    """Create the store and the experiment where they do not exist yet; the experiment's id.

    Migrations of a new SQLite store fail when several processes start them at once, so they wait
    for each other here, and when one dies in them, so the file is there once they are done; WAL lets
    processes read while another one writes.
    """
    if uri.startswith("http"):
        _knock(uri)
    with locked_store(uri):
        if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
            _make(Path(uri.removeprefix(SQLITE)))
        client = _client(uri)
        _require_version(client, uri)
        found = client.get_experiment_by_name(experiment)
        if uri.startswith(SQLITE):
            with contextlib.closing(sqlite3.connect(uri.removeprefix(SQLITE))) as database:
                database.execute("PRAGMA journal_mode=WAL")
        if found is None:
            return _create(client, experiment)
        if found.lifecycle_stage == "deleted":
            raise MlflowException(f"the experiment {experiment!r} is deleted; restore it or use another name")
        return str(found.experiment_id)


def _make(path: Path) -> None:
    """Make an SQLite store, which is there as a whole or not at all."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    for left in ("", "-journal", "-wal", "-shm"):  # by somebody who died in this
        unfinished.with_name(unfinished.name + left).unlink(missing_ok=True)
    MlflowClient(tracking_uri=f"{SQLITE}{unfinished}").search_experiments()
    unfinished.replace(path)


def _client(uri: str) -> MlflowClient:
    """Refuse a kind of store that there is not, as one of runs and not of models."""
    try:
        return MlflowClient(tracking_uri=uri)
    except UnsupportedModelRegistryStoreURIException as error:
        raise ValueError(f"uri must name a store that MLflow knows, {EXAMPLES}, got {uri!r}") from error


def _create(client: MlflowClient, experiment: str) -> str:
    """The id of a new experiment, or of the one that another process has made at the same moment."""
    try:
        return str(client.create_experiment(experiment, tags={KIND: "custom_model_development"}))
    except MlflowException:  # a server has no lock to wait at
        found = client.get_experiment_by_name(experiment)
        if found is None:
            raise
        return str(found.experiment_id)


def _require_version(client: MlflowClient, uri: str) -> None:
    """Refuse a store with runs of another version of tpd: their names and files would mix."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    others = client.search_runs(
        experiments,
        f"tags.`{RUN_VERSION}` != '{__version__}'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    if others:
        wrote = {WRITTEN_BY: others[0].data.tags[RUN_VERSION]}
        require_version(f"the store {uri}", wrote, ": name another one (tracking.uri=...)")


def _knock(uri: str) -> None:
    """Refuse a server that does not answer at all, instead of retrying for minutes."""
    try:
        urllib.request.urlopen(uri, timeout=SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError:
        return  # an answer, if an unfriendly one
    except OSError as error:
        raise ConnectionError(f"{uri} does not answer: {error}") from error


def absolute(uri: str) -> str:
    """The same store, from wherever it is looked for."""
    if not isinstance(uri, str) or not uri:
        raise ValueError(f"uri must name a store, {EXAMPLES}, got {uri!r}")
    if not uri.startswith(SQLITE):
        return uri
    return SQLITE + str(Path(uri.removeprefix(SQLITE)).absolute())


@contextlib.contextmanager
def locked_store(uri: str) -> Iterator[None]:
    """Keep other processes out of an SQLite store."""
    if not uri.startswith(SQLITE):
        yield
        return
    path = Path(uri.removeprefix(SQLITE))
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")):
        yield
