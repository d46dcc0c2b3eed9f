"""What is said in the terminal: text, whatever it holds."""

import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

UNSEEN = ("Cc", "Cf", "Co", "Cs")
"""Characters that a terminal obeys, or that change the order of others, by their categories in Unicode."""
PLAIN = "\n\t"


def as_text(said: str) -> str:
    """The same, with the characters that are not seen as their escapes."""
    if said.isascii() and said.isprintable():
        return said
    return "".join(
        char.encode("unicode_escape").decode()
        if char not in PLAIN and unicodedata.category(char) in UNSEEN
        else char
        for char in said
    )


class TextStream:
    """A stream to which only text is written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, said: str) -> int:
        return self._stream.write(as_text(said))

    def isatty(self) -> bool:
        """No: whoever writes for a terminal would write to it in its own sequences."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def terminal(stream: TextIO) -> TextIO:
    """The stream itself, for progress bars, which move the cursor and say nothing of others."""
    return stream._stream if isinstance(stream, TextStream) else stream


@contextmanager
def only_text(*names: str) -> Iterator[None]:
    """Names of environments, events, files and runs reach these streams (`stdout`, `stderr`) as text."""
    streams = {name: getattr(sys, name) for name in names}
    for name, stream in streams.items():
        setattr(sys, name, TextStream(stream))
    try:
        yield
    except SystemExit as error:  # Python writes what it says later, and elsewhere
        raise SystemExit(as_text(error.code) if isinstance(error.code, str) else error.code) from None
    finally:
        for name, stream in streams.items():
            setattr(sys, name, stream)
