"""The MLflow backend store: created, migrated, checked and locked before anything writes to it."""

import contextlib
import functools
import http.client
import os
import re
import sqlite3
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tpd import __version__
from tpd.guards.versions import WRITTEN_BY, require_version
from tpd.tracking.moved_stores import PLACE, as_path, follow

SQLITE = "sqlite:///"
KIND = "mlflow.experimentKind"  # makes the UI show the pages for training, not for chats
SECONDS_TO_ANSWER, SECONDS_TO_LEAVE = 10, 120
SECONDS_FOR_TABLES, SECONDS_FOR_PAGES = 2.0, 7.0
"""Time limits for checking a store; one gigabyte takes two seconds."""
STEPS_BETWEEN_LOOKS = 1_000
LONGEST_VALUE = 2**26
ALEMBIC = "alembic_version"
FUNCTIONS = "SELECT DISTINCT lower(name) FROM pragma_function_list"
HARMLESS = {"char", "lower", "upper", "length", "coalesce"}
"""SQL functions allowed in a table's definition; CHAR is also a type."""
PATTERNS = r"\b(LIKE|GLOB|MATCH|REGEXP)\b|--|/\*"
REFUSING = (
    r"CREATE TRIGGER \w+ BEFORE \w+ ON \w+ FOR EACH ROW WHEN [^;()]* "
    r"BEGIN SELECT RAISE\(ABORT, '[^']*'\); END"
)
"""A trigger that only raises an error; MLflow has one."""
RUN_VERSION = "tpd.version"
EXAMPLES = "such as sqlite:///mlflow.db or http://host:5000"


def prepare(uri: str, experiment: str) -> str:
    """Create the store and the experiment if they do not exist; returns the experiment's id.

    Migrations of a new SQLite store fail if several processes start them at once, so a lock lets one in at a
    time. They also fail if a process dies in them, so the file gets its name only after they are done. WAL
    mode lets processes read while another one writes.
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
            return _create(client, uri, experiment)
        if found.lifecycle_stage == "deleted":
            raise MlflowException(f"the experiment {experiment!r} is deleted; restore it or use another name")
        return str(found.experiment_id)


def _make(path: Path) -> None:
    """Create an SQLite store atomically."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    for left in ("", "-journal", "-wal", "-shm"):  # left by a process that died here
        unfinished.with_name(unfinished.name + left).unlink(missing_ok=True)
    MlflowClient(tracking_uri=f"{SQLITE}{unfinished}").search_experiments()
    unfinished.replace(path)


def client_of(uri: str) -> MlflowClient:
    """A client for a store; refused if MLflow does not support this kind of store for runs and models."""
    path = Path(absolute(uri).removeprefix(SQLITE))
    if uri.startswith(SQLITE) and path.exists():
        _require_database(path)
    try:
        return MlflowClient(tracking_uri=uri, registry_uri=uri)
    except MlflowException as error:  # also raised for store types that MLflow has dropped
        raise ValueError(f"uri must be a store that MLflow supports, {EXAMPLES}, got {uri!r}") from error


def _create(client: MlflowClient, uri: str, experiment: str) -> str:
    """The id of a new experiment, or of one that another process created at the same time.

    For an SQLite store, its files are placed beside the database, so that they are found from any directory.
    """
    place = None
    if uri.startswith(SQLITE):
        place = str(Path(uri.removeprefix(SQLITE)).absolute().parent / PLACE / uuid.uuid4().hex)
    try:
        return str(client.create_experiment(experiment, place, {KIND: "custom_model_development"}))
    except MlflowException:  # a server cannot be locked
        if (found := client.get_experiment_by_name(experiment)) is None:
            raise
        return str(found.experiment_id)


