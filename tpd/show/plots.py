"""Panels of explanations, drawn into given axes."""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, StepPatch
from matplotlib.ticker import MaxNLocator

from tpd.core import colours
from tpd.core.bands import LEVEL, UNTOLD, Band
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explained, Explanation
from tpd.core.outcomes import FIRST
from tpd.core.types import Array, BoolArray, FloatArray, IntArray

mpl.rcParams["axes.titley"] = 1.0  # searching for free space for titles takes a tenth of the drawing time

HATCHES = ("", "///", "...", "xxx")  # used when the colours run out
LINES = ("-", "--", "-.", (0, (1, 1)))
# black and grey, since colours are for outcomes
CURVE_LOOKS = (
    {"color": "black", "linestyle": "-", "marker": "o"},
    {"color": "#888888", "linestyle": "--", "marker": "s"},
    {"color": "black", "linestyle": ":", "marker": "v"},
    {"color": "#888888", "linestyle": "-.", "marker": "D"},
)
LABEL: dict[str, Any] = {"bbox": {"facecolor": "white", "edgecolor": "black"}, "zorder": 5}
ENDED_COLOUR = "#DDDDDD"
UNKNOWN: dict[str, Any] = {"facecolor": "none", "edgecolor": "#999999", "hatch": "////", "linewidth": 0}
NOT_LEARNED: dict[str, Any] = {"facecolor": "white", "edgecolor": "#CC8888", "hatch": "xx"}
TOTAL: dict[str, Any] = {"color": "black", "linewidth": 1.2, "marker": ".", "markersize": 4}
TOTAL_BAND: dict[str, Any] = {"color": "black", "alpha": 0.15, "linewidth": 0, "zorder": 3}
TOTAL_BAND_EDGE: dict[str, Any] = {"color": "black", "linewidth": 0.6, "linestyle": "--"}
FAINT = 0.25
"""Opacity of bars with too little data."""
SMALLEST_SHOWN = 0.005
KEY_COLUMNS = 5
MOST_NAMED = 3
BELOW_AXIS, ROOM_OF_AXIS, LINE_BELOW = "below the axis", 34, 86
"""Text below a plot: its id, its distance in points, and the characters per line."""
BELOW = 0.75
"""Inches between the last row of plots and the text below it."""
ROW, GAP = 2.6, 0.9
"""Inches from one row of plots to the next, and between them."""
MOST_FILLED = 3
"""Upper bound on overlapping filled bands that can still be distinguished."""
COVERED = 0.01
"""Lines closer than this fraction of the plot's height are treated as overlapping."""
DOTS: dict[str, Any] = {"linestyle": "none", "marker": ".", "zorder": 2.5, "clip_on": False}
"""Drawn above the lines, and not clipped at the edges of a plot."""
UNTOLD_WORDS = "not learned or too rare to tell"
AT_ZERO: dict[str, Any] = {"color": "#999999", "linewidth": 1, "zorder": 1.5}
"""Lines of several outcomes that are 0 there."""
STRIPED, DASH = 3, 2
"""Width of overlapping lines, and length of their dashes in line widths."""
APART = 0.6
"""Fraction of a step over which the bars of several bands are spread."""


class Page(Figure):
    """A figure that displays itself in a notebook with any matplotlib backend."""

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png")
        return file.getvalue()


def style(names: Sequence[str], name: str) -> dict[str, Any]:
    """The style of an outcome; a first occurrence has the style of its event."""
    hatch = HATCHES[colours.rounds(names, name) % len(HATCHES)]
    return {"facecolor": colours.colour(names, name), "hatch": hatch, "edgecolor": "white"}


def line_style(names: Sequence[str], name: str) -> dict[str, Any]:
    """The line style of an outcome: a dash pattern for each hatch, dots for first occurrences."""
    look = style(names, name)
    dash = ":" if name.startswith(FIRST) else LINES[HATCHES.index(look["hatch"])]
    return {"color": look["facecolor"], "linestyle": dash, "linewidth": 1.5}


