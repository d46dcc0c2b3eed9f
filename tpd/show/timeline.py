"""The timeline of recorded episodes: the steps at which the predicted future changed, and how."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tpd.core.colours import colour
from tpd.core.formats import percent
from tpd.core.outcomes import FIRST, Legend

LABELLED = 0.1
"""Changes below this fraction of the largest one get no label."""
ROW_HEIGHT = 1.15
BAR = np.array([[-0.4, 0], [-0.4, 1], [0.4, 1], [0.4, 0]])
"""The corners of a bar: distance from its step, and fraction of its height."""


def draw(points: pd.DataFrame, legend: Legend, title: str) -> Figure:
    """One row per episode of `turning_points`, one bar per step, and a label at its largest changes."""
    episodes = sorted(points["episode"].unique())
    figure = Figure(figsize=(11, 1.6 + ROW_HEIGHT * len(episodes)), dpi=110, layout="constrained")
    rows = figure.subplots(len(episodes), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
    top, last = float(points["change"].max()), int(points["step"].max())
    for axes, episode in zip(rows, episodes, strict=True):
        own = points[points["episode"] == episode]
        _bars(axes, own, legend)
        largest = own.iloc[0]
        if largest["change"] > LABELLED * top:
            _label(axes, largest, legend, leftwards=largest["step"] > last / 2)
        axes.set_ylabel(f"episode {episode}", fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    rows[0].set_ylim(0, 1.4 * top if top > 0 else 1)
    rows[-1].set_xlabel("step of the episode")
    figure.suptitle(f"{title}: change of the expected future at each step", fontsize=12)
    figure.legend(handles=_key(points, legend), loc="outside lower center", ncols=5, frameon=False)
    return figure


def _bars(axes: Axes, points: pd.DataFrame, legend: Legend) -> None:
    known = points.dropna(subset="change")
    shades = [colour(legend.names, outcome) for outcome in known["outcome"]]
    across = known["step"].to_numpy()[:, None] + BAR[:, 0]
    up = known["change"].to_numpy()[:, None] * BAR[:, 1]
    # one collection: an episode may have a thousand bars
    axes.add_collection(PolyCollection(list(np.stack([across, up], axis=2)), facecolors=shades))
    axes.autoscale_view()


def _label(axes: Axes, point: "pd.Series[Any]", legend: Legend, leftwards: bool) -> None:
    cause = f"{point['happened']}: " if legend.partition else ""
    outcome, before, after = point["outcome"].removeprefix(FIRST), point["before"], point["after"]
    said = f"{cause}{outcome} {percent(before)} → {percent(after)}"
    place, side = (point["step"], point["change"]), "right" if leftwards else "left"
    axes.annotate(said, place, (0, 3), textcoords="offset points", ha=side, fontsize=8)


def _key(points: pd.DataFrame, legend: Legend) -> list[Line2D]:
    shown = points.dropna(subset="change")["outcome"].unique()
    return [
        Line2D(
            [], [], linestyle="", marker="s", color=colour(legend.names, name), label=name.removeprefix(FIRST)
        )
        for name in shown
    ]
