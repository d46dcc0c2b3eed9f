"""Libraries that would take settings from a file in the working directory, which may be a stranger's."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hidden(name: str) -> Iterator[None]:
    """Let nobody find a file of this name in the working directory, while a library is imported."""
    exists = os.path.exists

    def found(path: Any) -> bool:
        return path != name and exists(path)

    os.path.exists = found
    try:
        yield
    finally:
        os.path.exists = exists