def events(axes: Axes, explanation: Explanation, row: int) -> None:
    """Probabilities of the events at each step, stacked to 1."""
    _finish(axes, explanation, row)
    axes.set_ylim(0, 1)
    axes.set_ylabel("probability")
    if not explanation.known[row]:
        return
    partition = explanation.legend.partition
    columns = [explanation.legend.names.index(name) for name in partition]
    shares = np.clip(explanation.expected[row][:, columns], 0, 1).T
    ended = np.clip(explanation.ended[row], 0, 1)
    told = np.vstack([explanation.told.at[row][:, columns].T, explanation.told.ended[row]])
    heights = np.vstack([shares, ended])
    looks = [style(explanation.legend.names, name) for name in partition]
    looks.append({"facecolor": ENDED_COLOUR, "edgecolor": "white"})
    looks.append(NOT_LEARNED)
    untold = np.where(told, 0, heights).sum(axis=0)
    _stack(axes, np.vstack([np.where(told, heights, 0), untold]), looks, explanation.sparse[row])
    _lines(axes, explanation, row, [name for name in _each_time(explanation) if name not in partition])
    _say_untold(axes, explanation, row, partition)


def outcomes(axes: Axes, explanation: Explanation, row: int) -> None:
    """One line per event, for events that do not add up to 1; without events, one per outcome."""
    _finish(axes, explanation, row)
    shown = _each_time(explanation)
    axes.set_ylabel("probability" if explanation.legend.events else "expected outcome")
    if explanation.legend.events:
        axes.set_ylim(-0.03, 1.03)
    _lines_and_bands(axes, explanation, row, shown)


def _lines_and_bands(
    axes: Axes, explanation: Explanation, row: int, names: Sequence[str], by: bool = False
) -> None:
    """One line per named outcome, with its band: at each step, or summed up to it (`by`)."""
    if not explanation.known[row]:
        return
    only, values, told, band = explanation[row : row + 1], explanation.expected[row], explanation.told, None
    if by:
        values = np.clip(np.cumsum(values, axis=0), 0, 1)  # a network's sum may leave [0, 1]
    if explanation.banded:
        band = only.sum_band() if by else only.band()
    shown = told.by[row] if by else told.at[row]
    drawn = _lines(axes, explanation, row, names, values, band, shown)
    if band is not None:
        _bands(axes, explanation, drawn, band, shown)
    _say_untold(axes, explanation, row, names, by)


def _each_time(explanation: Explanation) -> list[str]:
    """The events without first occurrences; without events, all outcomes."""
    legend = explanation.legend
    return [name for name in legend.events or legend.names if not name.startswith(FIRST)]


def first_names(explanation: Explanation) -> list[str]:
    """The outcomes that are first occurrences; their sum over steps is a probability too."""
    return [name for name in explanation.legend.names if name.startswith(FIRST)]


def happened_by(axes: Axes, explanation: Explanation, row: int) -> None:
    """The probability that each event has happened by each step, from its first occurrence."""
    _finish(axes, explanation, row)
    axes.set_ylabel("probability by this step")
    axes.set_ylim(-0.03, 1.03)
    _lines_and_bands(axes, explanation, row, first_names(explanation), by=True)


def other_names(explanation: Explanation) -> list[str]:
    """The outcomes that are neither events nor shown as reward terms; empty without events."""
    legend = explanation.legend
    apart = (*legend.events, *_reward_names(explanation))
    return [name for name in legend.names if legend.events and name not in apart]


def _reward_names(explanation: Explanation) -> tuple[str, ...]:
    """The outcomes shown as reward terms."""
    return () if explanation.legend.reward_bound is None else explanation.component_names