def _require_version(client: MlflowClient, uri: str) -> None:
    """Refuse a store with runs of another version of tpd: their names and files would mix."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    wanted, order = f"tags.`{RUN_VERSION}` != '{__version__}'", ["attributes.start_time ASC"]
    if others := client.search_runs(experiments, wanted, max_results=1, order_by=order):
        wrote = {WRITTEN_BY: others[0].data.tags[RUN_VERSION]}
        require_version(f"the store {uri}", wrote, ": use another store (tracking.uri=...)")


def require_existing(uri: str, missing: str) -> None:
    """Refuse an unusable store, or one that does not exist, since MLflow would create it."""
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():
        raise ValueError(missing)
    require_usable(uri)


def require_usable(uri: str) -> None:
    """Refuse an unusable store: MLflow would retry for minutes, or write elsewhere."""
    if uri.startswith("http"):
        _knock(uri)
    if not uri.startswith(SQLITE):
        return
    path = Path(uri.removeprefix(SQLITE)).absolute()
    for place in (path, Path.cwd()):  # run files are beside the store, or in the working directory
        if {"%", "?"} & set(str(place)):
            raise ValueError(
                f"MLflow cannot store runs in a path with % or ?, such as {place}: use another folder"
            )
    if path.exists():
        _require_database(path)
        follow(path)
    made = next(parent for parent in path.parents if parent.exists())
    if not os.access(made, os.W_OK | os.X_OK):
        raise ValueError(f"the store {path} cannot be written: {made} is not a writable folder")


def _require_database(path: Path) -> None:
    """Refuse a file that is not a store of this MLflow version, or contains SQL that would be run."""
    if not path.is_file() or not os.access(path, os.R_OK | os.W_OK):
        raise ValueError(f"the store {path} must be a file that you may read and write")
    about = path.stat()
    try:
        _look_through(path, about.st_ino, about.st_size, about.st_mtime_ns)
    except (sqlite3.DataError, MemoryError) as error:
        raise ValueError(f"the store {path} contains a value of more than {LONGEST_VALUE} bytes") from error
    except sqlite3.DatabaseError as error:
        code = error.sqlite_errorcode & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return  # another process is writing
        if code == sqlite3.SQLITE_INTERRUPT:
            told = f"the store {path} of {about.st_size / 2**20:.0f} MB could not be checked within"
            known = "if you trust it, start mlflow server on it and use that URI, such as http://host:5000"
            raise ValueError(f"{told} {SECONDS_FOR_PAGES:.0f} s: {known}") from error
        raise ValueError(f"the store {path} is not a valid SQLite database ({error})") from error


@functools.lru_cache(maxsize=1)
def _look_through(path: Path, *identity: int) -> None:
    """Refuse SQL that would run in MLflow's queries, and queries without end; checked once per file."""
    _schema()  # slow imports
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        with _interrupted(database, SECONDS_FOR_TABLES):
            _check_tables(database, path)
        with _interrupted(database, SECONDS_FOR_PAGES):  # pages that refer to themselves would never end
            for (wrong,) in database.execute("PRAGMA quick_check(1)"):
                if wrong != "ok":
                    raise ValueError(f"the store {path} is a corrupted SQLite database ({wrong!r:.100})")


