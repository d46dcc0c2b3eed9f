"""Plots of explanations: the only home of matplotlib.

Every function draws into the axes it is given. One colour per outcome, in every plot.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import patheffects
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, StepPatch

from tpd import colours
from tpd.bands import LEVEL, Band
from tpd.explanation import Contrast, Explanation
from tpd.outcomes import FIRST
from tpd.types import Array, FloatArray

mpl.rcParams["axes.titley"] = 1.0  # to look for a free place for titles takes a tenth of a page's drawing

HATCHES = ("", "///", "...", "xxx")  # when the colours run out
LINES = ("-", "--", "-.", (0, (1, 1)))
CURVE_PANELS = {"pi_mse": "the policy's action", "foil_mse": "the other actions"}
# black and grey: the colours belong to the outcomes
CURVE_LOOKS = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "#888888", "linestyle": "--", "marker": "s"},
    {"color": "black", "linestyle": ":", "marker": "v"},
    {"color": "#888888", "linestyle": "-.", "marker": "D"},
)
ENDED_COLOUR = "#DDDDDD"
UNKNOWN: dict[str, Any] = {"facecolor": "none", "edgecolor": "#999999", "hatch": "////", "linewidth": 0}
GUIDE: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 0.8}
TOTAL: dict[str, Any] = {"color": "black", "linewidth": 1.2, "marker": ".", "markersize": 4}
TOTAL_BAND: dict[str, Any] = {"color": "black", "alpha": 0.15, "linewidth": 0, "zorder": 3}
SMALLEST_SHOWN = 0.005
KEY_COLUMNS = 5
MOST_FILLED = 3
"""Bands that can be told apart where they lie over each other."""


def style(names: Sequence[str], name: str) -> dict[str, Any]:
    """The look of one outcome among the outcomes explained; a first occurrence looks like its event."""
    hatch = HATCHES[colours.rounds(names, name) % len(HATCHES)]
    return {"facecolor": colours.colour(names, name), "hatch": hatch, "edgecolor": "white"}


def line_style(names: Sequence[str], name: str) -> dict[str, Any]:
    """The same outcome as a line: another dash for every hatch, and dots for first occurrences."""
    look = style(names, name)
    dash = ":" if name.startswith(FIRST) else LINES[HATCHES.index(look["hatch"])]
    return {"color": look["facecolor"], "linestyle": dash, "linewidth": 1.5}


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
    _lines(axes, explanation, row, [name for name in _each_time(explanation) if name not in partition])


def outcomes(axes: Axes, explanation: Explanation, row: int) -> None:
    """Events that do not add up to one, a line each; where there are none, all outcomes."""
    _finish(axes, explanation, row)
    shown = _each_time(explanation)
    axes.set_ylabel("probability" if explanation.legend.events else "expected outcome")
    if explanation.legend.events:
        axes.set_ylim(-0.03, 1.03)
    if explanation.known[row]:
        _lines(axes, explanation, row, shown)
        if explanation.draws is not None:
            _bands(axes, explanation, row, shown, explanation[row : row + 1].band())


def _each_time(explanation: Explanation) -> list[str]:
    """The events at each step, without first occurrences; where there are no events, all outcomes."""
    legend = explanation.legend
    return [name for name in legend.events or legend.names if not name.startswith(FIRST)]


def first_names(explanation: Explanation) -> list[str]:
    """The outcomes that are first occurrences, so that their sum is a probability too."""
    return [name for name in explanation.legend.names if name.startswith(FIRST)]


def happened_by(axes: Axes, explanation: Explanation, row: int) -> None:
    """How likely each event has happened by then, from its first occurrence."""
    _finish(axes, explanation, row)
    axes.set_ylabel("has happened by then")
    axes.set_ylim(-0.03, 1.03)
    if explanation.known[row]:
        sums = np.clip(np.cumsum(explanation.expected[row], axis=0), 0, 1)  # a network's may leave it
        _lines(axes, explanation, row, first_names(explanation), sums)
        if explanation.draws is not None:
            _bands(axes, explanation, row, first_names(explanation), explanation[row : row + 1].sum_band())


def other_names(explanation: Explanation) -> list[str]:
    """The outcomes that are neither events nor part of the reward, if there are events to set apart."""
    legend = explanation.legend
    pairs = zip(legend.names, legend.weights, strict=True)
    return [name for name, weight in pairs if legend.events and name not in legend.events and weight is None]


def other_outcomes(axes: Axes, explanation: Explanation, row: int) -> None:
    """What is neither an event nor part of the reward: a line each."""
    _finish(axes, explanation, row)
    axes.set_ylabel("expected value")
    if explanation.known[row]:
        _lines(axes, explanation, row, other_names(explanation))


def reward_components(axes: Axes, explanation: Explanation, row: int) -> None:
    """The expected reward of each step, by where it comes from."""
    _finish(axes, explanation, row)
    axes.set_ylabel("expected reward")
    if explanation.known[row]:
        _signed_stack(axes, explanation.reward_components[row].T, explanation)
        axes.margins(y=0.1)
        axes.plot(_as_far_as_known(explanation, row, explanation.expected_reward[row]), **TOTAL)


def event_difference(axes: Axes, contrast: Contrast, row: int) -> None:
    """How much likelier each event is after the fact than after the foil, step by step."""
    _finish(axes, contrast, row)
    axes.set_ylabel("difference of probabilities" if contrast.fact.legend.events else "difference")
    axes.axhline(0, color="black", linewidth=0.8)
    if contrast.known[row]:
        names = contrast.fact.legend.names
        largest = np.abs(contrast.expected[row]).max(axis=0)
        shown = [name for name in _each_time(contrast.fact) if largest[names.index(name)] > SMALLEST_SHOWN]
        for name in shown:
            values = contrast.expected[row, :, names.index(name)]
            axes.plot(_as_far_as_known(contrast, row, values), **line_style(names, name), marker=".")
        if contrast.drawn:
            band = contrast.band()
            only = slice(row, row + 1)
            _bands(axes, contrast.fact, row, shown, Band(band.low[only], band.high[only]))


def return_difference(axes: Axes, contrast: Contrast, row: int) -> None:
    """How far the fact is ahead of the foil by each step, by where that comes from."""
    _finish(axes, contrast, row)
    axes.set_ylabel("return difference so far")
    if contrast.known[row]:
        _signed_stack(axes, contrast.component_returns[row].T * contrast.foreseen[row], contrast.fact)
        axes.plot(_as_far_as_known(contrast, row, contrast.expected_return[row]), **TOTAL)
        if contrast.drawn:
            band = contrast.return_band()
            axes.fill_between(range(contrast.horizon), band.low[row], band.high[row], **TOTAL_BAND)


def page(rows: int, columns: int, lines: int, entries: int) -> tuple[Figure, list[list[Axes]], Axes]:
    """A page of plots with room for a title, for lines of text below them, and for the entries of the key.

    The layout is worked out in inches: letting matplotlib find it takes as long as all the drawing.
    """
    top, text, bottom = 0.7, 0.22 * lines + 0.55, 0.23 * math.ceil(entries / KEY_COLUMNS) + 0.2
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
        if height.any():  # no `stairs`: to work out their limits takes longer than to draw them
            high, low = (np.append(ends, ends[-1]) for ends in (top, top - height))
            axes.fill_between(edges, low, high, step="post", linewidth=0, **look)


def _lines(
    axes: Axes,
    explanation: Explanation,
    row: int,
    names: Sequence[str],
    values: FloatArray | None = None,
) -> None:
    """A line for each outcome named: what is expected of it, or other values [horizon, outcome]."""
    values = explanation.expected[row] if values is None else values
    outline = [patheffects.withStroke(linewidth=3.5, foreground="white")]
    for name in names:
        column = values[:, explanation.legend.names.index(name)]
        line = line_style(explanation.legend.names, name.removeprefix(FIRST))
        axes.plot(_as_far_as_known(explanation, row, column), **line, marker=".", path_effects=outline)


def _bands(axes: Axes, explanation: Explanation, row: int, names: Sequence[str], band: Band) -> None:
    """The band [1, horizon, outcome] around the line of each outcome named.

    Many would cover each other, so each is then shown as bars: at other steps, and where it is widest.
    """
    for number, name in enumerate(names):
        k = explanation.legend.names.index(name)
        shade = line_style(explanation.legend.names, name)["color"]
        low, high = (end[0, :, k] for end in band)
        if len(names) <= MOST_FILLED:
            steps = np.arange(explanation.horizon)
            axes.fill_between(steps, low, high, color=shade, alpha=0.25, linewidth=0)
        elif not np.isnan(low).all():
            steps = np.append(np.arange(number, explanation.horizon, len(names)), np.nanargmax(high - low))
            axes.vlines(steps, low[steps], high[steps], color=shade, linewidth=3, alpha=0.5, zorder=1)


def _as_far_as_known(explained: Explanation | Contrast, row: int, values: FloatArray) -> FloatArray:
    """[step]: a line ends where the future is no longer known, and is none if too little data carries it."""
    return np.where(explained.foreseen[row] & ~explained.sparse[row], values, np.nan)


def _signed_stack(axes: Axes, heights: FloatArray, explanation: Explanation) -> None:
    """Gains upwards from zero, losses downwards."""
    axes.use_sticky_edges = False
    looks = [style(explanation.legend.names, name) for name in explanation.component_names]
    _stack(axes, np.clip(heights, 0, None), looks)
    _stack(axes, np.clip(heights, None, 0), looks)
    axes.axhline(0, color="black", linewidth=0.8)


def _finish(axes: Axes, explained: Explanation | Contrast, row: int) -> None:
    axes.set_xlabel("steps ahead")
    axes.set_xlim(-0.5, explained.horizon - 0.5)
    axes.spines[["top", "right"]].set_visible(False)
    if explained.unknown[row].any():
        _hang_unknown(axes, explained.unknown[row])
    if not explained.known[row]:
        _say(axes, "never tried: unknown")
    elif explained.sparse[row]:
        _say(axes, f"not enough data: {_visits(explained, row)}")


def _visits(explained: Explanation | Contrast, row: int) -> str:
    sides = [explained] if isinstance(explained, Explanation) else [explained.fact, explained.foil]
    fewest = min(float(side.support[row]) for side in sides)
    return f"{fewest:.0f} visit{'' if fewest == 1 else 's'}"


def _say(axes: Axes, words: str) -> None:
    box = {"facecolor": "white", "edgecolor": "black"}
    axes.text(0.5, 0.5, words, transform=axes.transAxes, ha="center", bbox=box, zorder=5)


def _hang_unknown(axes: Axes, unknown: FloatArray) -> None:
    """How likely the future is unknown [step], hanging from the top: all the way down means certainly."""
    edges = np.arange(len(unknown) + 1) - 0.5
    band = StepPatch(1 - unknown, edges, baseline=1, fill=True, zorder=0.5, **UNKNOWN)
    band.set_transform(axes.get_xaxis_transform())
    axes.add_artist(band)


def key(figure: Figure, explanation: Explanation) -> None:
    """One legend for the whole figure, below it."""
    names = explanation.legend.names
    handles: list[Artist] = []
    for name, weight in zip(names, explanation.legend.weights, strict=True):
        event = name.removeprefix(FIRST)
        if name in explanation.legend.partition or weight is not None:
            handles.append(Patch(label=name, **style(names, name)))
        elif event == name or event not in names:
            handles.append(Line2D([], [], label=event, marker=".", **line_style(names, event)))
    tracked = explanation.unknown.any()
    if explanation.legend.partition:
        # by exclusion: what is unknown is among it, unless that is shown apart
        label = "terminated" if tracked else "terminated/unknown"
        handles.append(Patch(label=label, facecolor=ENDED_COLOUR))
    if tracked:
        handles.append(Patch(label="unknown", **UNKNOWN))
    if explanation.legend.reward_bound is not None:
        handles.append(Line2D([], [], label="total", color="black", marker="."))
    if explanation.draws is not None:
        handles.append(Patch(label=f"{LEVEL:.0%} band", facecolor="#BBBBBB"))
    figure.legend(handles=handles, loc="lower center", ncols=KEY_COLUMNS, frameon=False)


def over_seeds(
    title: str,
    groups: Mapping[str, Sequence[str]],
    explanations: Mapping[str, Explanation],
    row: int,
) -> Figure:
    """One line per seed, a column for each group of seeds that follow the same strategy.

    A line ends where the future of its seed is no longer known.
    """
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
                own = explanations[label]
                axes.plot(_as_far_as_known(own, row, own.expected[row, :, k]), **look)
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
    Where nothing was learned from, there is nothing to draw.
    """
    figure = Figure(figsize=(11, 5), layout="constrained")
    learned = {label: curve[curve["step"] > 0] for label, curve in curves.items() if curve["step"].any()}
    if not learned:
        figure.suptitle("no errors against transitions: nothing was learned from", fontsize=11)
        return figure
    panels = zip(figure.subplots(1, 2, sharey=True), CURVE_PANELS.items(), strict=True)
    for axes, (metric, title) in panels:
        means = {label: curve.groupby("step")[metric].mean() for label, curve in learned.items()}
        for (label, by_step), look in zip(means.items(), cycle(CURVE_LOOKS), strict=False):
            steps, errors = by_step.index.to_numpy(float), by_step.to_numpy(float)
            visible = np.where(errors > 0, errors, np.nan)
            axes.loglog(steps, visible, **look, markersize=4, label=label + _slope(steps, errors))
        _guide(axes, pd.concat(list(means.values())))
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("transitions learned from")
        axes.grid(True, which="major", color="#DDDDDD")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("mean square error, averaged over the outcomes")
    return figure


def _guide(axes: Axes, errors: "pd.Series[float]") -> None:
    """How the best of the errors, by step, would fall in proportion to 1/n; a little below it."""
    errors = errors[errors > 0]
    steps = np.array([errors.index.min(), errors.index.max()], dtype=float)
    if len(errors) and steps[0] < steps[1]:
        guide = 0.5 * (errors * errors.index).min() / steps
        axes.loglog(steps, guide, **GUIDE)
        end = (steps[1], guide[1])
        axes.annotate("1/n", end, (-8, 0), textcoords="offset points", ha="right", va="top", fontsize=9)


def _slope(steps: FloatArray, errors: FloatArray) -> str:
    late = steps >= steps.max() / 50
    if errors[-1] == 0:
        return " (exact)"
    if late.sum() < 3 or not (errors > 0).all():
        return ""
    return f" (slope {np.polyfit(np.log(steps[late]), np.log(errors[late]), 1)[0]:.2f})"
