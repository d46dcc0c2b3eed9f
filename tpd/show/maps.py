"""Maps of a strategy, for environments whose states have fields."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tpd.core.colours import colour
from tpd.core.formats import percent
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import Array, FloatArray
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer
from tpd.show.atlas import EVEN, Atlas, MapSpec, known_from, threshold
from tpd.show.plots import UNKNOWN

STEPS_COLOURS = "cividis_r"
EDGES = "#CCCCCC"
MOST_COLUMNS = 7
CELL, GAP = 0.24, 1.3  # in inches, and in cells
FULL_SQUARE = 0.92
"""Side of the largest square, in cells."""
SAMPLES = (1.0, 0.5, 0.1)
"""Probabilities shown in the legend of square sizes."""


def draw(explainer: Explainer, env: Environment, spec: MapSpec) -> dict[str, Figure]:
    """Maps of each event whose first occurrence is explained, by file name.

    They show its probability within the horizon, the panel from which on it is likely or unlikely and, if it
    is rewarded, the expected number of steps to it.
    """
    atlas, legend = Atlas.explore(explainer, env, spec), explainer.legend
    rewards = dict(zip(legend.names, legend.weights, strict=True))
    figures = {}
    for first in (name for name in legend.names if name.startswith(FIRST)):
        event = first.removeprefix(FIRST)
        name = event.replace(" ", "_")
        figures[f"{name}_likely"] = likely_map(atlas, first)
        if spec.panels is not None:
            figures[f"{name}_threshold"] = threshold_map(atlas, first)
        if (rewards.get(event) or 0) > 0:
            figures[f"{name}_steps"] = steps_map(atlas, first)
    return figures


def likely_map(atlas: Atlas, first: str) -> Figure:
    """The probability of the event within the horizon, in every state."""
    figure, pages = _panels(atlas, f"How likely {first.removeprefix(FIRST)} is within {atlas.horizon} steps")
    shades = _shades(atlas.explanation.legend, first)
    for (axes, x, y), likely in zip(pages, atlas.likely(first), strict=True):
        _cells(axes, x, y, likely, shades)
    _bar(figure, shades, "probability")
    return figure


def steps_map(atlas: Atlas, first: str) -> Figure:
    """The expected number of steps to the event, if it happens; the square's area is its probability."""
    event = first.removeprefix(FIRST)
    title = f"Expected steps to {event} if it happens; area: how likely that is within {atlas.horizon} steps"
    figure, pages = _panels(atlas, title)
    likely, ahead = atlas.likely(first), atlas.steps_to(first)
    blank = _shades(atlas.explanation.legend, None)
    shades = ScalarMappable(Normalize(0, float(np.nanmax(ahead, initial=1))), STEPS_COLOURS)
    for page, (axes, x, y) in enumerate(pages):
        _cells(axes, x, y, np.where(np.isnan(likely[page]), np.nan, 0), blank)
        _cells(axes, x, y, ahead[page], shades, np.sqrt(likely[page]))
    _bar(figure, shades, f"expected steps until {event}")
    _size_key(figure)
    return figure


def fragile_map(atlas: Atlas, outcome: str, now: float, moves: FloatArray) -> Figure:
    """The change of an outcome's reward [state] at which another action overtakes; dark means a small change.

    NaN if it is unknown or was not computed, infinite if no other action ever overtakes.
    """
    title = f"Smallest change of the reward of {outcome}, now {now:g}, at which another action overtakes"
    figure, pages = _panels(atlas, title)
    size = max(abs(now), 1.0)
    shades = ScalarMappable(LogNorm(size / 100, size * 10), "Greys_r")
    shown = np.clip(moves, size / 100, size * 10).reshape(atlas.shape)
    for (axes, x, y), page in zip(pages, shown, strict=True):
        _cells(axes, x, y, page, shades)
    _bar(figure, shades, "smallest change of the reward")
    return figure


