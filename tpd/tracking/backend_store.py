"""The MLflow store: made ready once, before anything writes to it."""

import contextlib
import http.client
import os
import sqlite3
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tpd import __version__
from tpd.guards.versions import WRITTEN_BY, require_version

SQLITE = "sqlite:///"
KIND = "mlflow.experimentKind"  # the UI shows what belongs to training, not to chats
SECONDS_TO_ANSWER, SECONDS_TO_LEAVE = 10, 120
RUN_VERSION = "tpd.version"
EXAMPLES = "as sqlite:///mlflow.db or http://host:5000"


def prepare(uri: str, experiment: str) -> str:
    """Create the store and the experiment where they do not exist yet; the experiment's id.

    Migrations of a new SQLite store fail when several processes start them at once, so they wait
    for each other here, and when one dies in them, so the file is there once they are done; WAL lets
    processes read while another one writes.
    """
    require_usable(uri)
    with locked_store(uri):
        if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
            _make(Path(uri.removeprefix(SQLITE)))
        client = client_of(uri)
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


def client_of(uri: str) -> MlflowClient:
    """Refuse a kind of store that there is not, as one of runs and not of models."""
    try:
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except MlflowException as error:  # also of stores that MLflow keeps no more
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


def require_usable(uri: str) -> None:
    """Refuse a store that cannot be used: MLflow would try again for minutes, or write beside it."""
    if uri.startswith("http"):
        _knock(uri)
    if not uri.startswith(SQLITE):
        return
    path = Path(uri.removeprefix(SQLITE)).absolute()
    for place in (path, Path.cwd()):  # the files of runs lie in the working directory
        if {"%", "?"} & set(str(place)):
            raise ValueError(f"MLflow cannot keep runs where a name has % or ?, as {place}: work elsewhere")
    if path.exists():
        _require_database(path)
    made = next(parent for parent in path.parents if parent.exists())
    if not os.access(made, os.W_OK | os.X_OK):
        raise ValueError(f"the store {path} cannot be written: {made} is no folder that you may write to")


def _require_database(path: Path) -> None:
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        raise ValueError(f"the store {path} is no file that you may read and write")
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as error:
        if not isinstance(error, sqlite3.OperationalError):  # else somebody else is writing
            raise ValueError(f"the store {path} is no SQLite database, or a broken one ({error})") from error


def _knock(uri: str) -> None:
    """Refuse a server that does not answer at all, instead of retrying for minutes."""
    failed = list[Exception]()

    def ask() -> None:
        try:
            urllib.request.urlopen(uri, timeout=SECONDS_TO_ANSWER).close()
        except urllib.error.HTTPError:
            return  # an answer, if an unfriendly one
        except (OSError, ValueError, http.client.HTTPException) as error:
            failed.append(error)

    asking = threading.Thread(target=ask, daemon=True)  # a timeout of urlopen is for each piece of an answer
    asking.start()
    asking.join(SECONDS_TO_ANSWER)
    if asking.is_alive():
        raise ConnectionError(f"{uri} does not answer within {SECONDS_TO_ANSWER} s")
    if failed:
        raise ConnectionError(f"{uri} does not answer: {failed[0]}") from failed[0]


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
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        lock.acquire(timeout=SECONDS_TO_LEAVE)
    except Timeout:
        waited = f"waited {SECONDS_TO_LEAVE} s for another process that makes or changes {path}"
        raise TimeoutError(f"{waited}; if there is none, remove {lock.lock_file}") from None
    try:
        yield
    finally:
        lock.release()
