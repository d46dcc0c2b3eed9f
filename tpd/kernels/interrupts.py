"""Makes Ctrl-C work inside compiled code."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Wrap calls of compiled code, which turns KeyboardInterrupt into SystemError; this turns it back."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise
