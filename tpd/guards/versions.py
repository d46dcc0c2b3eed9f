"""Checks which version of tpd wrote a folder or a store; only the same minor version can be read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpd import __version__
from tpd.guards.files import read_json

WRITTEN_BY = "written_by"
"""The key, or the tag after `tpd.`, that holds the version."""
FIRST_VERSION = "0.1.0"
"""This version wrote no version into its files."""


class VersionError(ValueError):
    """Something written by another version of tpd."""


def require_version(what: object, record: Mapping[str, Any], advice: str = "") -> None:
    """Refuse what another version wrote; the error names both versions."""
    version = str(record.get(WRITTEN_BY, FIRST_VERSION))
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise VersionError(f"{what} was written by tpd {version[:20]}, but this is tpd {__version__}{advice}")


def read_versioned(path: Path, what: str) -> dict[str, Any]:
    """The object in a JSON file that this version of tpd wrote; `what` says in errors what was expected."""
    record = read_json(path)
    if not isinstance(record, dict):
        raise ValueError(f"{path}: expected {what}, got a {type(record).__name__}")
    require_version(path, record)
    return record
