"""Survival curves: the probability that an event has happened by each step, learned and by rollouts."""

import textwrap
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tpd.core.bands import ENOUGH_DRAWS, LEVEL, Band
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST
from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.predictors.explainer import Explainer
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.show import plots

MOMENTS = 4
SHOWN_STEPS = 10
HAPPENS = 0.05
"""An event counts as occurring if at least this fraction of rollouts has it after the first step."""
CHOICES = ("the agent's action", "foil")
GREY = "#555555"
WIDTH = 48
"""Characters per line of a title."""
POINTS: dict[str, Any] = {"fmt": "o", "markersize": 4, "markeredgecolor": "black", "elinewidth": 1.2}


def draw(explainer: Explainer, truth: MonteCarlo, cases: SampledCases, title: str) -> Figure | None:
    """The probability of each event by each step at a few moments: learned lines, rolled-out points, bands.

    None if no outcome is a first occurrence, or none occurs.
    """
    explanation = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS)
    names = plots.first_names(explanation)
    seen, limits = np.cumsum(cases.expected, axis=1), truth.happened_by(cases)
    columns = np.array([explanation.legend.names.index(name) for name in names], dtype=np.int64)
    comes = (seen[:, -1] - seen[:, 0])[:, columns] >= HAPPENS
    moments = _eventful(cases, np.asarray(comes))
    if not len(moments):
        return None
    cases_shown = np.concatenate([moments, moments + 1])
    columns = columns[comes[cases_shown].any(axis=0)]
    figure = plots.Page(figsize=(1 + 3.6 * len(moments), 7.6), dpi=110)
    grid = figure.subplots(2, len(moments), squeeze=False, sharex=True, sharey=True)
    for axes, case, row in zip(grid.flat, cases_shown, np.repeat([0, 1], len(moments)), strict=True):
        for k in columns:
            _explained(axes, explanation[case : case + 1], k)
            at = case, slice(None), k
            _rolled_out(axes, seen[at], Band(limits.low[at], limits.high[at]), _colour(explanation, k))
        action = f"{CHOICES[row]}: {truth.env.name_of_action(cases.actions[case])}"
        state = textwrap.wrap(truth.env.name_of_state(cases.observations[case]), WIDTH) if row == 0 else []
        axes.set_title("\n".join([*state, action]), fontsize=9)
        if not explanation.told.by[case][:, columns].any():
            axes.text(0.5, 0.5, plots.UNTOLD_WORDS, transform=axes.transAxes, ha="center", color=GREY)
        axes.set(xlabel="steps ahead", ylabel="probability by this step", ylim=(-0.03, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
        axes.label_outer()
    inches = figure.get_figwidth()
    figure.subplots_adjust(0.7 / inches, 0.15, 1 - 0.2 / inches, 0.85, wspace=0.08, hspace=0.16)
    figure.suptitle(title, fontsize=11)
    _key(figure, explanation, columns)
    return figure


def _eventful(cases: SampledCases, comes: BoolArray) -> IntArray:
    """[moment]: own actions with a foil, at some moments where an event occurs (`comes` [case, event])."""
    own = np.flatnonzero(~cases.own) - 1
    eventful = own[comes[own].any(axis=1) | comes[own + 1].any(axis=1)]
    chosen = np.linspace(0, len(eventful) - 1, min(MOMENTS, len(eventful))).round().astype(np.int64)
    return np.asarray(eventful[chosen])


def _colour(explanation: Explanation, column: int) -> str:
    names = explanation.legend.names
    return str(plots.style(names, names[column])["facecolor"])


def _explained(axes: Axes, explanation: Explanation, column: int) -> None:
    """The curve of one pair with its band; clipped to [0, 1], which a network's sum may leave."""
    colour = _colour(explanation, column)
    told = explanation.told.by[0, :, column]
    line = np.where(told, np.clip(np.cumsum(explanation.expected[0, :, column]), 0, 1), np.nan)
    line = plots.as_far_as_known(explanation, 0, line)
    if explanation.banded:
        ends = (np.clip(end[0, :, column], 0, 1) for end in explanation.sum_band())
        band = Band(*(np.where(told, end, np.nan) for end in ends))
        axes.fill_between(range(explanation.horizon), *band, color=colour, alpha=0.25, linewidth=0)
        line = plots.as_far_as_told(line, band.width)
    axes.plot(line, color=colour)


def _rolled_out(axes: Axes, seen: FloatArray, limits: Band, colour: str) -> None:
    """Points with their band [horizon] at some of the steps."""
    steps = np.unique(np.linspace(0, len(seen) - 1, SHOWN_STEPS).round().astype(np.int64))
    reach = np.abs([seen - limits.low, limits.high - seen])[:, steps]
    axes.errorbar(steps, seen[steps], reach, color=colour, **POINTS)


def _key(figure: Figure, explanation: Explanation, columns: IntArray) -> None:
    names = explanation.legend.names
    handles: list[Artist] = [
        Patch(label=names[k].removeprefix(FIRST), color=_colour(explanation, k)) for k in columns
    ]
    handles.append(Line2D([], [], label="learned", color=GREY))
    if explanation.banded:
        handles.append(Patch(label=f"its {LEVEL:.0%} band", alpha=0.25, color=GREY))
    rolled_out = f"rolled out, with its {LEVEL:.0%} band"
    handles.append(
        Line2D([], [], label=rolled_out, marker="o", markeredgecolor="black", linestyle="", color=GREY)
    )
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=9)
