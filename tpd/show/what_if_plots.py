"""Plots of returns under other rewards, and of the distribution of returns."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tpd.answers.what_if import BestAction, Fragility, returns_and_counts
from tpd.core.distributions import BoundedDistribution
from tpd.core.explanation import TOLERATED, Explanation
from tpd.show.plots import CURVE_LOOKS

EDGE = 0.001
"""Returns in tails below this probability are left out of the picture."""


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 4.5), layout="constrained", dpi=110)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _mark_now(axes: Axes, now: float, outcome: str) -> None:
    """Mark the current reward on the axis of an outcome's rewards."""
    axes.axvline(now, color="#999999", linewidth=0.8)
    axes.annotate("now", (now, 1), xycoords=("data", "axes fraction"), va="bottom", ha="center", fontsize=9)
    axes.set_xlabel(f"reward of {outcome}")


def against_reward(
    outcome: str, names: Sequence[str], explanation: Explanation, now: float, best: Sequence[BestAction]
) -> Figure:
    """Returns of all actions as functions of one outcome's reward, with the rest of the policy unchanged.

    best: the best action for each reward. Where the data do not determine it, the background is grey.
    """
    figure, axes = _panel()
    rewards = np.array([best[0].low, best[-1].high]) if best else np.array([now - 1, now + 1])
    worth_now, slope = returns_and_counts(explanation, outcome)
    looks = cycle(CURVE_LOOKS)
    for name, value, grows in zip(names, worth_now, slope, strict=True):
        look: dict[str, Any] = {**next(looks), "marker": ""}
        if np.isnan(value):
            axes.plot([], [], label=f"{name}: unknown", **look)
        else:
            axes.plot(rewards, value + grows * (rewards - now), label=name, **look)
    label: str | None = "the data do not say\nwhich action is best"
    for low, high, row in best:
        if row is None:
            axes.axvspan(low, high, color="#eeeeee", zorder=0, label=label)
            label = None
    _mark_now(axes, now, outcome)
    axes.set_ylabel("return, the rest of the policy unchanged")
    axes.legend(frameon=False, fontsize=9)
    return figure


def return_distributions(names: Sequence[str], observed: BoundedDistribution) -> Figure:
    """The cumulative distribution of the return within the horizon, for each action.

    If a little of the future is unknown, the line becomes an area that contains it; if much is unknown, there
    is no line.
    """
    figure, axes = _panel()
    known = observed.unknown <= TOLERATED
    for i, (name, style) in enumerate(zip(names, cycle(CURVE_LOOKS), strict=False)):
        look: dict[str, Any] = {**style, "marker": ""}
        if not known[i]:
            axes.plot([], [], label=f"{name}: unknown", **look)
            continue
        for side, label in ((observed.lowest, name), (observed.highest, None)):
            axes.step(side.values[i], np.cumsum(side.probabilities[i]), where="post", label=label, **look)
    if known.any():  # only the range of known returns
        low = float(np.nanmin(observed.quantile(EDGE).high[known]))
        high = float(np.nanmax(observed.quantile(1 - EDGE).low[known]))
        margin = 0.05 * (high - low) + 1e-9
        axes.set_xlim(low - margin, high + margin)
    else:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "too much of the future is unknown", transform=axes.transAxes, ha="center")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("return within the horizon")
    axes.set_ylabel("cumulative probability")
    axes.legend(frameon=False, fontsize=9)
    return figure


def fragile(outcome: str, now: float, found: Fragility) -> Figure:
    """The number of visited states in which another action overtakes, as a function of one reward."""
    figure, axes = _panel()
    count = max(1, len(found.reward))
    less, more = (np.sort(found.reward[side]) for side in (found.reward < now, found.reward >= now))
    for order in (less[::-1], more):
        share = np.arange(len(order) + 1) / count
        axes.step(np.concatenate([[now], order]), share, where="post", color="black", linewidth=1.5)
    _mark_now(axes, now, outcome)
    reach = max(5 * abs(now), 10.0)
    axes.set_xlim(now - reach, now + reach)
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of visited states where\nanother action has overtaken")
    return figure
