"""MLflow stores that are there at once: making one takes seconds of migrations, copying it nothing."""

import functools
import shutil
import tempfile
from pathlib import Path

from tests.support.tracing import untraced
from tpd.tracking import backend_store

make = backend_store._make
"""As it is done outside of tests."""


@functools.cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """A folder with a store of which all others of this process are copies; it goes when the process ends."""
    folder = tempfile.TemporaryDirectory()
    with untraced():
        make(Path(folder.name) / "mlflow.db")
    return folder


def copy(path: Path) -> None:
    """Leave a new store there, as `make` does."""
    shutil.copyfile(Path(_made().name) / "mlflow.db", path)
