"""Repairs an SQLite store in a moved or copied project folder, which still has the old paths of its files."""

import contextlib
import logging
import sqlite3
from pathlib import Path
from urllib.parse import urlsplit

from mlflow.utils.file_utils import local_file_uri_to_path

PLACE = "mlruns"
"""The folder in which MLflow stores files."""
COLUMNS = (
    ("experiments", "artifact_location"),
    ("runs", "artifact_uri"),
    ("logged_models", "artifact_location"),
    ("model_versions", "storage_location"),
)
"""The tables and columns of a store that contain file paths."""
SECONDS_TO_WAIT = 5.0
log = logging.getLogger(__name__)


def as_path(location: object) -> Path | None:
    """The path of a location as MLflow reads it, with links resolved; None if it is not a local file."""
    if not isinstance(location, str) or not location or urlsplit(location).scheme not in ("", "file"):
        return None
    return Path(local_file_uri_to_path(location)).resolve()  # type: ignore[no-untyped-call]


def follow(store: Path) -> None:
    """Update the file paths of experiments whose files are beside the store and not at the recorded path.

    The new paths are always below the folder of the store, whoever wrote it.
    """
    try:
        _follow(store, store.parent.resolve() / PLACE)
    except sqlite3.OperationalError as error:  # another process is writing
        log.warning("cannot check whether %s was moved: %s", store, error)


def _follow(store: Path, home: Path) -> None:
    with contextlib.closing(sqlite3.connect(store, SECONDS_TO_WAIT)) as database, database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'experiments'").fetchall():
            return
        for (old,) in database.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall():
            if (new := _beside(home, old)) is None:
                continue
            log.warning("%s was moved: the files of %s are now in %s", store, old, new)
            for table, column in COLUMNS:
                database.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?) "
                    f"WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                    (str(new), len(old) + 1, old, len(old) + 1, f"{old}/"),
                )


def _beside(home: Path, location: object) -> Path | None:
    """The folder in `home` that corresponds to a location, if it exists and the location is elsewhere."""
    place = as_path(location)
    own = (home, Path.cwd().resolve() / PLACE)
    if place is None or PLACE not in place.parts or any(map(place.is_relative_to, own)):
        return None
    last = len(place.parts) - place.parts[::-1].index(PLACE)
    here = home.joinpath(*place.parts[last:])
    return here if here != home and here.is_dir() and here.resolve().is_relative_to(home) else None
