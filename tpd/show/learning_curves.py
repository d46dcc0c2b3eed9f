"""Learning curves: errors against the number of transitions."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tpd.core.types import FloatArray
from tpd.show.plots import CURVE_LOOKS

CURVE_PANELS = {"pi_mse": "the policy's action", "foil_mse": "the other actions"}
GUIDE: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 0.8}


def draw(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Mean squared error, averaged over outcomes, against the number of transitions learned from.

    Each curve has columns step, pi_mse and foil_mse. Its slope is fitted from a fiftieth of the steps on. The
    figure is empty if nothing was learned.
    """
    figure = Figure(figsize=(11, 5), layout="constrained")
    learned = {label: curve[curve["step"] > 0] for label, curve in curves.items() if curve["step"].any()}
    if not learned:
        figure.suptitle("no learning curve: there were no transitions to learn from", fontsize=11)
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
    """A guide line proportional to 1/n, slightly below the smallest errors."""
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
