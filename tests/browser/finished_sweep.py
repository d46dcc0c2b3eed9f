"""What the tests in a browser look at."""

from dataclasses import dataclass
from pathlib import Path

from tpd.store.saved_runs import SavedRun


@dataclass(frozen=True)
class Sweep:
    """A finished sweep in a store."""

    store: str
    experiment: str
    parent: str
    run: SavedRun
    """The job whose report the parent has."""
    report: Path