def other_outcomes(axes: Axes, explanation: Explanation, row: int) -> None:
    """One line per outcome that is neither an event nor shown as a reward term."""
    _finish(axes, explanation, row)
    axes.set_ylabel("expected value")
    _lines_and_bands(axes, explanation, row, other_names(explanation))


def reward_components(axes: Axes, explanation: Explanation, row: int) -> None:
    """The expected reward of each step, split into its terms."""
    _finish(axes, explanation, row)
    axes.set_ylabel("expected reward")
    if explanation.known[row]:
        only = explanation[row : row + 1]
        told = _informative(only.told.at[0], only.band() if only.banded else None, only)
        parts = np.where(told[:, only.legend.components], only.reward_components[0], 0).T
        _signed_stack(axes, parts, explanation, explanation.sparse[row])
        axes.margins(y=0.1)
        band = only.reward_band() if only.banded else None
        _total(axes, explanation, row, only.expected_reward[0], band, told)
        _say_untold(axes, explanation, row, _rewarded(explanation))


def event_difference(axes: Axes, contrast: Contrast, row: int) -> None:
    """Difference of event probabilities between fact and foil, step by step."""
    _finish(axes, contrast, row)
    axes.set_ylabel("probability difference" if contrast.fact.legend.events else "difference")
    axes.axhline(0, color="black", linewidth=0.8)
    if contrast.known[row]:
        names = contrast.fact.legend.names
        largest = np.abs(contrast.expected[row]).max(axis=0)
        shown = [name for name in _each_time(contrast.fact) if largest[names.index(name)] > SMALLEST_SHOWN]
        only = slice(row, row + 1)
        band = (contrast.fact[only] - contrast.foil[only]).band() if contrast.drawn else None
        told = contrast.told.at[row]
        if not shown:
            axes.text(0.5, 0.6, "no difference", transform=axes.transAxes, ha="center", color="#666666")
        lines = dict[str, FloatArray]()
        for name in shown:
            k = names.index(name)
            values = np.where(told[:, k], contrast.expected[row, :, k], np.nan)
            values = as_far_as_known(contrast, row, values)
            lines[name] = _as_far_as_told(axes, contrast.fact, name, values, band)
        _draw_lines(axes, names, lines)
        if band is not None:
            _bands(axes, contrast.fact, shown, band, told)
        _say_untold(axes, contrast, row, shown)


def return_difference(axes: Axes, contrast: Contrast, row: int) -> None:
    """Difference of the returns of fact and foil up to each step, split into reward terms."""
    _finish(axes, contrast, row)
    axes.set_ylabel("difference up to each step")
    if contrast.known[row]:
        only = contrast.fact[row : row + 1] - contrast.foil[row : row + 1]
        told, columns = only.told.by[0], only.fact.legend.components
        for side in (only.fact, only.foil):
            told = _informative(told, side.sum_band() if side.banded else None, side)
        parts = np.where(told[:, columns], only.component_returns[0], 0).T * only.foreseen[0]
        _signed_stack(axes, parts, contrast.fact, contrast.sparse[row])
        _total(axes, contrast, row, only.expected_return[0], only.return_band() if only.drawn else None, told)
        _say_untold(axes, contrast, row, _rewarded(contrast.fact), by=True)


def _informative(told: BoolArray, band: Band | None, explanation: Explanation) -> BoolArray:
    """[horizon, outcome]: where a number is told and, for an event that happens at most once, its band
    [1, horizon, outcome] is narrow enough to be informative.
    """
    if band is None:
        return told
    wide = (band.width[0] > UNTOLD) & explanation.legend.is_event & (band.high[0] <= 1)
    return np.asarray(told & ~wide)


