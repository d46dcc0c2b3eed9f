"""Bar chart of the drivers of a forecast (the features of the state that it relies on)."""

import textwrap

import numpy as np
from matplotlib.figure import Figure

from tpd.answers.drivers import Drivers
from tpd.answers.sentences.drivers import CAVEAT, amount, moved
from tpd.core.colours import PALETTE

MOST_BARS = 10
RAISES, LOWERS = PALETTE[3], PALETTE[5]
INCHES = 0.36
"""Height of each bar."""
WIDEST = 34
"""Characters per line of a label."""


def draw(drivers: Drivers) -> Figure:
    """One bar per feature of the state, the largest on top, with two standard errors."""
    if drivers.withheld:
        raise ValueError(drivers.text)
    order = np.argsort(-np.abs(drivers.values), kind="stable")
    shown, rest = order[:MOST_BARS], order[MOST_BARS:]
    labels = [textwrap.fill(drivers.shown[k], WIDEST) for k in shown]
    values, errors = drivers.values[shown], 2 * drivers.errors[shown]
    if len(rest):
        labels.append(f"{len(rest)} other parts")
        values, errors = np.append(values, drivers.values[rest].sum()), np.append(errors, 0.0)
    scale = 100 if drivers.probability else 1
    lines = sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(7, 1.9 + INCHES * lines), layout="constrained", dpi=110)
    axes = figure.subplots()
    shades = [RAISES if value > 0 else LOWERS for value in values]
    rows = np.arange(len(labels))
    axes.barh(rows, scale * values, xerr=scale * errors, color=shades, height=0.7, error_kw={"linewidth": 1})
    for row, value, error in zip(rows, values, errors, strict=True):
        end = scale * (value + np.copysign(error, value))
        axes.annotate(
            moved(float(value), drivers).removesuffix(" points"),
            (end, row),
            xytext=(4 if value > 0 else -4, 0),
            textcoords="offset points",
            ha="left" if value > 0 else "right",
            va="center",
            fontsize=9,
        )
    axes.axvline(0, color="#999999", linewidth=0.8)
    axes.margins(x=0.15)
    axes.set_yticks(rows, labels)
    axes.invert_yaxis()
    axes.set_xlabel(f"moves the forecast by{' (percentage points)' if drivers.probability else ''}")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    base, here = amount(drivers.base, drivers), amount(drivers.forecast, drivers)
    met = f"{base} on average over {drivers.background} visited states, {here} in this one"
    figure.suptitle(f"What the forecast of {drivers.what} relies on\n{met}", fontsize=11)
    figure.supxlabel(CAVEAT, fontsize=8, color="#555555")
    return figure
