"""Tables of errors, forecasts, verdicts and bands, for the terminal."""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from tpd.core.bands import LEVEL
from tpd.core.outcomes import FIRST
from tpd.core.verdicts import Verdict
from tpd.evaluation.errors import METRICS, OVERALL
from tpd.evaluation.fresh_episodes import FOIL, POLICY
from tpd.show.console import empty_table

HEADINGS = {
    "pi_mse": "policy's action, MSE",
    "foil_mse": "other actions, MSE",
    "pi_max": "policy's action, max error",
    "foil_max": "other actions, max error",
    "pi_covered": "policy's action, in band",
    "foil_covered": "other actions, in band",
}
BY = "by "
COVERED = ("pi_covered", "foil_covered")
Reference = Mapping[str, Mapping[str, tuple[float, float]]]
"""outcome -> metric -> (mean, standard deviation)"""


def error_table(
    title: str, mean: pd.DataFrame, std: pd.DataFrame | None = None, reference: Reference | None = None
) -> Table:
    """One row per outcome, one column per metric; reference values are shown below each value."""
    reference = {outcome: figures for outcome, figures in (reference or {}).items() if outcome in mean.index}
    table = empty_table(title, "outcome", *(HEADINGS[metric] for metric in shown(mean)))
    for outcome in mean.index:
        cells = []
        known = reference.get(outcome, {})
        for metric in shown(mean):
            cell = Text(figure(metric, outcome, mean, std))
            if metric in known:
                cell.append(f"\n{_with_deviation(*known[metric])}", style="dim")
            cells.append(cell)
        table.add_row(outcome, *cells, end_section=bool(reference))
    if reference:
        table.caption = "below each value: the reference"
    return table


def shown(errors: pd.DataFrame) -> list[str]:
    """The columns of an error table; band coverage only if there are bands."""
    return [*METRICS, *(metric for metric in COVERED if metric in errors)]


def figure(metric: str, outcome: str, mean: pd.DataFrame, std: pd.DataFrame | None = None) -> str:
    """An error with its standard deviation, if there is one, or the coverage of a band."""
    value = float(mean[metric][outcome])
    if metric in COVERED:
        return "-" if math.isnan(value) else f"{value:.0%}"
    return _with_deviation(value, None if std is None else float(std[metric][outcome]))


