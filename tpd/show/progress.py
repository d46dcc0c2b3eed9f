"""Progress bars, where somebody is watching."""

import os
import sys
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tpd.core.types import TransitionsHandler
from tpd.guards.terminal import terminal


class ProgressBars:
    """Bars that advance with every batch of transitions; silent in CI, in pipes and in parallel jobs."""

    def __init__(self, wanted: bool = True) -> None:
        stream = terminal(sys.stderr)
        shown = wanted and stream.isatty() and not os.environ.get("CI")
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=Console(file=stream), disable=not shown)

    def __enter__(self) -> "ProgressBars":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def counter(self, description: str, total: int | None) -> Callable[[int], None]:
        """A new bar, and the function that moves it; no total where nobody knows it."""
        task = self._progress.add_task(description, total=total)
        return lambda count: self._progress.advance(task, count)

    def bar(self, description: str, total: int) -> TransitionsHandler:
        """A new bar, and the callback that moves it by the length of each batch."""
        advance = self.counter(description, total)
        return lambda transitions: advance(len(transitions))