def _total(
    axes: Axes, explained: Explained, row: int, values: FloatArray, band: Band | None, told: BoolArray
) -> None:
    """The line of a total [horizon] and its band [1, horizon], where all terms of the reward are told.

    told: [horizon, outcome]
    """
    fact = explained if isinstance(explained, Explanation) else explained.fact
    rewarded = {name: told[:, fact.legend.names.index(name)] for name in _rewarded(fact)}
    complete = np.logical_and.reduce([explained.told.returns[row], *rewarded.values()])
    axes.plot(as_far_as_known(explained, row, np.where(complete, values, np.nan)), **TOTAL)
    if band is not None:
        _total_band(axes, band, complete)
    if explained.told.returns[row].any() and not complete.all():
        verdicts = explained.told.at if isinstance(explained, Explanation) else explained.told.by
        wide = [
            name
            for name, steps in rewarded.items()
            if not steps.all() and verdicts[row][:, fact.legend.names.index(name)].all()
        ]
        doubt = f" or uncertain ({_listed(wide)})" if wide else ""
        _say_below(axes, f"no total where a term is not known{doubt}")


def _total_band(axes: Axes, band: Band, told: BoolArray) -> None:
    """The band [1, horizon] of the total, at the steps where `told` [horizon] is true."""
    low, high = (np.where(told, end[0], np.nan) for end in band)
    axes.fill_between(range(len(low)), low, high, **TOTAL_BAND)
    for end in (low, high):
        axes.plot(end, **TOTAL_BAND_EDGE)


def _rewarded(explanation: Explanation) -> list[str]:
    """The outcomes with a nonzero weight in the reward."""
    weights = zip(explanation.legend.names, explanation.legend.weights, strict=True)
    return [name for name, weight in weights if weight]


def page(
    rows: int, columns: int, lines: int, entries: int, top: float = 0.7
) -> tuple[Figure, list[list[Axes]], Axes]:
    """A page of plots with room for a title, for lines of text below, and for the entries of the legend.

    The layout is computed in inches: matplotlib's own layout takes as long as all the drawing.
    """
    text, bottom = 0.22 * max(lines, 1) + BELOW, 0.23 * math.ceil(entries / KEY_COLUMNS) + 0.3
    width, height = 5.6 * columns, ROW * rows + top + text + bottom
    figure = Page(figsize=(width, height), dpi=110)
    inside = {"left": 0.8 / width, "right": 1 - 0.15 / width, "wspace": 0.18, "hspace": GAP / (ROW - GAP)}
    layout = figure.add_gridspec(
        rows, columns, top=1 - top / height, bottom=(text + bottom) / height, **inside
    )
    grid = [[figure.add_subplot(layout[r, c]) for c in range(columns)] for r in range(rows)]
    room = figure.add_gridspec(1, 1, top=(text + bottom - BELOW) / height, bottom=bottom / height, **inside)
    return figure, grid, figure.add_subplot(room[0, 0])


def pictures(row: Sequence[Axes], every: Sequence[Array | None]) -> None:
    """The pictures of the states in a row of axes; one across all columns if they are the same."""
    first = every[0]
    same = first is not None and all(one is not None and np.array_equal(first, one) for one in every)
    if len(row) > 1 and same:
        spec = row[0].get_subplotspec()
        assert spec is not None
        row[0].set_subplotspec(spec.get_gridspec()[0, :])
        for axes in row[1:]:
            axes.remove()
        row, every = row[:1], every[:1]
    for axes, pixels in zip(row, every, strict=True):
        picture(axes, pixels)


def picture(axes: Axes, pixels: Array | None) -> None:
    """The picture of a state, rendered by the environment."""
    if pixels is None:
        axes.axis("off")
        return
    axes.imshow(pixels)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(ENDED_COLOUR)


def notes(axes: Axes, lines: Sequence[str]) -> None:
    """Sentences below the plots."""
    axes.axis("off")
    axes.text(0, 1, "\n".join(lines), transform=axes.transAxes, va="top", fontsize=9, linespacing=1.5)