def verdict_rows(forecasts: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings, and one row per outcome: whether it is learned by each step, for each kind of action."""
    judged = forecasts[forecasts["range"].str.startswith(BY)]
    keys = zip(judged["actions"], judged["outcome"], judged["range"], strict=True)
    found = dict(zip(keys, judged.to_dict("records"), strict=True))
    words = {POLICY: "policy's action", FOIL: "other actions"}
    kinds = [kind for kind in words if kind in set(judged["actions"])]
    places = [(kind, by) for kind in kinds for by in dict.fromkeys(judged["range"])]
    outcomes = list(dict.fromkeys(judged["outcome"]))
    rows = [
        [outcome.removeprefix(FIRST), *(_verdict(found[kind, outcome, by]) for kind, by in places)]
        for outcome in outcomes
        if FIRST + outcome not in outcomes  # whether it has happened is more informative than how often
    ]
    return [f"{words[kind]}, by step {by.removeprefix(BY)}" for kind, by in places], rows


def verdict_table(title: str, forecasts: pd.DataFrame) -> Table:
    """The table of `verdict_rows`, with a caption."""
    headings, rows = verdict_rows(forecasts)
    table = empty_table(title, "outcome", *headings)
    for row in rows:
        table.add_row(*row)
    if (forecasts["verdict"] == Verdict.UNANSWERABLE.words).all():
        table.caption = "this method predicts no single steps, so fresh episodes cannot judge it"
        return table
    table.caption = (
        "learned: the skill in fresh episodes, as shown, exceeds 0.1 with 99 % confidence; too rare: fewer "
        "than 20 episodes with the event, as shown, or without it. If an event is not learned, use more "
        "transitions (training.steps); if it is too rare, more episodes (evaluation.forecast_episodes). For "
        "an estimate by rollouts, ask about a recorded step (tpd-explain run=... episode=... step=...)"
    )
    return table


def _verdict(row: Mapping[Any, Any]) -> str:
    """A verdict with its skill or, if it is too rare, the number of episodes in which it happens."""
    if row["verdict"] == Verdict.TOO_RARE.words:
        return f"too rare: {row['episodes']:.0f}"
    return str(row["verdict"]) if math.isnan(row["skill"]) else f"{row['verdict']} {row['skill']:.2f}"


def forecast_table(title: str, frame: pd.DataFrame) -> Table:
    """One row per outcome: its base rate, and the skill of its forecasts by steps ahead."""
    frame = at_each_step(frame)
    ranges = list(dict.fromkeys(frame["range"]))
    skills = ("skill, all" if steps == "all" else f"{steps} ahead" for steps in ranges)
    table = empty_table(title, "outcome", "mean", *skills)
    rows = frame.set_index(["outcome", "range"])
    for outcome in dict.fromkeys(frame["outcome"]):
        cells = [f"{rows.loc[(outcome, steps), 'skill']:.3f}" for steps in ranges]
        table.add_row(outcome, f"{rows.loc[(outcome, ranges[-1]), 'base_rate']:.3g}", *cells)
    table.caption = "skill: 1 is perfect, 0 is the base rate; nan if it never varies or is not predicted"
    return table


def band_table(title: str, frame: pd.DataFrame) -> Table:
    """One row per event: the coverage of its bands by forecast probability, and their value."""
    shares = [str(name) for name in frame if str(name).startswith("covered")]
    scores = ["interval score", "constant band score"]
    headings = ("event", "actions", *(share.removeprefix("covered, ") for share in shares), *scores)
    table = empty_table(title, *headings, texts=2)
    for row in frame.to_dict("records"):
        cells = [_held(row[share], row[share.replace("covered", "moments")]) for share in shares]
        table.add_row(row["event"], row["actions"], *cells, *(f"{row[score]:.3f}" for score in scores))
    table.caption = (
        f"share of {LEVEL:.0%} bands that contain the ground truth, by size of the forecast, and the number "
        "of moments; interval score (lower is better): width of the band plus 20 times the distance to a "
        "ground truth outside it, next to that of the base rate's band"
    )
    return table


def _held(share: float, moments: float) -> str:
    return f"{share:.0%} of {moments:.0f}" if moments else "-"


def at_each_step(forecasts: pd.DataFrame) -> pd.DataFrame:
    """The forecasts for the policy's actions at single steps."""
    return forecasts[(forecasts["actions"] == POLICY) & ~forecasts["range"].str.startswith(BY)]


def overall(metrics: Mapping[str, float]) -> str:
    """A summary line besides the errors: known pairs, coverage of bands, contradictions with the agent."""
    pi, foil, contradicted = (metrics[name] for name in OVERALL)
    said = (
        f"tried state-action pairs: {_share(pi)} with the policy's action, {_share(foil)} with other actions"
    )
    for name, actions in {"pi": "the policy's actions", "foil": "other actions"}.items():
        if not math.isnan(covered := metrics.get(f"covered/{name}", math.nan)):
            said += (
                f"\n{metrics[f'judged/{name}']:.1%} of the predictions for {actions} have a {LEVEL:.0%} "
                f"band, and {covered:.1%} of these bands contain the ground truth"
            )
    if not math.isnan(contradicted):
        said += (
            f"\nin {contradicted:.1%} of the visits another action has a higher expected return than the "
            "agent's, where its return is known"
        )
    return said


def _share(part: float) -> str:
    """A percentage, rounded down: only 1 gives 100 %."""
    return f"{math.floor(part * 10_000 + 1e-6) / 10_000:.2%}"


def _with_deviation(mean: float, std: float | None) -> str:
    return f"{mean:.2e}" if std is None else f"{mean:.2e} ± {std:.1e}"
