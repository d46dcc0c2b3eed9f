"""Turning points: the steps of recorded episodes at which what is expected of the future changes most.

Before a step stands what was expected when its action was taken; after it, what is expected of the same
stretch of time once its outcome and the next action are known. Both forecast the same, so that they agree
as long as everything goes as expected. An explainer that learned little changes its mind without a cause.
"""

import numpy as np
import pandas as pd

from tpd.core.explanation import Explanation, plain
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import BoolArray, DiscretePolicy, Episodes, FloatArray, IntArray, Transitions
from tpd.predictors.explainer import Explainer
from tpd.sources.episodes import Recording

END = "end of the episode"


def turning_points(explainer: Explainer, recording: Recording) -> pd.DataFrame:
    """One row for each recorded step whose future is recorded too, the largest changes first.

    `change` is that of the one `outcome` that changed most: how likely it is within the horizon or, if its
    first occurrence is not explained, in which share of the steps it happens. So it lies between 0 and 1
    whatever the outcomes; what is not learned is left out. `chance` is the part of `after - before` due to
    what the step led to, `choice` the part due to the action chosen then. NaN is unknown.
    """
    if explainer.predictor.horizon < 2:
        raise ValueError("turning points need a horizon of 2 steps or more")
    episodes, legend = recording.episodes, explainer.legend
    every = explainer.explain(episodes.transitions.observation, episodes.transitions.action)
    rows = _followed(episodes)
    steps, alive = episodes.transitions[rows], ~episodes.transitions.terminated[rows]
    seen = _seen(legend, steps, recording.happened[rows])
    before = _forecast(every[rows], every.horizon)
    after = _continued(every, seen, alive, _forecast(every[rows[alive] + 1], every.horizon - 1))
    between = _continued(every, seen, alive, _before_choosing(explainer, steps[alive]))
    names = forecast_names(legend)
    told = _told(every[rows])
    most, change = _largest(np.where(told[:, :-1], np.abs(after - before)[:, :-1], 0))
    change[~told[:, :-1].any(axis=1)] = np.nan
    at = np.arange(len(rows)), most
    episode = np.searchsorted(episodes.begins, rows, side="right") - 1
    found = pd.DataFrame(
        {
            "episode": episode,
            "step": rows - episodes.begins[episode],
            "action": plain(steps.action),
            "happened": _happened(legend, recording.happened[rows]),
            "change": change,
            "outcome": [
                None if unknown else names[k] for k, unknown in zip(most, np.isnan(change), strict=True)
            ],
            "before": before[at],
            "after": after[at],
            "chance": (between - before)[at],
            "choice": (after - between)[at],
            "return_before": np.where(told[:, -1], before[:, -1], np.nan),
            "return_after": np.where(told[:, -1], after[:, -1], np.nan),
        }
    )
    return found.sort_values("change", ascending=False, kind="stable", ignore_index=True)


def forecast_names(legend: Legend) -> list[str]:
    """What is forecast: first occurrences, events of which none is explained, and the end."""
    return [*(name for name in legend.events if FIRST + name not in legend.events), END]


def _followed(episodes: Episodes) -> IntArray:
    """[step]: the steps after which it is recorded how the episode goes on, or that it terminated."""
    last = np.zeros(len(episodes.transitions), dtype=np.bool_)
    last[[*(episodes.begins[1:] - 1), -1]] = True
    return np.flatnonzero(~last | episodes.transitions.terminated)


def _forecast(explanation: Explanation, steps: int) -> FloatArray:
    """[batch, event + 1]: what is expected within so many steps, and last the return; NaN if unknown."""
    legend, until = explanation.legend, steps - 1
    columns = [legend.names.index(name) for name in forecast_names(legend)[:-1]]
    sums = explanation.expected[:, :steps, columns].sum(axis=1)
    shares = np.where(_once(legend)[:-1], sums, sums / explanation.horizon)
    ended = 1 - explanation.running[:, until] - explanation.unknown[:, until]
    returns = np.full(len(explanation), np.nan)
    if legend.reward_bound is not None:
        returns = explanation.expected_return[:, until]
    found = np.column_stack([np.clip(np.column_stack([shares, ended]), 0, 1), returns])
    return np.where(explanation.foreseen[:, until, None], found, np.nan)


def _told(explanation: Explanation) -> BoolArray:
    """[batch, event + 1]: of which events, and last whether of the return, the forecast is learned."""
    columns = [explanation.legend.names.index(name) for name in forecast_names(explanation.legend)[:-1]]
    told = explanation.told
    return np.column_stack([told.by[:, -1, columns], told.ended[:, -1], told.returns[:, -1]])


def _once(legend: Legend) -> BoolArray:
    """[event]: whether it is asked if the event happens at all, not how often."""
    return np.array([name.startswith(FIRST) or name == END for name in forecast_names(legend)])


def _seen(legend: Legend, steps: Transitions, happened: FloatArray) -> FloatArray:
    """[batch, event + 1]: what the steps themselves brought, and last their reward."""
    columns = [legend.names.index(name) for name in forecast_names(legend)[:-1]]
    return np.column_stack([happened[:, columns], steps.terminated, steps.reward])


def _continued(every: Explanation, seen: FloatArray, alive: BoolArray, later: FloatArray) -> FloatArray:
    """[batch, event + 1]: what a step brought, and what is forecast of later where the episode goes on."""
    coming, once = np.zeros(seen.shape), _once(every.legend)
    coming[alive] = later
    events = np.where(
        once, np.where(seen[:, :-1] > 0, 1, coming[:, :-1]), seen[:, :-1] / every.horizon + coming[:, :-1]
    )
    return np.column_stack([events, seen[:, -1] + every.discount * coming[:, -1]])


def _before_choosing(explainer: Explainer, steps: Transitions) -> FloatArray:
    """[batch, event + 1]: the forecast after each step, over the actions that the policy may choose there.

    NaN where the policy cannot be asked for them.
    """
    if not isinstance(explainer.policy, DiscretePolicy):
        return np.full((len(steps), len(forecast_names(explainer.legend)) + 1), np.nan)
    probabilities = explainer.policy.probabilities(steps.next_observation)
    row, action = np.nonzero(probabilities)
    chosen = explainer.explain(steps.next_observation[row], action)
    weighted = probabilities[row, action][:, None] * _forecast(chosen, chosen.horizon - 1)
    sums = np.zeros((len(steps), weighted.shape[1]))
    np.add.at(sums, row, weighted)
    return sums


def _largest(changes: FloatArray) -> tuple[IntArray, FloatArray]:
    """[batch] and [batch]: which event changed most, and by how much; NaN where any change is unknown."""
    unknown = np.isnan(changes).any(axis=1)
    most = np.where(unknown, 0, np.nan_to_num(changes).argmax(axis=1))
    return most, np.where(unknown, np.nan, changes[np.arange(len(changes)), most])


def _happened(legend: Legend, happened: FloatArray) -> list[str]:
    """The events of each step, in words."""
    events = dict.fromkeys(name.removeprefix(FIRST) for name in legend.events)
    columns = [legend.names.index(name if name in legend.names else FIRST + name) for name in events]
    return [
        ", ".join(name for name, value in zip(events, row, strict=True) if value)
        for row in happened[:, columns]
    ]
