"""Finds the run that a person names: a folder, or a run in the tracking store."""

from difflib import get_close_matches
from pathlib import Path

from tpd.guards.versions import VersionError
from tpd.store.explainers import DESCRIPTION
from tpd.store.run_folders import require_own_version
from tpd.store.saved_runs import CONFIG, EXPLAINER

RUN_FOLDERS = ("outputs/runs", "outputs/python")
MOST_FOLDERS = 1000
"""Upper bound on the folders looked at in one place."""


def fetch(name: str, uri: str, folder: Path) -> Path:
    """The folder of a run: given as such, or copied from the store by run id or model URI."""
    if _is_run(Path(name)):
        require_own_version(Path(name))
        return Path(name)
    from tpd.tracking.downloads import download  # mlflow is slow to import

    try:
        return download(name, uri, folder)
    except VersionError:
        raise
    except ValueError as error:
        raise ValueError(f"{error}{did_you_mean_run(name)}") from error


def did_you_mean_run(name: str) -> str:
    """A hint with the folder of a run whose name is closest to this one; empty if none is close."""
    places = (Path(name).parent, *map(Path, RUN_FOLDERS))
    inside = (sorted(place.iterdir())[:MOST_FOLDERS] for place in places if place.is_dir())
    known = {each.name: each for folders in inside for each in folders if _is_run(each)}
    near = get_close_matches(Path(name).name, known, 1)
    return f"; did you mean run={known[near[0]]}?" if near else ""


def _is_run(folder: Path) -> bool:
    return any((folder / file).exists() for file in (CONFIG, f"{EXPLAINER}/{DESCRIPTION}"))
