"""The folders of runs and sweeps: locks, status records, and which folder to resume in."""

import fcntl
import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from tpd import __version__
from tpd.guards.atomic import atomic_write_text
from tpd.guards.files import read_json, require_file, require_own_files
from tpd.guards.versions import WRITTEN_BY, require_version
from tpd.store.fingerprints import code_version

log = logging.getLogger(__name__)

STATUS, SWEEP, LOCK = "status.json", "sweep.json", "lock"
RUNNING, FINISHED, FAILED = "running", "finished", "failed"
LARGEST_RECORD = 2**20


class BusyError(Exception):
    """Another process works in the folder."""


@contextmanager
def locked(folder: Path, patience: float = 0) -> Iterator[None]:
    """Lock a folder against other processes; the lock ends with the process, even if it is killed.

    A folder with links that lead out of it is refused, since the caller is going to write there.
    patience: seconds to wait for a lock that is held.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_own_files(folder)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=patience)
    except Timeout:
        raise BusyError(
            f"another process is using {folder}: wait until it ends, or use another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


def is_busy(folder: Path) -> bool:
    """Whether another process holds the lock of a folder; writes nothing."""
    lock = folder / LOCK
    if not lock.is_file():
        return False
    with lock.open("rb") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def read_record(path: Path) -> dict[str, Any]:
    """The record of a run or sweep; empty if there is none, or if it is unreadable."""
    if not path.exists():
        return {}
    try:
        return parse_record(path)
    except (ValueError, OSError) as error:
        _warn(str(error))
        return {}


def parse_record(path: Path) -> dict[str, Any]:
    """The same, but raises an error for an unreadable record."""
    require_file(path, LARGEST_RECORD)
    known = read_json(path)
    if not isinstance(known, dict):
        raise ValueError(f"{path}: expected a record of a run or sweep, got a {type(known).__name__}")
    return known


@cache
def _warn(reason: str) -> None:
    """Warn once per message, however often the record is read."""
    log.warning("%s; so the status of the run counts as unknown", reason)


def require_own_version(folder: Path) -> None:
    """Refuse the folder of a run or sweep written by another version of tpd."""
    for path in (folder / STATUS, folder / SWEEP):
        if known := read_record(path):
            require_version(path, known)


def write_record(path: Path, **news: Any) -> None:
    """Update a record."""
    atomic_write_text(path, json.dumps(read_record(path) | {WRITTEN_BY: __version__} | news))


def remove_unstarted(folder: Path) -> None:
    """Remove the folder of a run that was refused before it began, and folders around it that are empty."""
    if (folder / STATUS).exists():
        return
    shutil.rmtree(folder)
    here = Path.cwd()
    for each in (folder.resolve()).parents:
        if each == here or here not in each.parents or any(each.iterdir()):
            return
        each.rmdir()


def command() -> list[str]:
    """The command line of the user, and the version of the code."""
    return [*sys.argv[1:], code_version()]


def resume_folder(root: str, name: str) -> str:
    """The folder of an unfinished run of the same command, or else a new one of that name.

    It creates nothing, since composing a config must have no side effects. The process id in the name
    separates runs that start in the same second.
    """
    for record in sorted(Path(root).glob("*/*.json"), reverse=True):
        if record.name in (STATUS, SWEEP) and _same_unfinished(record) and not is_busy(record.parent):
            return str(record.parent)
    again = (f"{root}/{name}_{os.getpid()}" + ("" if k == 1 else f"_{k}") for k in count(1))
    return next(folder for folder in again if not Path(folder).exists())


def _same_unfinished(record: Path) -> bool:
    known = {} if record.parent.is_symlink() else read_record(record)
    return known.get("command") == command() and known.get("status") != FINISHED
