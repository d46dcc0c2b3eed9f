"""Atomic writes: a file is complete or absent, even if its writer is killed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to `path` once everything is on disk."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text)
