"""Escapes control characters in terminal output, since names may come from somebody else's files."""

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

UNSEEN = ("Cc", "Cf", "Co", "Cs")
"""Unicode categories of characters that control a terminal or reorder text."""
PLAIN = "\n\t"


def as_text(said: str) -> str:
    """The string with invisible characters escaped."""
    if said.isascii() and said.isprintable():
        return said
    return "".join(
        char.encode("unicode_escape").decode()
        if char not in PLAIN and unicodedata.category(char) in UNSEEN
        else char
        for char in said
    )


class TextStream:
    """A stream that escapes control characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, said: str) -> int:
        return self._stream.write(as_text(said))

    def isatty(self) -> bool:
        """False, so that nobody writes escape sequences to it."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def terminal(stream: TextIO) -> TextIO:
    """The underlying stream, for progress bars, which move the cursor and print no foreign names."""
    return stream._stream if isinstance(stream, TextStream) else stream


@contextmanager
def only_text(*names: str) -> Iterator[None]:
    """Escape control characters in these streams (`stdout`, `stderr`)."""
    streams = {name: getattr(sys, name) for name in names}
    for name, stream in streams.items():
        setattr(sys, name, TextStream(stream))
    try:
        yield
    except SystemExit as error:  # Python prints its message later, outside this context
        raise SystemExit(as_text(error.code) if isinstance(error.code, str) else error.code) from None
    finally:
        for name, stream in streams.items():
            setattr(sys, name, stream)
