"""Turning points of recorded episodes: steps at which the forecast of a decisive event changes most.

The forecast before a step is made when its action is taken. The forecast after it covers the same steps, but
knows the step's outcome and the next action. Both predict the same quantity, so they agree as long as
everything goes as expected. The last step of an episode is no turning point, as nothing is forecast after it.
Forecasts of a poorly trained explainer change without a cause: changes are left out where the bands are as
wide as those of uncertain forecasts. `turning_search` uses the simulator instead.
"""

import numpy as np
import pandas as pd

from tpd.answers.decisive import decisive_in, ending_in, plain_events
from tpd.core.bands import ENOUGH_DRAWS, UNTOLD
from tpd.core.explanation import Explanation, plain
from tpd.core.outcomes import FIRST, Legend
from tpd.core.pairs import IN_MEMORY, blocks
from tpd.core.types import BoolArray, DiscretePolicy, Episodes, FloatArray, IntArray, Transitions
from tpd.predictors.explainer import Explainer
from tpd.sources.episodes import Recording

LEAST = 0.05
"""Smaller changes of probability are not checked for wide bands."""


def turning_points(explainer: Explainer, recording: Recording) -> pd.DataFrame:
    """One row for each step except the last of an episode, largest changes first; empty without events.

    `outcome` is the event whose forecast changed most, among the decisive events or, without any, among all.
    `change` is the size of the change of its probability within the horizon. If the event can repeat and its
    first occurrence is not explained, the fraction of steps with the event is used instead (`once` is then
    False). So `change` lies between 0 and 1. Forecasts that are not learned, or uncertain, are left out.
    `chance` is the part of `after - before` due to the outcome of the step, `choice` the part due to the next
    action. NaN is unknown.
    """
    if explainer.predictor.horizon < 2:
        raise ValueError("turning points need a horizon of at least 2 steps")
    episodes, legend = recording.episodes, explainer.legend
    forecasts = _Forecasts(recording, legend)
    every = explainer.explain(episodes.transitions.observation, episodes.transitions.action)
    rows = _followed(episodes) if forecasts.names else np.zeros(0, dtype=np.int64)
    steps, horizon = episodes.transitions[rows], every.horizon
    seen = forecasts.seen(steps, recording.happened[rows])
    before = forecasts.of(every[rows], horizon)
    after = forecasts.continued(every, seen, forecasts.of(every[rows + 1], horizon - 1))
    between = forecasts.continued(every, seen, _before_choosing(explainer, forecasts, steps))
    told = forecasts.told(every[rows])
    most, change = _largest(np.where(told[:, :-1], np.abs(after - before)[:, :-1], 0))
    change[~told[:, :-1].any(axis=1)] = np.nan
    if explainer.errors is not None:
        change[_vague(explainer, forecasts, every, rows, most, change)] = np.nan
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
    """Forecasts for recorded episodes: arrays [batch, event + 1]; the last column is the return."""

    def __init__(self, recording: Recording, legend: Legend) -> None:
        decisive, ending = decisive_in(recording, legend), ending_in(recording, legend)
        self.names = forecast_names(legend, decisive)
        self._columns = [legend.names.index(name) for name in self.names]
        self.once = np.array([name.startswith(FIRST) or name in ending for name in self.names], np.bool_)
        """[event]: whether the forecast is a probability, not a fraction of steps"""

    def of(self, explanation: Explanation, steps: int) -> FloatArray:
        """The forecasts within this number of steps; NaN if unknown."""
        until = steps - 1
        sums = explanation.expected[:, :steps, self._columns].sum(axis=1)
        shares = np.clip(np.where(self.once, sums, sums / explanation.horizon), 0, 1)
        returns = np.full(len(explanation), np.nan)
        if explanation.legend.reward_bound is not None:
            returns = explanation.expected_return[:, until]
        found = np.column_stack([shares, returns])
        return np.where(explanation.foreseen[:, until, None], found, np.nan)

    def widths(self, explanation: Explanation) -> FloatArray:
        """[batch, event]: the widths of the bands of these forecasts within the horizon."""
        band = explanation.sum_band(columns=self._columns)
        width = (band.high - band.low)[:, -1]
        return np.where(self.once, width, width / explanation.horizon)

    def told(self, explanation: Explanation) -> BoolArray:
        """Which forecasts of events, and last of the return, are learned."""
        told = explanation.told
        return np.column_stack([told.by[:, -1, self._columns], told.returns[:, -1]])

    def seen(self, steps: Transitions, happened: FloatArray) -> FloatArray:
        """The events of the steps themselves, and last their reward."""
        return np.column_stack([happened[:, self._columns], steps.reward])

    def continued(self, every: Explanation, seen: FloatArray, later: FloatArray) -> FloatArray:
        """The events of a step combined with the forecasts after it."""
        now, coming = seen[:, :-1], later[:, :-1]
        events = np.where(self.once, np.where(now > 0, 1, coming), now / every.horizon + coming)
        return np.column_stack([events, seen[:, -1] + every.discount * later[:, -1]])


def forecast_names(legend: Legend, decisive: list[str]) -> list[str]:
    """The outcomes to forecast: decisive events, or all; by their first occurrences if explained."""
    names = decisive or list(plain_events(legend))
    return [FIRST + name if FIRST + name in legend.names else name for name in names]


def _followed(episodes: Episodes) -> IntArray:
    """[step]: all steps except the last of each episode."""
    last = np.zeros(len(episodes.transitions), dtype=np.bool_)
    last[[*(episodes.begins[1:] - 1), -1]] = True
    return np.flatnonzero(~last)


def _vague(
    explainer: Explainer,
    forecasts: "_Forecasts",
    every: Explanation,
    rows: IntArray,
    most: IntArray,
    change: FloatArray,
) -> BoolArray:
    """[step]: whether the forecast that changed most has a band too wide to report, before or after."""
    vague, large = np.zeros(len(rows), dtype=np.bool_), np.flatnonzero(np.nan_to_num(change) >= LEAST)
    for block in blocks(len(large), IN_MEMORY):
        some = large[block]
        at = np.concatenate([rows[some], rows[some] + 1])
        width = forecasts.widths(explainer.with_known_errors(every[at], ENOUGH_DRAWS))
        wide = width[np.arange(len(at)), np.tile(most[some], 2)] > UNTOLD
        vague[some] = wide.reshape(2, -1).any(axis=0)
    return vague


def _before_choosing(explainer: Explainer, forecasts: _Forecasts, steps: Transitions) -> FloatArray:
    """[batch, event + 1]: the forecast after each step, averaged over the policy's next actions.

    NaN if the policy has no action probabilities.
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
    """[batch] and [batch]: the event that changed most, and its change; NaN if any change is unknown."""
    if not changes.size:
        return np.zeros(len(changes), dtype=np.int64), np.full(len(changes), np.nan)
    unknown = np.isnan(changes).any(axis=1)
    most = np.where(unknown, 0, np.nan_to_num(changes).argmax(axis=1))
    return most, np.where(unknown, np.nan, changes[np.arange(len(changes)), most])


def happened_in_words(legend: Legend, happened: FloatArray) -> list[str]:
    """The events of each step, as text."""
    events = plain_events(legend)
    return [
        ", ".join(name for name, value in zip(events, row, strict=True) if value)
        for row in happened[:, list(events.values())]
    ]