def threshold_map(atlas: Atlas, first: str) -> Figure:
    """All panels side by side for each cell, and the panel from which on the event is likely or unlikely."""
    event, panels = first.removeprefix(FIRST), atlas.spec.panels
    title = f"{event} within {atlas.horizon} steps: "
    title += f"the {panels} from which on it is likely (dark) or unlikely (pale); ·: for every {panels}"
    pages, count, down, across = atlas.shape
    width, height = (across + count + 10) * CELL * 1.3, pages * (down * (across + 1) + 3) * CELL * 0.8 + 0.6
    figure = Figure(figsize=(width + 1, height), dpi=110)
    ratios = {"width_ratios": (across + 2, count + 2), "wspace": 0.3, "hspace": 0.2}
    inside = {"left": 0.05, "right": 1 - 0.9 / width, "top": 1 - 1.0 / height, "bottom": 0.5 / height}
    grid = figure.subplots(pages, 2, squeeze=False, gridspec_kw={**ratios, **inside})
    shades = _shades(atlas.explanation.legend, first)
    for page, likely in enumerate(atlas.likely(first)):
        _numbers(grid[page, 0], atlas, likely, shades)
        _name_page(grid[page, 0], atlas, page)
        grid[page, 0].set_anchor("N")
        _unrolled(grid[page, 1], atlas, likely, shades)
    _bar(figure, shades, "probability")
    figure.suptitle(title, fontsize=11)
    return figure


def _numbers(axes: Axes, atlas: Atlas, likely: FloatArray, shades: ScalarMappable) -> None:
    """The map of thresholds, coloured by the last known panel."""
    _, down, across = likely.shape
    y, x = np.indices((down, across))
    last = np.full((down, across), np.nan)
    for place in np.ndindex(down, across):
        every = likely[(slice(None), *place)]
        if (begin := known_from(every)) is None:
            continue
        last[place] = every[-1]
        found = threshold(every[begin:])
        found = None if found is None else found + begin
        said = "·" if found is None else _word(atlas.values[1][found])
        ink = "white" if last[place] > EVEN else "black"
        axes.text(place[1], place[0], said, ha="center", va="center", color=ink, fontsize=10)
    _cells(axes, x, y, last, shades)
    _name_ticks(axes, atlas, x.max(), y.max())


def _unrolled(axes: Axes, atlas: Atlas, likely: FloatArray, shades: ScalarMappable) -> None:
    """Panels across, all cells down."""
    count, down, across = likely.shape
    at = np.indices(likely.shape)
    x, y = at[0], at[1] * (across + 1) + at[2]
    _cells(axes, x, y, likely, shades)
    axes.set_xticks(range(count), [_word(value) for value in atlas.values[1]], fontsize=7)
    axes.set_xlabel(str(atlas.spec.panels), fontsize=9)
    axes.text(-0.8, -0.9, atlas.spec.across, ha="right", fontsize=7)
    axes.set_yticks(y[0].ravel(), [_word(value) for value in atlas.values[3]] * down, fontsize=6)
    axes.tick_params(length=0)
    for r, value in enumerate(atlas.values[2]):
        place = (-2.1, r * (across + 1) + (across - 1) / 2)
        said = f"{atlas.spec.down} {_word(value)}"
        axes.text(*place, said, ha="center", va="center", rotation=90, fontsize=8)
    axes.set_aspect("auto")


def _panels(atlas: Atlas, title: str) -> tuple[Figure, list[tuple[Axes, Array, Array]]]:
    """A figure with axes for each page, and the positions [panel, down, across] of the cells."""
    pages, count, down, across = atlas.shape
    columns = min(count, MOST_COLUMNS)
    panel, row, column = np.indices((count, down, across))
    x = panel % columns * (across + GAP) + column
    y = panel // columns * (down + GAP) + row
    width, height = (x.max() + 2) * CELL + 1.6, pages * ((y.max() + 3) * CELL + 0.5) + 0.9
    figure = Figure(figsize=(width, height), dpi=110)
    inside = {
        "left": 0.6 / width,
        "right": 1 - 1.2 / width,
        "top": 1 - 0.95 / height,
        "bottom": 0.25 / height,
    }
    grid = figure.subplots(pages, 1, squeeze=False, gridspec_kw={**inside, "hspace": 0.2})
    for page, axes in enumerate(grid[:, 0]):
        _name_page(axes, atlas, page)
        _name_ticks(axes, atlas, across - 1, down - 1)
        for p, value in enumerate(atlas.values[1] if atlas.spec.panels else ()):
            place = (x[p].mean(), y[p].min() - 0.65)
            axes.text(*place, f"{atlas.spec.panels} {_word(value)}", ha="center", va="bottom", fontsize=8)
    figure.suptitle(title, fontsize=12)
    return figure, [(axes, x, y) for axes in grid[:, 0]]


