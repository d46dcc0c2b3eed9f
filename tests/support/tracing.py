"""Coverage: what tests do with libraries alone need not be traced, which halves their speed."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def untraced() -> Iterator[None]:
    """For code that runs nothing of this project."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


def as_untraced(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, untraced."""

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        with untraced():
            return function(*args, **kwargs)

    return called
