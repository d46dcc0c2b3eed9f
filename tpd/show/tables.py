"""The error table, for the terminal."""

import math
from collections.abc import Mapping

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpd.evaluate import METRICS

HEADINGS = {
    "pi_mse": "policy's action, MSE",
    "foil_mse": "other actions, MSE",
    "pi_max": "policy's action, max",
    "foil_max": "other actions, max",
}
Reference = Mapping[str, Mapping[str, tuple[float, float]]]
"""outcome -> metric -> (mean, standard deviation)"""


def error_table(
    title: str, mean: pd.DataFrame, std: pd.DataFrame | None = None, reference: Reference | None = None
) -> Table:
    """Rows of outcomes, columns of metrics; the reference figures stand below each value."""
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("outcome")
    for metric in METRICS:
        table.add_column(HEADINGS[metric], justify="right")
    for outcome in mean.index:
        cells = []
        known = (reference or {}).get(outcome, {})
        for metric in METRICS:
            deviation = None if std is None else float(std.loc[outcome, metric])
            cell = Text(_figure(float(mean.loc[outcome, metric]), deviation))
            if metric in known:
                cell.append(f"\n{_figure(*known[metric])}", style="dim")
            cells.append(cell)
        table.add_row(outcome, *cells, end_section=bool(reference))
    if reference:
        table.caption = "below each value: the reference"
    return table


def overall(metrics: Mapping[str, float]) -> str:
    """What the errors do not say: how much is known, and how often the explanations contradict the agent."""
    pi, foil, contradicted = (metrics[name] for name in ("known/pi", "known/foil", "disagreement"))
    said = f"known pairs: {pi:.2%} of the policy's actions, {foil:.2%} of the others"
    if not math.isnan(contradicted):
        said += (
            f"\nin {contradicted:.1%} of the visits the explanations favour another action than the agent's"
        )
    return said


def show(table: Table) -> None:
    """Print to the terminal, wide enough for pipes and logs too."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    console.print(table)


def _figure(mean: float, std: float | None) -> str:
    return f"{mean:.2e}" if std is None else f"{mean:.2e} ± {std:.1e}"
