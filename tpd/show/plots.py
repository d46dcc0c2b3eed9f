"""Plots of explanations: the only home of matplotlib.

Every function draws into the axes it is given. One colour per outcome, in every plot.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tpd.explanation import Contrast, Explanation
from tpd.outcomes import FIRST
from tpd.types import Array, FloatArray

# Okabe and Ito's palette, which colour-blind readers can tell apart; hatches when it runs out.
PALETTE = ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#0072B2", "#000000", "#F0E442")
HATCHES = ("", "///", "...", "xxx")
LINES = ("-", "--", ":", "-.")
CURVE_PANELS = {"pi_mse": "the policy's action", "foil_mse": "the other actions"}
# black and grey: the colours belong to the outcomes
CURVE_LOOKS = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "#888888", "linestyle": "--", "marker": "s"},
    {"color": "black", "linestyle": ":", "marker": "v"},
    {"color": "#888888", "linestyle": "-.", "marker": "D"},
)
ENDED_COLOUR = "#DDDDDD"
TOTAL: dict[str, Any] = {"color": "black", "linewidth": 1.2, "marker": ".", "markersize": 4}
ENDED_LABEL = "terminated/unknown"
SMALLEST_SHOWN = 0.005


def style(names: Sequence[str], name: str) -> dict[str, Any]:
    """The look of one outcome among the outcomes explained; a first occurrence looks like its event."""
    distinct = list(dict.fromkeys(other.removeprefix(FIRST) for other in names))
    rounds, position = divmod(distinct.index(name.removeprefix(FIRST)), len(PALETTE))
    return {"facecolor": PALETTE[position], "hatch": HATCHES[rounds % len(HATCHES)], "edgecolor": "white"}


def line_style(names: Sequence[str], name: str) -> dict[str, Any]:
    """The same outcome as a line: another dash for every hatch."""
    look = style(names, name)
    return {"color": look["facecolor"], "linestyle": LINES[HATCHES.index(look["hatch"])], "linewidth": 1.5}


def events(axes: Axes, explanation: Explanation, row: int) -> None:
    """What happens at each step, stacked to a probability of one."""
    _finish(axes, explanation, row)
    axes.set_ylim(0, 1)
    axes.set_ylabel("probability")
    if not explanation.known[row]:
        return
    partition = explanation.legend.partition
    columns = [explanation.legend.names.index(name) for name in partition]
    shares = np.clip(explanation.expected[row][:, columns], 0, 1).T
    ended = np.clip(explanation.ended[row], 0, 1)
    looks = [style(explanation.legend.names, name) for name in partition]
    looks.append({"facecolor": ENDED_COLOUR, "edgecolor": "white"})
    _stack(axes, np.vstack([shares, ended]), looks)
    _lines(axes, explanation, row, [name for name in explanation.legend.names if name not in partition])


def outcomes(axes: Axes, explanation: Explanation, row: int) -> None:
    """Expected outcomes that do not add up to one: a line each."""
    _finish(axes, explanation, row)
    axes.set_ylabel("expected outcome")
    if explanation.known[row]:
        _lines(axes, explanation, row, explanation.legend.names)


def reward_components(axes: Axes, explanation: Explanation, row: int) -> None:
    """The expected reward of each step, by where it comes from."""
    _finish(axes, explanation, row)
    axes.set_ylabel("expected reward")
    if explanation.known[row]:
        _signed_stack(axes, explanation.reward_components[row].T, explanation)
        axes.margins(y=0.1)
        axes.plot(explanation.expected_reward[row], **TOTAL)


def return_difference(axes: Axes, contrast: Contrast, row: int) -> None:
    """How far the fact is ahead of the foil by each step, by where that comes from."""
    unknown = contrast.foil if contrast.fact.known[row] else contrast.fact
    _finish(axes, unknown, row)
    axes.set_ylabel("return difference so far")
    if unknown.known[row]:
        _signed_stack(axes, contrast.component_returns[row].T, contrast.fact)
        axes.plot(contrast.expected_return[row], **TOTAL)


def page(rows: int, columns: int, lines: int) -> tuple[Figure, list[list[Axes]], Axes]:
    """A page of plots with room for a title, for lines of text below them, and for the key.

    The layout is worked out in inches: letting matplotlib find it takes as long as all the drawing.
    """
    top, text, bottom = 0.7, 0.22 * lines + 0.55, 0.55
    width, height = 5.6 * columns, 3.5 * rows + top + text + bottom
    figure = Figure(figsize=(width, height), dpi=110)
    inside = {"left": 0.75 / width, "right": 1 - 0.15 / width, "wspace": 0.18, "hspace": 0.3}
    layout = figure.add_gridspec(
        rows, columns, top=1 - top / height, bottom=(text + bottom) / height, **inside
    )
    grid = [[figure.add_subplot(layout[r, c]) for c in range(columns)] for r in range(rows)]
    room = figure.add_gridspec(1, 1, top=(text + bottom - 0.55) / height, bottom=bottom / height, **inside)
    return figure, grid, figure.add_subplot(room[0, 0])


def picture(axes: Axes, pixels: Array | None) -> None:
    """The environment's state, drawn by the environment."""
    axes.axis("off")
    if pixels is not None:
        axes.imshow(pixels)


def notes(axes: Axes, lines: Sequence[str]) -> None:
    """Sentences below the plots."""
    axes.axis("off")
    axes.text(0, 1, "\n".join(lines), transform=axes.transAxes, va="top", fontsize=9, linespacing=1.5)


