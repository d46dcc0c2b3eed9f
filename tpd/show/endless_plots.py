"""Panels of methods that predict returns over an infinite horizon: terms, or discounted reward by step."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter

from tpd.core.colours import colour
from tpd.core.explanation import Explained, Explanation
from tpd.core.types import FloatArray
from tpd.show.plots import LABEL

ROOM = 0.25
"""Space beside the longest bar for its number, as a fraction of the axis."""
TICKS = 5


def panel(axes: Axes, explained: Explained, row: int) -> None:
    """The terms of the return of a pair or of the difference of two, or the discounted reward by step."""
    of = explained if isinstance(explained, Explanation) else explained.fact
    axes.spines[["top", "right"]].set_visible(False)
    if not explained.foreseen[row, -1]:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "unknown: leads to untried pairs", transform=axes.transAxes, ha="center", **LABEL)
        return
    totals = of.discounts @ explained.expected[row]
    shown = [k for k, told in enumerate(explained.told.terms[row]) if told]
    if of.legend.reward_bound is not None:
        totals = totals * of.legend.rewards
        shown = [k for k in shown if k in of.legend.components]
    if shown:
        _terms(axes, [of.legend.names[k] for k in shown], totals[shown], of)
    else:
        rewards = of.discounts * (explained.expected[row] @ of.legend.rewards)
        _steps(axes, np.where(explained.told.returns[row], rewards, np.nan))


def _terms(axes: Axes, names: list[str], totals: FloatArray, of: Explanation) -> None:
    """One bar per outcome, with its number; below, their sum if they are terms of the reward."""
    rewarded = of.legend.reward_bound is not None
    shades = [colour(of.legend.names, name) for name in names]
    if rewarded:
        names, totals, shades = [*names, "return"], np.append(totals, totals.sum()), [*shades, "black"]
    places = np.arange(len(names))
    bars = axes.barh(places, totals, color=shades)
    axes.bar_label(bars, [f"{total:z.2f}" for total in totals], padding=3, fontsize=8)
    axes.set_yticks(places, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=ROOM)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xlabel("discounted reward over an infinite horizon" if rewarded else "discounted total")


def _steps(axes: Axes, rewards: FloatArray) -> None:
    """One bar per step, without those that are not learned; the last one holds all later steps."""
    last = len(rewards) - 1
    axes.bar(range(len(rewards)), rewards, color=["black"] * last + ["#888888"])
    axes.axhline(0, color="black", linewidth=0.8)
    ticks = sorted({*range(0, last, max(1, len(rewards) // TICKS)), last})
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:g}{'+' if step == last else ''}"))
    axes.set(xlabel=f"steps ahead (grey: step {last} and all later ones)", ylabel="discounted reward")
