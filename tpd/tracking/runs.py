"""The base classes of tracking, `Tracking` and `Run`, which track nothing."""

import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

LOOPBACK = "127.0.0.1"
UNQUOTED = r"[^/:@'\"`]+"
THIS_RUN, THIS_EXPERIMENT = "@run@", "@experiment@"
"""Placeholders in notes for ids that only the store knows; replaced on delivery."""
TRAINING = "workflowType=machine_learning"  # the UI's pages for training, not for chats
ENV, POLICY, EXPLAINER, SEED = ABOUT = ("env", "policy", "explainer", "seed")
"""Tags that describe a run; registered model versions have them too."""
PROGRAM = "program"
"""The tag with the name of the program that a run is of; if it is missing, that is `tpd-run`."""


class Run:
    """A tracked run; leaving its context ends it. The base class tracks nothing."""

    @property
    def id(self) -> str | None:
        """None if it is not in the store."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end("FINISHED" if kind is None else "FAILED" if issubclass(kind, Exception) else "KILLED")

    def end(self, status: str) -> None:
        """End the run as FINISHED, FAILED or KILLED."""

    def abandon(self) -> None:
        """End the run and its running child runs as KILLED."""

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Log numbers; non-finite ones are left out."""

    def data(self, name: str, digest: str, rows: int, source: str | None = None) -> None:
        """Log the transitions that are learned from, and the file or folder that holds them, if any."""

    def table(self, path: Path) -> None:
        """Log a file as a table, replacing one of the same name; `tpd.store.tables` writes such files."""

    def files(self, path: Path, folder: str | None = None) -> None:
        """Log a file, or all files of a folder."""

    def model(self, folder: Path, name: str) -> None:
        """Log a saved explainer as a model."""

    def describe(self, parts: Sequence[str | Path]) -> None:
        """Set the description of the run in Markdown; a path is a picture to show."""

    def page(self, run_id: str | None = None, file: str | None = None) -> str:
        """The address of this run, of another run of its experiment, or of a logged file; for notes."""
        return ""

    def serve_command(self, name: str) -> list[str]:
        """The command that serves a logged model; for notes."""
        return []


class Tracking:
    """A tracking store. The base class tracks nothing."""

    def open(
        self, name: str, config: Mapping[str, Any], tags: Mapping[str, str], parent: str | None = None
    ) -> Run:
        """Start a run."""
        return Run()

    def ui_command(self) -> str | None:
        """The command that shows the runs."""
        return None

    @property
    def address(self) -> str:
        """The address at which that command shows them."""
        return ""

    def keeps_in(self, uri: str) -> bool:
        """Whether this URI is the store of the runs."""
        return False


def page(run_id: str | None = None, file: str | None = None) -> str:
    """The address of a run, or of a file of it, in the UI; with placeholders for unknown ids."""
    shown = "" if file is None else f"/artifacts/{urllib.parse.quote(file)}"
    return f"#/experiments/{THIS_EXPERIMENT}/runs/{run_id or THIS_RUN}{shown}?{TRAINING}"


def serve_command(uri: str, name: str) -> list[str]:
    """The command that serves a model of a run; with placeholders for unknown ids."""
    store, model = f"MLFLOW_TRACKING_URI={uri}", f"runs:/{THIS_RUN}/{name}"
    options = ["--env-manager", "local", "--host", LOOPBACK, "--port", "5001"]
    return ["env", store, "mlflow", "models", "serve", *options, "--model-uri", model]