def _stack(axes: Axes, heights: FloatArray, looks: Sequence[dict[str, Any]], sparse: bool) -> None:
    """Stacked bars of heights [layer, step], none where that is 0; faint if there is too little data."""
    tops, alpha = np.cumsum(heights, axis=0), FAINT if sparse else 1
    for height, top, look in zip(heights, tops, looks, strict=True):
        for steps in _runs((height != 0)[None]):  # not `stairs`: computing their limits takes longer
            high, low = (np.append(ends[steps], ends[steps[-1]]) for ends in (top, top - height))
            edges = np.append(steps, steps[-1] + 1) - 0.5
            axes.fill_between(edges, low, high, step="post", linewidth=0, **look, alpha=alpha)


def _lines(
    axes: Axes,
    explanation: Explanation,
    row: int,
    names: Sequence[str],
    values: FloatArray | None = None,
    band: Band | None = None,
    told: BoolArray | None = None,
) -> list[str]:
    """One line per named outcome: its expectation, or other values [horizon, outcome]; returns those drawn.

    Values are left out where `told` [horizon, outcome] is false; by default, where the expectation at that
    step is not learned. Events that are not expected at any step have no line: many at 0 would hide each
    other.
    """
    values = explanation.expected[row] if values is None else values
    values = np.where(explanation.told.at[row] if told is None else told, values, np.nan)
    shown, absent = dict[str, FloatArray](), list[str]()
    for name in names:
        column = as_far_as_known(explanation, row, values[:, explanation.legend.names.index(name)])
        line = _as_far_as_told(axes, explanation, name, column, band)
        if name in explanation.legend.events and np.nanmax(line, initial=-1) <= SMALLEST_SHOWN:
            absent += [name.removeprefix(FIRST)] if np.isfinite(line).all() else []
        else:
            shown[name] = line
    plain = {name.removeprefix(FIRST): line for name, line in shown.items()}
    _draw_lines(axes, explanation.legend.names, plain)
    if absent:
        _say_below(axes, f"no line, because not expected at any step: {_listed(absent)}")
    return list(shown)


def _draw_lines(axes: Axes, names: Sequence[str], shown: Mapping[str, FloatArray]) -> None:
    """One line [step] per outcome; where several overlap, their dashes alternate, or are grey at 0."""
    lines = np.stack(list(shown.values())) if shown else np.zeros((0, 0))
    same = _covered(lines)
    alike = same[:, :, :-1] & same[:, :, 1:]  # [line, line, step to the next]
    outline = [patheffects.withStroke(linewidth=3.5, foreground="white")]
    for number, (name, values) in enumerate(shown.items()):
        look = line_style(names, name)
        points = np.stack([np.arange(len(values)), values], axis=1)
        plain, striped, dashes = list[FloatArray](), list[FloatArray](), list[Any]()
        for steps in _runs(alike[number]):
            group = np.flatnonzero(alike[number, :, steps[0]]).tolist()
            run = points[steps[0] : steps[-1] + 2]
            if len(group) == 1:
                plain.append(run)
            elif np.abs(run[:, 1]).max() <= SMALLEST_SHOWN:
                axes.add_collection(LineCollection([run], **AT_ZERO))
            else:
                striped.append(run)
                dashes.append((-DASH * group.index(number), (DASH, DASH * (len(group) - 1))))
        single = np.flatnonzero(same[number].sum(axis=0) == 1)
        axes.plot(values, color=look["color"], markevery=single, **DOTS)
        axes.add_collection(LineCollection(plain, path_effects=outline, **look))
        if striped:
            axes.add_collection(LineCollection(striped, **look | {"linestyle": dashes, "linewidth": STRIPED}))


def _covered(lines: FloatArray) -> BoolArray:
    """[line, line, step]: whether two lines [line, step] overlap there."""
    if not lines.size or np.isnan(lines).all():
        return np.zeros((len(lines), *lines.shape), dtype=np.bool_)
    height = max(float(np.nanmax(lines) - np.nanmin(lines)), SMALLEST_SHOWN)
    return np.asarray(np.abs(lines[:, None] - lines[None]) <= COVERED * height)


