"""Write the tables and picture of docs/results/comparison.md, from the results of `scripts/comparison.py`."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from comparison_results import NAMES, NONE, WORLDS, Row, by_world, gathered, number, power
from comparison_scores import STEPS

matplotlib.use("agg")
from matplotlib import pyplot as plt

OURS = ("replayed", "auto")
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
WITHIN = 0.05
"""The skill that ours may lose, relative to the best learning method."""
LEGEND = """Red: tpd's default methods.

Higher and further to the left is better.

Rollouts of the simulator are drawn
at their number.

Deterministic environments are left out:
there, a single rollout is exact."""
R_SQUARED = "R² of the surrogate"
NEAR = (1.3, 0.4)
"""Distances in powers of ten, of cost and accuracy, within which names of points would overlap."""


def write_report(folder: Path, page: Path) -> None:
    """Insert the tables between two marks of the page; write the picture and all results beside it."""
    markdown = page.with_suffix(".md")
    if not markdown.exists():
        raise SystemExit(f"there is no page {markdown}: make one with the lines {BEGIN} and {END}")
    found = by_world(gathered(folder, page.with_suffix(".json")))
    if not found:
        raise SystemExit(f"nothing was measured in {folder}")
    text = "\n\n".join([best(found), *(section(world, rows) for world, rows in found.items())])
    before = markdown.read_text()
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(before):
        raise SystemExit(f"{markdown} has no place for the tables: {BEGIN} ... {END}")
    markdown.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", before))
    picture(found, page.with_suffix(".png"))


def section(world: str, rows: Sequence[Row]) -> str:
    """Both tables of one world."""
    seeds = sorted({len(row.seeds) for row in rows})
    sizes = [size for row in rows for size in row.sizes]
    moments, episodes = (sorted({*each}) for each in zip(*sizes, strict=True))
    counted = f"{_span(seeds)} seed{'s' * (seeds != [1])}"
    measured = f"{counted}, {_span(moments)} moments and {_span(episodes)} fresh episodes for each."
    surrogates = [_faithful(row) for row in rows if row.values(R_SQUARED)]
    if surrogates:
        measured += f" R² of the surrogate of the GVFs, {', '.join(surrogates)}."
    return f"### {WORLDS[world]} ({counted})\n\n{measured}\n\n{_accuracy(rows)}\n\n{_cost(rows)}"


def _span(values: Sequence[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"


def _faithful(row: Row) -> str:
    values = row.values(R_SQUARED)
    ends = dict.fromkeys(f"{value:.3f}" for value in (min(values), max(values)))
    return f"{power(row.transitions)}: {' to '.join(ends)}"


def _accuracy(rows: Sequence[Row]) -> str:
    steps = " / ".join(map(str, STEPS))
    heads = (
        "method, transitions",
        "pairs answered",
        f"mse at step {steps}",
        f"mse by step {steps}",
        "Brier skill by step 29",
        "90 % bands hold",
        "interval score",
        "contrasts with the wrong sign, or predicted as 0",
    )
    return _table(
        heads,
        (
            (
                row.name,
                row.cell("known", percent=True),
                _three(row, "at"),
                _three(row, "by"),
                row.cell(*row.skill_names()) if row.skill_names() else NONE,
                row.cell("covered", percent=True),
                row.cell("interval score"),
                row.cell("wrong sign", percent=True),
            )
            for row in rows
        ),
    )


def _cost(rows: Sequence[Row]) -> str:
    heads = (
        "method, transitions",
        "equivalent rollouts, policy's action / foil",
        "CPU s to collect and learn",
        "CPU s per answer",
        "MB kept",
        "break-even number of questions",
    )
    rollout = seconds_of_a_rollout(rows)
    return _table(
        heads,
        (
            (
                row.name,
                " / ".join(row.cell(f"by rollouts, {whose}") for whose in ("policy", "foil")),
                number(row.seconds) if row.transitions else "0",
                number(row.median("seconds an answer")),
                number(row.mean("bytes") / 1e6) if row.transitions else "0",
                _pays(row, rollout),
            )
            for row in rows
        ),
    )


def seconds_of_a_rollout(rows: Sequence[Row]) -> float:
    """CPU seconds of one simulator rollout of both actions."""
    by_many = [row.median("seconds an answer") / 200 for row in rows if row.method == "rollouts_200"]
    return by_many[0] if by_many else float("nan")


def _pays(row: Row, rollout: float) -> str:
    """The number of questions from which on learning is cheaper than equally accurate rollouts."""
    equivalent = row.mean("by rollouts")
    if not row.transitions or np.isnan(equivalent) or np.isnan(rollout):
        return NONE
    saved = equivalent * rollout - row.median("seconds an answer")
    if saved <= 0:
        return "never"
    if np.isinf(saved):
        return "1"
    return str(int(np.ceil(row.seconds / saved)))


def best(found: Mapping[str, Sequence[Row]]) -> str:
    """Ours against the best learning method, by decisive event: the Brier skill, and the mse of "by h"."""
    heads = (
        "environment: event",
        "transitions",
        f"Brier skill by {STEPS[-1]}",
        "best skill",
        f"within {100 * WITHIN:.0f} %",
        "mse by step h, mean over h",
        "smallest such mse",
    )
    lines = list[Sequence[str]]()
    for world, rows in found.items():
        for ours in (row for row in rows if row.method in OURS):
            here = [row for row in rows if row.transitions == ours.transitions]
            for name in ours.skill_names():
                event = name.partition(":")[0]
                skill, mse = max(_known(here, name)), min(_known(here, f"{event}: by all"))
                lost = skill[0] - ours.mean(name)
                within = NONE if np.isnan(lost) else "yes" if lost <= WITHIN * abs(skill[0]) else "**no**"
                lines.append(
                    (
                        f"{WORLDS[world]}: {event}",
                        power(ours.transitions),
                        _skill(ours.mean(name), ours.method),
                        _skill(*skill),
                        within,
                        f"{number(ours.mean(f'{event}: by all'))} `{ours.method}`",
                        f"{number(mse[0])} `{mse[1]}`",
                    )
                )
    return f"### tpd against the best learning method\n\n{_table(heads, lines)}"


def _skill(value: float, method: str) -> str:
    return NONE if np.isnan(value) else f"{value:.3f} `{method}`"


def _known(rows: Sequence[Row], name: str) -> list[tuple[float, str]]:
    """The figure of each row that has it, with the method; if none has, NaN."""
    found = [(row.mean(name), row.method) for row in rows if row.values(name)]
    return found or [(np.nan, NONE)]


def picture(found: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Accuracy against the cost of an answer: one point per method, one panel per stochastic world.

    Worlds without rollouts of the simulator, to compare with, are left out. These are drawn at their number.
    """
    panels = {
        world: rows for world, rows in found.items() if any(_placed(r) and not r.transitions for r in rows)
    }
    if not panels:
        return
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    size = 5.2 * columns, 4.6 * lines
    figure, axes = plt.subplots(
        lines, columns, figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for panel in axes.flat[len(panels) :]:
        panel.axis("off")
        panel.text(0, 0.5, LEGEND, transform=panel.transAxes, va="center", fontsize=9)
    for panel, (world, rows) in zip(axes.flat, panels.items(), strict=False):
        most = max(row.transitions for row in rows)
        shown = [row for row in rows if row.transitions in (0, most)]
        named = list[tuple[float, float]]()
        for row in sorted(filter(_placed, shown), key=lambda row: -row.mean("by rollouts")):
            ours, simulated = row.method in OURS, not row.transitions
            accuracy = float(row.method.removeprefix("rollouts_")) if simulated else row.mean("by rollouts")
            place = row.median("seconds an answer"), accuracy
            near = sum((np.abs(np.log10(place) - np.log10(other)) < NEAR).all() for other in named)
            left = simulated or near > 1
            named.append(place)
            panel.plot(*place, "o", color="C3" if ours else "C0", markersize=9 if ours else 6)
            panel.annotate(
                row.name,
                place,
                textcoords="offset points",
                xytext=(-7, -13) if left else (7, 4 - 13 * near),
                ha="right" if left else "left",
                fontsize=8,
                fontweight="bold" if ours else "normal",
            )
        silent = dict.fromkeys(NAMES[row.method] for row in shown if np.isnan(row.mean("by 29")))
        without = textwrap.fill(f"no probability over time: {', '.join(silent)}", 60) if silent else ""
        panel.set_xlabel(f"CPU seconds per answer\n{without}", fontsize=8)
        panel.set(xscale="log", yscale="log", title=WORLDS[world])
        panel.margins(0.25)
        panel.grid(alpha=0.3)
    for panel in axes[:, 0]:
        panel.set_ylabel("accuracy: rollouts that are as good\n(has it happened by step h?)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _placed(row: Row) -> bool:
    """Whether its accuracy in rollouts is known."""
    return bool(np.isfinite(row.mean("by rollouts")))


def _three(row: Row, what: str) -> str:
    cells = [number(row.mean(f"{what} {h}")) for h in STEPS]
    return NONE if set(cells) == {NONE} else " / ".join(cells)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
