"""Reliability diagrams: do events with a forecast probability of 0.3 happen three times in ten?"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from tpd.core.verdicts import Verdict
from tpd.evaluation.forecasts import ForecastSkill
from tpd.evaluation.windows import BINS
from tpd.show import plots

COLUMNS = 4
CONSTANT = {0.0: "never happened", 1.0: "always happened"}
FEW = 100
"""Bins with fewer windows than this are marked as uncertain."""
EDGE = "#555555"
CALIBRATED: dict[str, Any] = {"color": EDGE, "linewidth": 0.8, "linestyle": "--"}
BASE_RATE: dict[str, Any] = {"color": EDGE, "linewidth": 0.8, "linestyle": ":"}
MARKER: dict[str, Any] = {"marker": "o", "markersize": 6, "markeredgecolor": EDGE, "linestyle": ""}


def draw(forecasts: ForecastSkill, title: str) -> Figure:
    """One panel per event: observed frequency against forecast probability.

    Forecasts are for exactly h steps ahead, pooled over all h. The bars below count them. Events that always
    or never happened have no panel, but are listed.
    """
    title = (
        f"{title}: forecasts of whether an event happens exactly h steps ahead, all h together "
        "(± standard error)"
    )
    rates = forecasts.at.scores.base_rate[-1]
    named = [name for name, is_event in zip(forecasts.names, forecasts.is_event, strict=True) if is_event]
    constant = {name: rates[forecasts.names.index(name)] for name in named}
    silent = [name for name in named if math.isnan(constant[name]) or _unanswered(forecasts, name)]
    events = [name for name in named if constant[name] not in CONSTANT and name not in silent]
    said = [
        f"{words}: {', '.join(name for name in named if constant[name] == rate)}"
        for rate, words in CONSTANT.items()
        if rate in constant.values()
    ]
    if silent:
        said.append(f"not predicted by this method, or no windows: {', '.join(silent)}")
    if forecasts.unknown:
        said.append(f"left out as unknown: {forecasts.unknown:.1%} of the steps")
    if not events:
        empty = plots.Page(figsize=(8, 2))
        reason = "none of the outcomes is an event" if not named else "; ".join(said)
        empty.suptitle(textwrap.fill(title, 80) + "\n" + textwrap.fill(reason, 80), fontsize=11)
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
            below.set_ylabel("forecasts")
        if number + columns >= len(events):
            below.set_xlabel("forecast probability")
    figure.suptitle(textwrap.fill(title, int(14 * figure.get_figwidth())), fontsize=11)
    _key(figure, said)
    return figure


def _unanswered(forecasts: ForecastSkill, name: str) -> bool:
    """Whether the method predicts no single step of an event."""
    return bool((forecasts.at.verdict[:, forecasts.names.index(name)] == Verdict.UNANSWERABLE).all())


def _page(rows: int, columns: int) -> tuple[Figure, GridSpec]:
    """A page with a layout in inches, like `plots.page`: matplotlib's own layout is slow."""
    top, bottom, left, right = 1.2, 1.35, 0.75, 0.2
    width, height = max(6.5, 3.0 * columns + left), 4.0 * rows + top + bottom
    figure = plots.Page(figsize=(width, height), dpi=110)
    grid = figure.add_gridspec(rows, columns, wspace=0.3, hspace=0.35)
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
    forecast = np.clip(bins.forecast, 0, 1)  # a regression may exceed the panel
    axes.plot(forecast[many], bins.frequency[many], color=EDGE, linewidth=0.8)
    for chosen, inside in ((few, "white"), (many, colour)):
        look = MARKER | {"markerfacecolor": inside}
        axes.plot(forecast[chosen], bins.frequency[chosen], **look, clip_on=False)
    axes.set_title(f"{name}\n{_summary(forecasts, name)}", fontsize=9, pad=8)
    axes.set_ylim(-0.02, 1.02)
    axes.tick_params(labelbottom=False)
    _finish(axes)


def _counts(axes: Axes, forecasts: ForecastSkill, name: str) -> None:
    """Counts on a log scale: most events are unlikely most of the time."""
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
        return f"skill undefined: always at the same steps, {windows}"
    error = forecasts.at.skill_error[-1, k]
    deviation = "" if math.isnan(error) else f" ± {error:.2f}"
    steps = " / ".join(steps.removeprefix("by ") for steps in forecasts.by.ranges)
    by = " / ".join(f"{skill:.2f}" for skill in forecasts.by.scores.skill[:, k])
    return f"skill exactly at h: {scores.skill[-1, k]:.2f}{deviation}\nskill by step {steps}: {by}"


def _key(figure: Figure, said: Sequence[str]) -> None:
    handles = [
        Line2D([], [], **MARKER, markerfacecolor=EDGE, label="forecasts with similar probabilities"),
        Line2D([], [], **MARKER, markerfacecolor="white", label=f"fewer than {FEW} forecasts"),
        Line2D([], [], **CALIBRATED, label="perfect calibration"),
        Line2D([], [], **BASE_RATE, label="base rate"),
    ]
    figure.legend(
        handles=handles,
        title=textwrap.fill("; ".join(said), int(14 * figure.get_figwidth())) if said else None,
        loc="lower center",
        ncols=4 if figure.get_figwidth() > 9 else 2,
        frameon=False,
        fontsize=9,
        title_fontsize=9,
    )