@contextlib.contextmanager
def _interrupted(database: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Abort queries after this many seconds: the handler stops row scans, the timer stops page scans."""
    deadline, timer = time.monotonic() + seconds, threading.Timer(seconds, database.interrupt)
    database.set_progress_handler(lambda: time.monotonic() >= deadline, STEPS_BETWEEN_LOOKS)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check_tables(database: sqlite3.Connection, path: Path) -> None:
    """Refuse views, triggers and functions, since queries run them."""
    tables, calls = set[str](), {name for (name,) in database.execute(FUNCTIONS)} - HARMLESS
    for kind, name, sql in database.execute("SELECT type, name, sql FROM sqlite_master"):
        written = " ".join(str(sql or "").split())
        called = {word.lower() for word in re.findall(r"(\w+)\W?\s*\(", written)} & calls
        virtual = written.lower().startswith("create virtual")
        harmless = kind in ("table", "index") or (kind == "trigger" and re.fullmatch(REFUSING, written))
        if called or virtual or not harmless or re.search(PATTERNS, written, re.IGNORECASE):
            raise ValueError(
                f"the store {path} has a {kind} {name!r:.80} that would run code and is not MLflow's; use "
                "another store (tracking.uri=...)"
            )
        if kind == "table":
            tables.add(name)
    if not tables:
        return
    due, columns, computed = _schema()
    found = database.execute("SELECT version_num FROM alembic_version") if ALEMBIC in tables else ()
    revisions = [str(revision) for (revision,) in found]
    if revisions != [due]:
        told = f"has schema revision {', '.join(revisions)!r:.80}, but this MLflow needs {due!r}"
        raise ValueError(f"store {path} {told}: run mlflow db upgrade sqlite:///{path}, or upgrade MLflow")
    for table, names in columns.items():
        rows = database.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", (table,)).fetchall()
        # a generated column counts only if MLflow itself defines it
        has = {name for name, hidden in rows if not hidden or (table, name) in computed}
        if lacking := names - has:
            raise ValueError(f"the store {path} is damaged: table {table} has no column {min(lacking)}")


@functools.cache
def _schema() -> tuple[str, dict[str, set[str]], set[tuple[str, str]]]:
    """The schema of this MLflow version: its revision, columns per table, and generated columns."""
    from mlflow.store.db.base_sql_model import Base
    from mlflow.store.db.utils import _get_latest_schema_revision

    tables = Base.metadata.tables
    columns = {name: {str(c.name) for c in table.columns} for name, table in tables.items()}
    computed = {(name, str(c.name)) for name, table in tables.items() for c in table.columns if c.computed}
    return str(_get_latest_schema_revision()), columns, computed  # type: ignore[no-untyped-call]


def own_places(uri: str, *locations: str | None) -> list[Path]:
    """The local folders of a store's files; refused if they are not where MLflow puts them: in `mlruns`.

    The author of a store decides where its files are read and written, so only the folder `mlruns` in the
    working directory or beside the store is accepted. The files of a server are not checked.
    """
    homes, places = [Path.cwd()], list[Path]()
    if uri.startswith(SQLITE):
        homes.append(Path(uri.removeprefix(SQLITE)).absolute().parent)
    for location in locations:
        given, place = str(location or ""), as_path(location)
        if place is None and given and not uri.startswith(SQLITE):
            continue
        if place is None or not any(place.is_relative_to(home.resolve() / PLACE) for home in homes):
            where = " or ".join(str(home / PLACE) for home in dict.fromkeys(homes))
            raise PermissionError(
                f"the store {uri} has its files in {given!r:.200}, which is not below {where}: "
                "if the folder is yours, copy it there"
            )
        places.append(place)
    return places


def _knock(uri: str) -> None:
    """Refuse a server that does not answer at all, instead of retrying for minutes."""
    failed = list[Exception]()

    def ask() -> None:
        try:
            urllib.request.urlopen(uri, timeout=SECONDS_TO_ANSWER).close()
        except urllib.error.HTTPError:
            return  # any answer counts, even an error
        except (OSError, ValueError, http.client.HTTPException) as error:
            failed.append(error)

    asking = threading.Thread(target=ask, daemon=True)  # urlopen's timeout applies to each part of an answer
    asking.start()
    asking.join(SECONDS_TO_ANSWER)
    if asking.is_alive():
        raise ConnectionError(f"{uri} does not answer within {SECONDS_TO_ANSWER} s: is the server running?")
    if failed:
        raise ConnectionError(f"{uri} does not answer: {failed[0]}") from failed[0]


def absolute(uri: str) -> str:
    """The URI of the same store with an absolute path."""
    if not isinstance(uri, str) or not uri or re.fullmatch("sqlite:/*|sqlite:/{0,2}[^/].*", uri):  # no file
        raise ValueError(f"uri must be a store, {EXAMPLES}, got {uri!r}")
    return SQLITE + str(Path(uri.removeprefix(SQLITE)).absolute()) if uri.startswith(SQLITE) else uri


@contextlib.contextmanager
def locked_store(uri: str) -> Iterator[None]:
    """Lock an SQLite store against other processes."""
    if not uri.startswith(SQLITE):
        yield
        return
    path = Path(uri.removeprefix(SQLITE))
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        lock.acquire(timeout=SECONDS_TO_LEAVE)
    except Timeout:
        waited = f"waited {SECONDS_TO_LEAVE} s for another process that creates or changes {path}"
        raise TimeoutError(f"{waited}; if there is none, remove {lock.lock_file}") from None
    try:
        yield
    finally:
        lock.release()