def _runs(alike: BoolArray) -> list[IntArray]:
    """Runs of steps along which a line overlaps the same others, as `alike` [line, step to the next] says."""
    drawn = np.flatnonzero(alike.any(axis=0))
    ends = np.flatnonzero((np.diff(drawn) > 1) | (np.diff(alike[:, drawn], axis=1).any(axis=0))) + 1
    return [run for run in np.split(drawn, ends) if len(run)]


def _bands(axes: Axes, explanation: Explanation, names: Sequence[str], band: Band, told: BoolArray) -> None:
    """The band [1, horizon, outcome] around the line of each named outcome, where it is told.

    Many bands would cover each other, so they are then drawn as thin bars side by side, and left out where
    they are too wide to be informative.
    """
    steps = np.arange(explanation.horizon)
    for name, aside in zip(names, np.linspace(-APART / 2, APART / 2, len(names)), strict=True):
        k = explanation.legend.names.index(name)
        shade = line_style(explanation.legend.names, name)["color"]
        low, high = (np.where(told[:, k], end[0, :, k], np.nan) for end in band)
        if len(names) <= MOST_FILLED:
            axes.fill_between(steps, low, high, color=shade, alpha=0.25, linewidth=0)
        else:
            low = as_far_as_told(low, high - low) if name in explanation.legend.events else low
            axes.vlines(steps + aside, low, high, color=shade, linewidth=1, alpha=0.8, zorder=1)


def as_far_as_known(explained: Explained, row: int, values: FloatArray) -> FloatArray:
    """[step]: the line up to the step where the future becomes unknown; NaN if there is too little data."""
    return np.where(explained.foreseen[row] & ~explained.sparse[row], values, np.nan)


def as_far_as_told(values: FloatArray, width: FloatArray) -> FloatArray:
    """[step]: the line of a probability; NaN where its band is too wide to be informative."""
    return np.where(width > UNTOLD, np.nan, values)


def _as_far_as_told(
    axes: Axes, explanation: Explanation, name: str, values: FloatArray, band: Band | None
) -> FloatArray:
    """[step]: the same for an event with a band [1, horizon, outcome]; a remark says what is left out."""
    if band is None or name not in explanation.legend.events:
        return values
    told = as_far_as_told(values, band.width[0, :, explanation.legend.names.index(name)])
    if np.isnan(told).sum() > np.isnan(values).sum():
        because = ", for lack of data" if explanation.counted else ""
        _say_below(axes, f"no line where the {LEVEL:.0%} band is wider than {UNTOLD:g}{because}")
    return told


def _signed_stack(axes: Axes, heights: FloatArray, explanation: Explanation, sparse: bool) -> None:
    """Stacked bars, gains upwards from zero, losses downwards."""
    axes.use_sticky_edges = False
    looks = [style(explanation.legend.names, name) for name in explanation.component_names]
    _stack(axes, np.clip(heights, 0, None), looks, sparse)
    _stack(axes, np.clip(heights, None, 0), looks, sparse)
    axes.axhline(0, color="black", linewidth=0.8)