def _cells(
    axes: Axes, x: Array, y: Array, values: FloatArray, shades: ScalarMappable, side: FloatArray | None = None
) -> None:
    """Squares coloured by value, with these centres and sides; hatched where the value is NaN.

    If `side` is given, squares without a value are left out.
    """
    known, own = ~np.isnan(values), side is not None
    corners = _corners(x, y, FULL_SQUARE * side if side is not None else np.ones(values.shape))
    drawn = PolyCollection(list(corners[known]), linewidth=0.5, edgecolor="none" if own else EDGES)
    drawn.set(array=values[known], cmap=shades.cmap, norm=shades.norm)
    axes.add_collection(drawn, autolim=False)
    if not own:
        axes.add_collection(PolyCollection(list(corners[~known]), **UNKNOWN), autolim=False)
    axes.set(xlim=(x.min() - 0.6, x.max() + 0.6), ylim=(y.max() + 0.6, y.min() - 0.6), aspect="equal")
    axes.spines[:].set_visible(False)


def _corners(x: Array, y: Array, side: FloatArray) -> FloatArray:
    """[..., 4, 2]: the corners of squares around centres [...]."""
    around = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    return np.asarray(np.stack([x, y], axis=-1)[..., None, :] + side[..., None, None] * around)


def _name_page(axes: Axes, atlas: Atlas, page: int) -> None:
    if atlas.spec.pages is not None:
        name = f"{atlas.spec.pages}: {_word(atlas.values[0][page])}"
        axes.set_title(name, loc="left", fontsize=11, fontweight="bold", pad=18)


def _name_ticks(axes: Axes, atlas: Atlas, right: int, bottom: int) -> None:
    """Tick labels of the fields within a map, at its left and lower edge."""
    axes.set_xticks(range(right + 1), [_word(value) for value in atlas.values[3]], fontsize=7)
    axes.set_yticks(range(bottom + 1), [_word(value) for value in atlas.values[2]], fontsize=7)
    axes.set_xlabel(atlas.spec.across, fontsize=9, loc="left")
    axes.set_ylabel(atlas.spec.down, fontsize=9, loc="top")
    axes.tick_params(length=0)


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _shades(legend: Legend, first: str | None) -> ScalarMappable:
    """Colour map for probabilities: from white through the colour of the event to a dark shade of it."""
    hue = np.array(to_rgb("white" if first is None else colour(legend.names, first)))
    shades = LinearSegmentedColormap.from_list("likely", ["white", (*hue,), (*(0.45 * hue),)])
    return ScalarMappable(Normalize(0, 1), shades)


def _bar(figure: Figure, shades: ScalarMappable, label: str) -> None:
    width, height = figure.get_size_inches()
    axes = figure.add_axes((1 - 0.95 / width, 0.5 - 1.2 / height, 0.18 / width, 2.4 / height))
    figure.colorbar(shades, cax=axes, label=label)
    unknown = figure.add_axes((1 - 0.95 / width, 0.5 - 1.75 / height, 0.18 / width, 0.18 / height))
    unknown.add_patch(Rectangle((0, 0), 1, 1, **UNKNOWN))
    unknown.set(xticks=(), yticks=())
    unknown.text(1.3, 0.5, "unknown", va="center", fontsize=8)


def _size_key(figure: Figure) -> None:
    """The legend of square sizes."""
    width, height = figure.get_size_inches()
    for i, likely in enumerate(SAMPLES):
        place = (1 - 0.95 / width, 0.5 + (1.55 + 0.32 * i) / height, CELL / width, CELL / height)
        axes = figure.add_axes(place)
        axes.set(xlim=(-0.5, 0.5), ylim=(-0.5, 0.5), xticks=(), yticks=())
        side = FULL_SQUARE * np.sqrt(likely)
        axes.add_patch(Rectangle((-side / 2, -side / 2), side, side, color="#777777"))
        axes.text(0.8, 0, percent(likely), va="center", fontsize=8)
