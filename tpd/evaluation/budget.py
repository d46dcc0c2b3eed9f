"""A budget of seconds: how much of some work fits into it, and what is left out."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

Part = TypeVar("Part")
PILOT = 10
"""The first of so many parts shows how long the others take."""


class Budget:
    """Seconds for a piece of work that can be cut short, counted from when it is made.

    left_out: what did not fit, in words.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left_out = list[str]()
        self._start = time.perf_counter()

    def parts(
        self, what: str, total: int, share: float, work: Callable[[int], Part], least: int = 1
    ) -> list[Part]:
        """A part of the work on `total` things, then of the rest as many as fit until that share is spent.

        How many are worked on depends on how long they take, and on nothing that they show.
        least: work on so many of them, whatever it takes.
        """
        if not total:
            return []
        pilot, begun = min(total, max(least, math.ceil(total / PILOT))), time.perf_counter()
        parts = [work(pilot)]
        now = time.perf_counter()
        seconds_left = share * self.seconds - (now - self._start)
        more = min(total - pilot, max(0, int(seconds_left / max(1e-9, (now - begun) / pilot))))
        if more:
            parts.append(work(more))
        if pilot + more < total:
            self.left_out.append(f"{pilot + more} of {total} {what}")
        return parts

    @property
    def remark(self) -> str:
        """What was left out, in words; empty if nothing was."""
        if not self.left_out:
            return ""
        done = ", ".join(self.left_out)
        return f"evaluation.seconds={self.seconds:g} ran out: only {done}"
