"""Stops libraries from reading settings in the working directory, which may belong to somebody else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Hide a file of the working directory while a library is imported."""
    exists = os.path.exists

    def found(path: Any) -> bool:
        return path != name and exists(path)

    os.path.exists = found
    try:
        yield
    finally:
        os.path.exists = exists
