"""The contracts of tracking: what keeps runs, what a run can be told, and a version that keeps nothing."""

import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import pandas as pd

LOOPBACK = "127.0.0.1"
UNQUOTED = r"[^/:@'\"`]+"
THIS_RUN, THIS_EXPERIMENT = "@run@", "@experiment@"
"""In a note, and until it is delivered, for what only the store knows."""
TRAINING = "workflowType=machine_learning"  # the UI's pages for training, not for chats
ENV, POLICY, EXPLAINER, SEED = ABOUT = ("env", "policy", "explainer", "seed")
"""The tags that say what a run is about; registered versions have them too."""


class Tracking(Protocol):
    """Where runs are kept."""

    def open(
        self, name: str, config: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None
    ) -> "Run":
        """Start a run."""

    def ui_command(self) -> str | None:
        """What to type to look at the runs."""

    @property
    def address(self) -> str:
        """Where the runs are then shown."""

    def keeps_in(self, uri: str) -> bool:
        """Whether that is the store of the runs."""


class Run(Protocol):
    """One run being kept; leaving its context ends it."""

    @property
    def id(self) -> str | None: ...

    def __enter__(self) -> "Run": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def end(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED."""

    def abandon(self) -> None:
        """End the run and those under it that still run, as KILLED."""

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Keep numbers; those that are not finite are left out."""

    def table(self, frame: pd.DataFrame, name: str) -> None:
        """Keep a table."""

    def files(self, path: Path, folder: str | None = None) -> None:
        """Keep a file, or all files of a folder."""

    def model(self, folder: Path, name: str) -> None:
        """Keep a saved explainer as a model."""

    def describe(self, parts: Sequence[str | Path]) -> None:
        """Say in markdown what the run is; a path is a picture to be shown."""

    def page(self, run_id: str | None = None, file: str | None = None) -> str:
        """Where this run or another of its experiment is shown, or a file that it keeps; for notes."""

    def serve_command(self, name: str) -> list[str]:
        """The words to type to serve a model that was kept; for notes."""


class NoTracking:
    """Keeps nothing beyond the files of the output folder."""

    def open(
        self, name: str, config: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None
    ) -> "NoRun":
        return NoRun()

    def ui_command(self) -> None:
        return None

    @property
    def address(self) -> str:
        return ""

    def keeps_in(self, uri: str) -> bool:
        return False


class NoRun:
    """A run that is not kept."""

    id: str | None = None

    def __enter__(self) -> "NoRun":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def end(self, status: str) -> None:
        return None

    def abandon(self) -> None:
        return None

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        return None

    def table(self, frame: pd.DataFrame, name: str) -> None:
        return None

    def files(self, path: Path, folder: str | None = None) -> None:
        return None

    def model(self, folder: Path, name: str) -> None:
        return None

    def describe(self, parts: Sequence[str | Path]) -> None:
        return None

    def page(self, run_id: str | None = None, file: str | None = None) -> str:
        return ""

    def serve_command(self, name: str) -> list[str]:
        return []


def page(run_id: str | None = None, file: str | None = None) -> str:
    """Where the UI shows a run, or a file that it keeps, before the store is asked."""
    shown = "" if file is None else f"/artifacts/{urllib.parse.quote(file)}"
    return f"#/experiments/{THIS_EXPERIMENT}/runs/{run_id or THIS_RUN}{shown}?{TRAINING}"


def serve_command(uri: str, name: str) -> list[str]:
    """The words to type to serve a model of a run, before the store is asked."""
    store, model = f"MLFLOW_TRACKING_URI={uri}", f"runs:/{THIS_RUN}/{name}"
    options = ["--env-manager", "local", "--host", LOOPBACK, "--port", "5001"]
    return ["env", store, "mlflow", "models", "serve", *options, "--model-uri", model]
