"""Sentences about turning points."""

from collections.abc import Mapping
from typing import Any

from tpd.answers.sentences.formatting import percent
from tpd.core.outcomes import FIRST
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer


def turning_point_in_words(point: Mapping[Any, Any], explainer: Explainer, env: Environment) -> str:
    """A row of `turning_points` as text. The cause is the event for a partition, else the action."""
    cause = str(point["happened"]) if explainer.legend.partition else env.name_of_action(point["action"])
    when = f"within {explainer.predictor.horizon} steps"
    change = turned(cause, str(point["outcome"]), when, point["before"], point["after"], bool(point["once"]))
    return f"step {point['step']}: {change}"


def turned(cause: str, outcome: str, when: str, before: float, after: float, once: bool = True) -> str:
    """For example "after traffic, the probability of failure within 30 steps rises from 8 to 23 %".

    cause: what happened at the step.
    when: the time range of the probability.
    once: whether the numbers are probabilities, not fractions of steps.
    """
    kind = "probability of" if once else "share of steps with"
    what = f"the {kind} {outcome.removeprefix(FIRST) if once else outcome}"
    moves = "rises" if after > before else "falls"
    begin = percent(before).removesuffix(" %")
    turns = f"{what} {when} {moves} from {begin} to {percent(after)}"
    return f"after {cause}, {turns}" if cause else turns
