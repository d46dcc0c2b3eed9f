"""Progress of long work: bars in a terminal, otherwise a line every few seconds."""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tpd.core.types import TransitionsHandler
from tpd.guards.terminal import terminal

SECONDS_BETWEEN_LINES = 10.0


class ProgressBars:
    """Progress bars that advance with every batch of transitions.

    In a terminal they are bars; in a pipe, a log or a notebook a line is written every few seconds. Nothing
    is shown in CI and in parallel jobs. With `after`, bars appear after this many seconds and vanish at the
    end.
    """

    def __init__(self, wanted: bool = True, after: float = 0.0) -> None:
        self._stream = terminal(sys.stderr)
        self._wanted = wanted and not os.environ.get("CI")
        bars = self._wanted and self._stream.isatty()
        self._lines = self._wanted and not bars
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(file=self._stream)
        self._progress = Progress(*columns, console=console, disable=not bars, transient=after > 0)
        self._starts, self._started = time.monotonic() + after, False

    def __enter__(self) -> "ProgressBars":
        self._start_if_due()
        return self

    def _start_if_due(self) -> None:
        if not self._started and time.monotonic() >= self._starts:
            self._progress.start()
            self._started = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._started:
            self._progress.stop()

    def counter(self, description: str, total: int | None) -> Callable[[int], None]:
        """Add a bar and return the function that advances it; total is None if unknown."""
        task = self._progress.add_task(description, total=total)
        lines = _Lines(description, total, self._write if self._lines else None)

        def advance(count: int) -> None:
            self._start_if_due()
            self._progress.advance(task, count)
            lines.advance(count)

        return advance

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()


def counting(advance: Callable[[int], None]) -> TransitionsHandler:
    """A callback that advances a bar by the length of each batch."""
    return lambda transitions: advance(len(transitions))


class _Lines:
    """Writes a line every few seconds: how much is done, and the estimated remaining time."""

    def __init__(self, description: str, total: int | None, write: Callable[[str], None] | None) -> None:
        self._description, self._total, self._write = description, total, write
        self._begun, self._done = 0, 0
        self._start: float | None = None
        self._next = SECONDS_BETWEEN_LINES

    def advance(self, count: int) -> None:
        now = time.monotonic()
        self._done += count
        if self._start is None:  # work done before a resumption does not count for the speed
            self._start, self._begun = now, self._done
        if self._write is None or now - self._start < self._next:
            return
        self._next = now - self._start + SECONDS_BETWEEN_LINES
        self._write(self._said(now - self._start))

    def _said(self, seconds: float) -> str:
        if self._total is None:
            return f"{self._description}: {self._done:,}"
        made, left = self._done - self._begun, max(self._total - self._done, 0)
        rest = f", about {seconds * left / made:.0f} s left" if made and left else ""
        return f"{self._description}: {self._done:,} of {self._total:,}{rest}"
