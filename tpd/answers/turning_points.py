"""Turning points of recorded episodes: the steps at which the forecast of a decisive event changes most.

Before a step stands what was expected when its action was taken; after it, what is expected of the same
stretch of time once its outcome and the next action are known. Both forecast the same, so that they agree
as long as everything goes as expected. The step that ends an episode is none: nothing is forecast after it.
An explainer that learned little changes its mind without a cause; `turning_search` asks the simulator.
"""

import numpy as np
import pandas as pd

from tpd.answers.decisive import decisive_in, ending_in, plain_events
from tpd.core.explanation import Explanation, plain
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import BoolArray, DiscretePolicy, Episodes, FloatArray, IntArray, Transitions
from tpd.predictors.explainer import Explainer
from tpd.sources.episodes import Recording


def turning_points(explainer: Explainer, recording: Recording) -> pd.DataFrame:
    """One row for each recorded step that another one follows, the largest changes first.

    `change` is that of the one `outcome` that changed most, of the decisive events or, where there are none,
    of all: how likely it is within the horizon or, if it may happen often and its first occurrence is not
    explained, in which share of the steps it happens (`once` is then False). So it lies between 0 and 1
    whatever the outcomes; what is not learned is left out. `chance` is the part of `after - before` due to
    what the step led to, `choice` the part due to the action chosen then. NaN is unknown.
    """
    if explainer.predictor.horizon < 2:
        raise ValueError("turning points need a horizon of 2 steps or more")
    episodes, legend = recording.episodes, explainer.legend
    forecasts = _Forecasts(recording, legend)
    every = explainer.explain(episodes.transitions.observation, episodes.transitions.action)
    rows = _followed(episodes)
    steps, horizon = episodes.transitions[rows], every.horizon
    seen = forecasts.seen(steps, recording.happened[rows])
    before = forecasts.of(every[rows], horizon)
    after = forecasts.continued(every, seen, forecasts.of(every[rows + 1], horizon - 1))
    between = forecasts.continued(every, seen, _before_choosing(explainer, forecasts, steps))
    told = forecasts.told(every[rows])
    most, change = _largest(np.where(told[:, :-1], np.abs(after - before)[:, :-1], 0))
    change[~told[:, :-1].any(axis=1)] = np.nan
    at = np.arange(len(rows)), most
    episode = np.searchsorted(episodes.begins, rows, side="right") - 1
    found = pd.DataFrame(
        {
            "episode": episode,
            "step": rows - episodes.begins[episode],
            "action": plain(steps.action),
            "happened": happened_in_words(legend, recording.happened[rows]),
            "change": change,
            "outcome": [
                None if unknown else forecasts.names[k]
                for k, unknown in zip(most, np.isnan(change), strict=True)
            ],
            "once": forecasts.once[most],
            "before": before[at],
            "after": after[at],
            "chance": (between - before)[at],
            "choice": (after - between)[at],
            "return_before": np.where(told[:, -1], before[:, -1], np.nan),
            "return_after": np.where(told[:, -1], after[:, -1], np.nan),
        }
    )
    return found.sort_values("change", ascending=False, kind="stable", ignore_index=True)


class _Forecasts:
    """What is forecast of recorded episodes: arrays [batch, event + 1], of which the last is the return."""

    def __init__(self, recording: Recording, legend: Legend) -> None:
        decisive, ending = decisive_in(recording, legend), ending_in(recording, legend)
        self.names = forecast_names(legend, decisive)
        self._columns = [legend.names.index(name) for name in self.names]
        self.once = np.array([name.startswith(FIRST) or name in ending for name in self.names], np.bool_)
        """[event]: whether it is asked if the event happens at all, not in which share of the steps"""

    def of(self, explanation: Explanation, steps: int) -> FloatArray:
        """What is expected within so many steps; NaN if unknown."""
        until = steps - 1
        sums = explanation.expected[:, :steps, self._columns].sum(axis=1)
        shares = np.clip(np.where(self.once, sums, sums / explanation.horizon), 0, 1)
        returns = np.full(len(explanation), np.nan)
        if explanation.legend.reward_bound is not None:
            returns = explanation.expected_return[:, until]
        found = np.column_stack([shares, returns])
        return np.where(explanation.foreseen[:, until, None], found, np.nan)

    def told(self, explanation: Explanation) -> BoolArray:
        """Of which events, and last whether of the return, the forecast is learned."""
        told = explanation.told
        return np.column_stack([told.by[:, -1, self._columns], told.returns[:, -1]])

    def seen(self, steps: Transitions, happened: FloatArray) -> FloatArray:
        """What the steps themselves brought, and last their reward."""
        return np.column_stack([happened[:, self._columns], steps.reward])

    def continued(self, every: Explanation, seen: FloatArray, later: FloatArray) -> FloatArray:
        """What a step brought, and what is forecast of later."""
        now, coming = seen[:, :-1], later[:, :-1]
        events = np.where(self.once, np.where(now > 0, 1, coming), now / every.horizon + coming)
        return np.column_stack([events, seen[:, -1] + every.discount * later[:, -1]])


def forecast_names(legend: Legend, decisive: list[str]) -> list[str]:
    """What is forecast of the decisive events, or of all: their first occurrences, where explained."""
    names = decisive or list(plain_events(legend))
    return [FIRST + name if FIRST + name in legend.names else name for name in names]


def _followed(episodes: Episodes) -> IntArray:
    """[step]: the steps that another one of the same episode follows."""
    last = np.zeros(len(episodes.transitions), dtype=np.bool_)
    last[[*(episodes.begins[1:] - 1), -1]] = True
    return np.flatnonzero(~last)


def _before_choosing(explainer: Explainer, forecasts: _Forecasts, steps: Transitions) -> FloatArray:
    """[batch, event + 1]: the forecast after each step, over the actions that the policy may choose there.

    NaN where the policy cannot be asked for them.
    """
    if not isinstance(explainer.policy, DiscretePolicy):
        return np.full((len(steps), len(forecasts.names) + 1), np.nan)
    probabilities = explainer.policy.probabilities(steps.next_observation)
    row, action = np.nonzero(probabilities)
    chosen = explainer.explain(steps.next_observation[row], action)
    weighted = probabilities[row, action][:, None] * forecasts.of(chosen, chosen.horizon - 1)
    sums = np.zeros((len(steps), weighted.shape[1]))
    np.add.at(sums, row, weighted)
    return sums


def _largest(changes: FloatArray) -> tuple[IntArray, FloatArray]:
    """[batch] and [batch]: which event changed most, and by how much; NaN where any change is unknown."""
    unknown = np.isnan(changes).any(axis=1)
    most = np.where(unknown, 0, np.nan_to_num(changes).argmax(axis=1))
    return most, np.where(unknown, np.nan, changes[np.arange(len(changes)), most])


def happened_in_words(legend: Legend, happened: FloatArray) -> list[str]:
    """The events of each step, in words."""
    events = plain_events(legend)
    return [
        ", ".join(name for name, value in zip(events, row, strict=True) if value)
        for row in happened[:, list(events.values())]
    ]
