"""Markdown for the notes of runs, which MLflow's UI shows first."""

import html
import math
import re
import shlex
from collections.abc import Mapping, Sequence

import pandas as pd

from tpd.show.tables import HEADINGS, at_each_step, figure, shown, verdict_rows

GAP, ROOM = "&emsp;", "\n\n&nbsp;"  # the UI leaves no space between the columns of a table, nor below it
MOST_RUNS = 30
WIDEST_LINE = 80


def escaped(text: object) -> str:
    """Escape text from outside, so that it is not parsed as Markdown or HTML."""
    one_line = " ".join(str(text).split())
    return re.sub(r"([\\`*_{}\[\]()#+!|~-])", r"\\\1", html.escape(one_line, quote=False))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the cells are already Markdown."""
    rule = ["---"] * len(headings)
    lines = [headings, rule, *rows]
    spaced = [[line[0], *(cell if line is rule else GAP + cell for cell in line[1:])] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in spaced) + ROOM


def command(does: str, *words: str) -> str:
    """A quoted shell command, below a line that says what it does."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(lines[-1]) + len(word) > WIDEST_LINE:
            lines.append("   ")
        lines[-1] += f" {word}"
    whole = " \\\n".join(lines).lstrip()
    return f"{does}\n\n{code(whole)}"


def code(text: str) -> str:
    """A verbatim block; indented, so that nothing in the text can end it."""
    return "\n".join(f"    {line}" for line in text.splitlines())


def error_table(mean: pd.DataFrame, std: pd.DataFrame | None = None) -> str:
    """One row per outcome, one column per metric."""
    metrics = shown(mean)
    rows = [[escaped(name), *(figure(metric, name, mean, std) for metric in metrics)] for name in mean.index]
    return table(["error of", *(HEADINGS[metric] for metric in metrics)], rows)


def skill_table(forecasts: pd.DataFrame) -> str:
    """One row per outcome, one column per range of steps."""
    forecasts = at_each_step(forecasts)
    ranges = list(dict.fromkeys(forecasts["range"]))
    skills = forecasts.set_index(["outcome", "range"])["skill"]
    rows = [
        [escaped(outcome), *(_known(skills[outcome, steps], ".3f") for steps in ranges)]
        for outcome in dict.fromkeys(forecasts["outcome"])
    ]
    headings = ("all steps" if steps == "all" else f"{steps} ahead" for steps in ranges)
    return table(["skill of", *headings], rows)


def verdict_table(forecasts: pd.DataFrame) -> str:
    """One row per outcome: what is learned by each step, after the policy's actions and after others."""
    headings, rows = verdict_rows(forecasts)
    return table(["learned", *headings], [[escaped(name), *cells] for name, *cells in rows])


def headlines(errors: pd.DataFrame | None, forecasts: pd.DataFrame | None) -> dict[str, float]:
    """The headline numbers of a run: means over the outcomes."""
    found = dict[str, float]()
    if errors is not None:
        found |= {HEADINGS[metric]: float(errors[metric].mean()) for metric in ("pi_mse", "foil_mse")}
    if forecasts is not None:
        own = at_each_step(forecasts)
        found["skill"] = float(own.loc[own["range"] == "all", "skill"].mean())
    return found


def run_table(runs: Mapping[str, Mapping[str, float]]) -> str:
    """One row per run, with a link and its headline numbers."""
    columns = list(dict.fromkeys(column for found in runs.values() for column in found))
    rows = [
        [link, *(_known(found.get(column, math.nan), ".3g") for column in columns)]
        for link, found in list(runs.items())[:MOST_RUNS]
    ]
    shown = table(["run", *columns], rows)
    return shown if len(runs) <= MOST_RUNS else f"{shown}\n\nand {len(runs) - MOST_RUNS} more"


def _known(value: float, form: str) -> str:
    """A formatted number; a dash for NaN."""
    return "-" if math.isnan(value) else format(value, form)
