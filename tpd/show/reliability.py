"""Reliability diagrams: did what was forecast with a probability of 0.3 happen three times in ten?"""

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from tpd.evaluation.forecasts import ForecastSkill
from tpd.evaluation.windows import BINS
from tpd.show import plots

COLUMNS = 4
FEW = 100
"""A frequency over fewer windows says little."""
EDGE = "#555555"
CALIBRATED: dict[str, Any] = {"color": EDGE, "linewidth": 0.8, "linestyle": "--"}
BASE_RATE: dict[str, Any] = {"color": EDGE, "linewidth": 0.8, "linestyle": ":"}
MARKER: dict[str, Any] = {"marker": "o", "markersize": 6, "markeredgecolor": EDGE, "linestyle": ""}


def draw(forecasts: ForecastSkill, title: str) -> Figure:
    """A panel for each event: how often it happened against how likely it was said to be.

    The bars below count the forecasts.
    """
    pairs = zip(forecasts.names, forecasts.is_event, strict=True)
    events = [name for name, is_event in pairs if is_event]
    if not events:
        empty = plots.Page(figsize=(6, 2))
        empty.suptitle(f"{title}\nnone of the outcomes is an event", fontsize=11)
        return empty
    columns = min(COLUMNS, len(events))
    figure, grid = _page(math.ceil(len(events) / columns), columns)
    for number, name in enumerate(events):
        panel = grid[number // columns, number % columns].subgridspec(2, 1, height_ratios=[3, 1], hspace=0.1)
        above, below = figure.add_subplot(panel[0]), figure.add_subplot(panel[1])
        _frequencies(above, forecasts, name)
        _counts(below, forecasts, name)
        if number % columns == 0:
            above.set_ylabel("observed frequency")
            below.set_ylabel("windows")
        if number + columns >= len(events):
            below.set_xlabel("forecast probability")
    figure.suptitle(title, fontsize=11)
    _key(figure, forecasts)
    return figure


def _page(rows: int, columns: int) -> tuple[Figure, GridSpec]:
    """Laid out in inches, as `plots.page` is: to let matplotlib find the layout takes long."""
    top, bottom, left, right = 1.0, 1.25, 0.75, 0.2
    width, height = max(6.5, 3.0 * columns + left), 4.0 * rows + top + bottom
    figure = plots.Page(figsize=(width, height), dpi=110)
    grid = figure.add_gridspec(rows, columns, wspace=0.3, hspace=0.3)
    grid.update(left=left / width, right=1 - right / width, top=1 - top / height, bottom=bottom / height)
    return figure, grid


def _frequencies(axes: Axes, forecasts: ForecastSkill, name: str) -> None:
    bins = forecasts.reliability(name)
    base_rate = forecasts.at.scores.base_rate[-1, forecasts.names.index(name)]
    axes.plot([0, 1], [0, 1], **CALIBRATED)
    if not math.isnan(base_rate):
        axes.axhline(base_rate, **BASE_RATE)
    colour = plots.style(forecasts.names, name)["facecolor"]
    many, few = bins.windows >= FEW, (bins.windows > 0) & (bins.windows < FEW)
    forecast = np.clip(bins.forecast, 0, 1)  # a regression may leave the panel
    axes.plot(forecast[many], bins.frequency[many], color=EDGE, linewidth=0.8)
    for chosen, inside in ((few, "white"), (many, colour)):
        look = MARKER | {"markerfacecolor": inside}
        axes.plot(forecast[chosen], bins.frequency[chosen], **look, clip_on=False)
    axes.set_title(f"{name}\n{_summary(forecasts, name)}", fontsize=9)
    axes.set_ylim(-0.02, 1.02)
    axes.tick_params(labelbottom=False)
    _finish(axes)


def _counts(axes: Axes, forecasts: ForecastSkill, name: str) -> None:
    """On a log scale: most events are unlikely most of the time."""
    windows = forecasts.reliability(name).windows
    centres = (np.arange(BINS) + 0.5) / BINS
    axes.bar(centres, windows, width=0.9 / BINS, log=True, **plots.style(forecasts.names, name))
    axes.set_ylim(0.8, 2 * max(1, windows.max()))
    axes.yaxis.set_major_locator(LogLocator(numticks=4))
    axes.yaxis.set_minor_locator(NullLocator())
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.set_xlim(-0.02, 1.02)
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.spines[["top", "right"]].set_visible(False)


def _summary(forecasts: ForecastSkill, name: str) -> str:
    scores, k = forecasts.at.scores, forecasts.names.index(name)
    windows = f"{scores.windows[-1]:,} windows"
    if math.isnan(scores.base_rate[-1, k]):
        return "no windows"
    if math.isnan(scores.skill[-1, k]):
        constant = {0.0: "never happened", 1.0: "always happened"}
        return f"{constant.get(float(scores.base_rate[-1, k]), 'always at the same steps')}, {windows}"
    error = forecasts.at.skill_error[-1, k]
    deviation = "" if math.isnan(error) else f" ± {error:.3f}"
    return f"skill {scores.skill[-1, k]:.3f}{deviation}, {windows}"


def _key(figure: Figure, forecasts: ForecastSkill) -> None:
    handles = [
        Line2D([], [], **MARKER, markerfacecolor=EDGE, label="forecasts of much the same probability"),
        Line2D([], [], **MARKER, markerfacecolor="white", label=f"fewer than {FEW} windows"),
        Line2D([], [], **CALIBRATED, label="as often as forecast"),
        Line2D([], [], **BASE_RATE, label="base rate"),
    ]
    unknown = f"left out as unknown: {forecasts.unknown:.1%} of the steps"
    figure.legend(
        handles=handles,
        title=unknown if forecasts.unknown else None,
        loc="lower center",
        ncols=4 if figure.get_figwidth() > 9 else 2,
        frameon=False,
        fontsize=9,
        title_fontsize=9,
    )