def _stack(axes: Axes, heights: FloatArray, looks: Sequence[dict[str, Any]]) -> None:
    """Bars on top of each other: heights [layer, step]."""
    edges = np.arange(heights.shape[1] + 1) - 0.5
    tops = np.cumsum(heights, axis=0)
    for height, top, look in zip(heights, tops, looks, strict=True):
        if height.any():
            axes.stairs(top, edges, baseline=top - height, fill=True, linewidth=0, **look)


def _lines(axes: Axes, explanation: Explanation, row: int, names: Sequence[str]) -> None:
    outline = [patheffects.withStroke(linewidth=3.5, foreground="white")]
    for name in names:
        values = explanation.expected[row, :, explanation.legend.names.index(name)]
        line = line_style(explanation.legend.names, name)
        axes.plot(values, **line, marker=".", path_effects=outline)


def _signed_stack(axes: Axes, heights: FloatArray, explanation: Explanation) -> None:
    """Gains upwards from zero, losses downwards."""
    axes.use_sticky_edges = False
    looks = [style(explanation.legend.names, name) for name in explanation.component_names]
    _stack(axes, np.clip(heights, 0, None), looks)
    _stack(axes, np.clip(heights, None, 0), looks)
    axes.axhline(0, color="black", linewidth=0.8)


def _finish(axes: Axes, explanation: Explanation, row: int) -> None:
    axes.set_xlabel("steps ahead")
    axes.set_xlim(-0.5, explanation.horizon - 0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if not explanation.known[row]:
        _say_unknown(axes)


def _say_unknown(axes: Axes) -> None:
    box = {"facecolor": "white", "edgecolor": "black"}
    axes.text(0.5, 0.5, "never tried: unknown", transform=axes.transAxes, ha="center", bbox=box)


def key(figure: Figure, explanation: Explanation) -> None:
    """One legend for the whole figure, below it."""
    names = explanation.legend.names
    handles: list[Artist] = []
    for name in names:
        if explanation.legend.partition and name not in explanation.legend.partition:
            handles.append(Line2D([], [], label=name, marker=".", **line_style(names, name)))
        else:
            handles.append(Patch(label=name, **style(names, name)))
    if explanation.legend.partition:
        handles.append(Patch(label=ENDED_LABEL, facecolor=ENDED_COLOUR))
    if explanation.legend.reward_bound is not None:
        handles.append(Line2D([], [], label="total", color="black", marker="."))
    figure.legend(handles=handles, loc="lower center", ncols=5, frameon=False)


def over_seeds(
    title: str,
    groups: Mapping[str, Sequence[str]],
    explanations: Mapping[str, Explanation],
    row: int,
) -> Figure:
    """One line per seed, a column for each group of seeds that follow the same strategy."""
    if not groups:
        figure = Figure(figsize=(6, 2))
        figure.suptitle(title, fontsize=11)
        return figure
    names = next(iter(explanations.values())).legend.names
    stacked = np.stack([e.expected[row] for e in explanations.values()])
    seen = [k for k in range(len(names)) if np.abs(stacked[:, :, k]).max() > SMALLEST_SHOWN]
    shown = seen or list(range(len(names)))
    figure = Figure(figsize=(1.5 + 4.2 * len(groups), 1.2 + 1.45 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), len(groups), squeeze=False, sharex=True, sharey="row")
    for column, (heading, group) in enumerate(groups.items()):
        for line, k in enumerate(shown):
            axes = grid[line, column]
            for label in group:
                look = line_style(names, names[k]) | {"linewidth": 1, "alpha": 0.7}
                axes.plot(explanations[label].expected[row, :, k], **look)
            axes.spines[["top", "right"]].set_visible(False)
            low, high = min(0, stacked[:, :, k].min()), max(0, stacked[:, :, k].max())
            room = max(high - low, SMALLEST_SHOWN)
            axes.set_ylim(low - 0.03 * room, high + 0.05 * room)
            if column == 0:
                axes.set_ylabel(names[k])
        grid[0, column].set_title(heading, fontsize=10)
        grid[-1, column].set_xlabel("steps ahead")
    figure.suptitle(title, fontsize=11)
    return figure


def error_curves(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Mean square error, averaged over the outcomes, against the number of transitions learned from.

    Each curve has columns step, pi_mse and foil_mse. Its slope is fitted from a fiftieth of the steps on.
    """
    figure = Figure(figsize=(11, 5), layout="constrained")
    panels = zip(figure.subplots(1, 2, sharey=True), CURVE_PANELS.items(), strict=True)
    for axes, (metric, title) in panels:
        for (label, curve), look in zip(curves.items(), cycle(CURVE_LOOKS), strict=False):
            by_step = curve.groupby("step")[metric].mean()
            steps, errors = by_step.index.to_numpy(float), by_step.to_numpy(float)
            axes.loglog(steps, errors, **look, markersize=4, label=label + _slope(steps, errors))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("transitions learned from")
        axes.grid(True, which="major", color="#DDDDDD")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("mean square error of the probabilities")
    return figure


def _slope(steps: FloatArray, errors: FloatArray) -> str:
    late = steps >= steps.max() / 50
    if late.sum() < 3 or not (errors > 0).all():
        return ""
    return f" (slope {np.polyfit(np.log(steps[late]), np.log(errors[late]), 1)[0]:.2f})"
