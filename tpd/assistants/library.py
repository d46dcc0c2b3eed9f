"""The runs that can be asked about: those below one folder, or in one MLflow store."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tpd.assistants.records import RunEntry
from tpd.guards.files import brief
from tpd.guards.settings import did_you_mean, shown
from tpd.store import run_descriptions, saved_runs
from tpd.store.explainers import DESCRIPTION
from tpd.store.run_folders import require_own_version
from tpd.store.saved_runs import EXPLAINER, SavedRun

MOST_RUNS, MOST_FOLDERS, DEEPEST = 100, 20_000, 8
MOST_OPEN = 4
LONGEST_NAME = 500


class OpenRun(NamedTuple):
    """A loaded run and its folder."""

    id: str
    saved: SavedRun
    folder: Path


class Library:
    """Finds and loads runs; no stored code is run.

    place: a folder, all runs below which can be asked about, or the URI of an MLflow store.
    trust: modules that may be imported for environments, events and policies.
    """

    def __init__(self, place: str, trust: Sequence[str] = ()) -> None:
        self.place, self._trust = place, tuple(trust)
        self._scratch = tempfile.TemporaryDirectory(prefix="tpd-mcp-")
        self._open: dict[tuple[str, int], OpenRun] = {}
        if not self.stored and not Path(place).is_dir():
            raise ValueError(f"there is no folder {place}: pass the folder of the runs, or an MLflow store")

    @property
    def stored(self) -> bool:
        """Whether the runs are in an MLflow store."""
        return "://" in self.place

    def entries(self) -> list[RunEntry]:
        """The runs that can be asked about, by the names that `read` accepts."""
        if not self.stored:
            return [_entry(name, folder) for name, folder in self._folders()]
        from tpd.tracking.downloads import list_tracked  # mlflow is slow to import

        return [
            RunEntry(run=run.id, title=run.name, env=run.about.get("env"), seed=run.about.get("seed"))
            for run in list_tracked(self.place, MOST_RUNS)
        ]

    def read(self, name: str) -> OpenRun:
        """Load a run by name; the last few are cached."""
        folder = self._download(name) if self.stored else self._folder(name)
        key = name, (folder / EXPLAINER / DESCRIPTION).stat().st_mtime_ns
        if key not in self._open:
            require_own_version(folder)
            self._open[key] = OpenRun(name, saved_runs.read(folder, self._trust), folder)
        self._open[key] = self._open.pop(key)  # most recently used last
        while len(self._open) > MOST_OPEN:
            del self._open[next(iter(self._open))]
        return self._open[key]

    def _folder(self, name: str) -> Path:
        """The folder of a run below `place`; refused if a link leads elsewhere."""
        root = Path(self.place).resolve()
        if 0 < len(name) <= LONGEST_NAME and name.isprintable():
            folder = (root / name).resolve()
            description = (folder / EXPLAINER / DESCRIPTION).resolve()  # resolves links
            if description.is_relative_to(root) and folder.is_relative_to(root) and description.is_file():
                return folder
        known = [each for each, _ in self._folders()]
        raise ValueError(
            f"there is no run {shown(name)} in {self.place}; list_runs lists all runs"
            f"{did_you_mean(name[:LONGEST_NAME], known)}"
        )

    def _download(self, name: str) -> Path:
        """The folder of a run from the store; copied once."""
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise ValueError(f"there is no run {shown(name)}; list_runs lists all runs")
        folder = Path(self._scratch.name) / hashlib.sha256(name.encode()).hexdigest()
        if not (folder / EXPLAINER / DESCRIPTION).is_file():
            from tpd.tracking.downloads import download

            return download(name, self.place, folder)
        return folder

    def _folders(self) -> Iterator[tuple[str, Path]]:
        """Name and folder of each run below `place`, sorted by name; links are not followed."""
        root, found = Path(self.place).resolve(), 0
        for seen, (path, below, _) in enumerate(os.walk(root)):
            folder = Path(path)
            below.sort()
            if (folder / EXPLAINER / DESCRIPTION).is_file() and not (folder / EXPLAINER).is_symlink():
                below.clear()
                found += 1
                yield folder.relative_to(root).as_posix(), folder
            if len(folder.relative_to(root).parts) >= DEEPEST:
                below.clear()
            if found >= MOST_RUNS or seen >= MOST_FOLDERS:
                return


def _entry(name: str, folder: Path) -> RunEntry:
    """The summary of a run, or the reason why it cannot be read."""
    try:
        about = run_descriptions.read(folder / EXPLAINER)
    except (ValueError, OSError) as error:
        return RunEntry(run=name, problem=brief(error))
    return RunEntry(run=name, title=about.title, env=about.env.id, seed=str(about.seed))
