"""Turning points, told as a story."""

from collections.abc import Mapping
from typing import Any

from tpd.answers.sentences.formatting import percent
from tpd.core.outcomes import FIRST, Legend


def turning_point_in_words(point: Mapping[Any, Any], legend: Legend, horizon: int, action: str) -> str:
    """A row of `turning_points`: what happened, where one event always does, or the action by its name."""
    cause = str(point["happened"]) if legend.partition else action
    changed = str(point["outcome"]), f"within {horizon} steps", point["before"], point["after"]
    return turned(cause, *changed, once=bool(point["once"]))


def turned(cause: str, outcome: str, when: str, before: float, after: float, once: bool = True) -> str:
    """For example "traffic; the chance of failure within 30 steps rises from 8 to 23 %".

    cause: what happened at the step.
    when: of which stretch of time the chance is; `once`: that it happens at all, else in which share of it.
    """
    what = f"the chance of {outcome.removeprefix(FIRST)}" if once else f"the share of steps with {outcome}"
    moves = "rises" if after > before else "falls"
    begin = percent(before).removesuffix(" %")
    turns = f"{what} {when} {moves} from {begin} to {percent(after)}"
    return f"{cause}; {turns}" if cause else turns
