"""A time budget: does as much work as fits into it, and reports what was left out."""

import math
import time
from collections.abc import Callable
from typing import TypeVar

Part = TypeVar("Part")
PILOT = 10
"""The first 1 / PILOT of the work measures how long the rest takes."""


class Budget:
    """A time budget in seconds, counted from its construction; `left_out` names the work that did not fit."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.left_out = list[str]()
        self._start = time.perf_counter()

    def parts(
        self, what: str, total: int, share: float, work: Callable[[int], Part], least: int = 1
    ) -> list[Part]:
        """Work on a pilot part of `total` items, then on as many others as fit into `share` of the budget.

        The number of items depends only on how long they take, never on their results.
        least: minimum number of items, even if the budget is exceeded.
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
        """A sentence about what was left out; empty if nothing was."""
        if not self.left_out:
            return ""
        done = ", ".join(self.left_out)
        return f"evaluation.seconds={self.seconds:g} was too short: only {done}; increase it to evaluate all"