def _finish(axes: Axes, explained: Explained, row: int) -> None:
    axes.set_xlabel("steps ahead")
    axes.set_xlim(-0.5, explained.horizon - 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.spines[["top", "right"]].set_visible(False)
    if explained.unknown[row].any():
        _hang_unknown(axes, explained.unknown[row])
    if not explained.known[row]:
        axes.text(0.5, 0.5, "never tried: unknown", transform=axes.transAxes, ha="center", **LABEL)
    elif explained.sparse[row] and explained.counted:
        _say_below(axes, f"not enough data: {_visits(explained, row)}")


def _visits(explained: Explained, row: int) -> str:
    sides = [explained] if isinstance(explained, Explanation) else [explained.fact, explained.foil]
    fewest = min(float(side.support[row]) for side in sides)
    return f"{fewest:.0f} visit{'' if fewest == 1 else 's'}"


def _say_untold(axes: Axes, explained: Explained, row: int, names: Sequence[str], by: bool = False) -> None:
    """Name the outcomes without a line because they are not learned, at each step or (`by`) up to it."""
    fact = explained if isinstance(explained, Explanation) else explained.fact
    told = explained.told.by[row] if by else explained.told.at[row]
    columns = {name.removeprefix(FIRST): told[:, fact.legend.names.index(name)] for name in names}
    never = [name for name, steps in columns.items() if not steps.any()]
    partly = [name for name, steps in columns.items() if steps.any() and not steps.all()]
    if names and len(never) == len(columns):
        axes.set_yticks([])
        axes.text(0.5, 0.6, UNTOLD_WORDS, transform=axes.transAxes, ha="center", color="#666666")
        return
    for kind, found in ((UNTOLD_WORDS, never), ("not learned at some steps", partly)):
        if found:
            _say_below(axes, f"{kind}: {_listed(found)}")


def _listed(names: Sequence[str]) -> str:
    """As many names as fit below a plot."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _say_below(axes: Axes, words: str) -> None:
    """Write a remark below the axis, where it covers nothing; repeated remarks are written once."""
    below = next((text for text in axes.texts if text.get_gid() == BELOW_AXIS), None)
    if below is None:
        below = axes.annotate("", (0, 0), (0, -ROOM_OF_AXIS), "axes fraction", "offset points", va="top")
        below.set(gid=BELOW_AXIS, fontsize=8, style="italic")
    said = below.get_text().replace("\n", " ").split("; ")
    if words not in said:
        below.set_text(textwrap.fill("; ".join(filter(None, [*said, words])), LINE_BELOW))


def _hang_unknown(axes: Axes, unknown: FloatArray) -> None:
    """The probability [step] that the future is unknown, hanging from the top; the full height is 1."""
    edges = np.arange(len(unknown) + 1) - 0.5
    band = StepPatch(1 - unknown, edges, baseline=1, fill=True, zorder=0.5, **UNKNOWN)
    band.set_transform(axes.get_xaxis_transform())
    axes.add_artist(band)


def key(figure: Figure, explanation: Explanation) -> None:
    """One legend for the whole figure, below it."""
    names = explanation.legend.names
    handles: list[Artist] = []
    bars = (*explanation.legend.partition, *_reward_names(explanation))
    for name in names:
        event = name.removeprefix(FIRST)
        if name in bars:
            handles.append(Patch(label=name, **style(names, name)))
        elif event == name or event not in names:
            handles.append(Line2D([], [], label=event, marker=".", **line_style(names, event)))
    tracked = explanation.unknown.any()
    if explanation.legend.partition:
        # the remainder to 1, which includes the unknown unless that is shown separately
        label = "terminated" if tracked else "terminated/unknown"
        handles.append(Patch(label=label, facecolor=ENDED_COLOUR))
    if tracked:
        handles.append(Patch(label="unknown", **UNKNOWN))
    if explanation.legend.partition and not explanation.told.at.all():
        handles.append(Patch(label="not learned", **NOT_LEARNED))
    if explanation.legend.reward_bound is not None:
        handles.append(Line2D([], [], label="total", color="black", marker="."))
    if explanation.banded and not explanation.certain.all():
        handles.append(Patch(label=f"{LEVEL:.0%} band", facecolor="#BBBBBB"))
    figure.legend(handles=handles, loc="lower center", ncols=KEY_COLUMNS, frameon=False)


def over_seeds(
    title: str, groups: Mapping[str, Sequence[str]], explanations: Mapping[str, Explanation], row: int
) -> Figure:
    """One line per seed, until its future is unknown; one column per group of seeds with one strategy."""
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
                values = np.where(own.told.at[row, :, k], own.expected[row, :, k], np.nan)
                axes.plot(as_far_as_known(own, row, values), **look)
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
