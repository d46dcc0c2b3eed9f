"""Files that are whole or not there: whoever dies while writing leaves nothing that could be read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".unfinished"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Write to the path that is given here; it gets its name when everything is on the disk."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    try:
        yield unfinished
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file, all of it or nothing."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text)
