"""Tables for single answers, printed by `tpd-explain`."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.table import Table

from tpd.answers import what_if
from tpd.answers.answer import return_row
from tpd.answers.sentences.formatting import worth
from tpd.core.bands import LEVEL, Band
from tpd.core.contrast import Contrast
from tpd.core.distributions import BoundedDistribution
from tpd.core.explanation import TOLERATED, Explained, Explanation
from tpd.core.outcomes import FIRST
from tpd.core.types import FloatArray
from tpd.core.verdicts import Verdict
from tpd.show.console import empty_table

EXACT = "exact"
ROLLOUTS, ONE_ROLLOUT = "rollouts", "1 (deterministic)"
WORST = 0.1
"""The fraction of returns that counts as the worst."""
UNTOLD, UNANSWERED = Verdict.NOT_LEARNED.words, Verdict.UNANSWERABLE.words
HELP = (
    "outcomes that are not learned, or too rare to tell, have no number: for an estimate by rollouts, ask "
    "about a recorded step (episode=... step=...)"
)
FEWEST_FOR_TAILS = 40
"""Rollouts needed to show the distribution of the return."""
SMALLEST_LISTED = 5e-4
AS_GOOD_AS_RIGHT = 0.03
"""Relative tolerance when a learned value is compared with a single rollout."""


def comparison(contrast: Contrast, fact_name: str, foil_name: str) -> Table:
    """One row per outcome: the most likely step, the expected amount, and the value of the difference."""
    rewarded = contrast.fact.legend.reward_bound is not None
    headings = [f"{fact_name}: peak", _how_far(contrast.fact), f"{foil_name}: peak", _how_far(contrast.foil)]
    headings += ["return difference"] if rewarded else []
    table = empty_table(f"{fact_name} against {foil_name}", "outcome", *headings)
    added = gains(contrast) if rewarded else {}
    for k, outcome in enumerate(contrast.fact.legend.names):
        cells = []
        for side in (contrast.fact, contrast.foil):
            cells += _cells(side, k, outcome in side.legend.events)
        table.add_row(outcome, *cells, *([added.get(outcome, "")] if rewarded else []))
    if rewarded:
        table.add_section()
        fact, foil = return_of(contrast.fact), return_of(contrast.foil)
        table.add_row(return_row(contrast.fact), "", fact, "", foil, return_of(contrast, "+"))
    table.caption = f"{data_behind(contrast)}; horizon {contrast.horizon} steps"
    if contrast.drawn:
        table.caption += f"; in brackets: {LEVEL:.0%} bands of the expectations"
    if not all(part.all() for part in contrast.told):
        table.caption += f"; {HELP}"
    return table


def data_behind(contrast: Contrast) -> str:
    """The amount of data behind both sides."""
    if contrast.rolled_out:
        obtained = contrast.fact.obtained, contrast.foil.obtained
        return obtained[0] if obtained[0] == obtained[1] else f"{obtained[0]} and {obtained[1]}"
    visits = [_visits(side.support[0]) for side in (contrast.fact, contrast.foil)]
    if visits == [EXACT, EXACT]:
        return "exact, computed from the dynamics"
    if contrast.fact.counted:
        return f"visits of the two state-action pairs: {visits[0]} and {visits[1]}"
    if contrast.fact.actions.dtype.kind == "f":
        return f"learned from {visits[0]} transitions"
    return f"transitions with these actions, in any state: {visits[0]} and {visits[1]}"


def _visits(support: float) -> str:
    return EXACT if np.isinf(support) else f"{support:g}"


def counted_as(explanation: Explanation) -> str:
    """The unit of an explanation's support."""
    if explanation.rollouts is not None:
        return ROLLOUTS
    return "visits" if explanation.counted else "transitions with the action"


def learned_beside(
    names: Sequence[str], rolled_out: Sequence[Explanation], learned: Sequence[Explanation]
) -> Table:
    """One row per outcome: the learned value beside the one of the rollouts, summed up to the last step."""
    headings = [heading for name in names for heading in (f"{name}: rollouts", "learned", "error")]
    table = empty_table("Learned predictions, compared with the rollouts", "outcome", *headings)
    legend = rolled_out[0].legend
    pairs = list(zip(rolled_out, learned, strict=True))
    for k, outcome in enumerate(legend.names):
        is_event = outcome in legend.events
        table.add_row(outcome, *(cell for pair in pairs for cell in _beside(*pair, k, is_event)))
    if legend.reward_bound is not None:
        table.add_section()
        cells = (cell for pair in pairs for cell in _returns_beside(*pair))
        table.add_row(return_row(rolled_out[0]), *cells)
    table.caption = (
        f"up to step {rolled_out[0].horizon - 1}; in brackets: {LEVEL:.0%} bands; * the learned value lies "
        "outside the band of the rollouts"
    )
    return table


def _beside(rolled_out: Explanation, learned: Explanation, k: int, is_event: bool) -> list[str]:
    """The rolled-out and the learned value of one outcome, and their difference."""
    once = is_event and rolled_out.legend.names[k].startswith(FIRST)
    true = float(rolled_out.expected[0, :, k].sum())
    low, high = (float(end[0, -1, k]) for end in rolled_out.sum_band())
    said = _cells(rolled_out, k, is_event)[1]
    if not learned.foreseen[0, -1] or not learned.told.by[0, -1, k]:
        return [said, _cells(learned, k, is_event)[1], ""]
    guess = float(learned.expected[0, :, k].sum())
    off = f"{100 * (guess - true):+.0f} points" if once else f"{guess - true:+.2f}"
    return [said, _cells(learned, k, is_event)[1], off + _outside(rolled_out, guess, true, low, high)]


def _returns_beside(rolled_out: Explanation, learned: Explanation) -> list[str]:
    said = [return_of(rolled_out), return_of(learned)]
    if not learned.foreseen[0, -1] or not learned.told.returns[0, -1]:
        return [*said, ""]
    guess, true = (float(side.expected_return[0, -1]) for side in (learned, rolled_out))
    low, high = (float(end[0, -1]) for end in rolled_out.return_band())
    return [*said, f"{guess - true:+.2f}{_outside(rolled_out, guess, true, low, high)}"]


def _outside(rolled_out: Explanation, guess: float, true: float, low: float, high: float) -> str:
    """A mark if a learned value lies outside the band; the band of a single rollout has no width."""
    single = AS_GOOD_AS_RIGHT * abs(true) if rolled_out.certain[0] else 0.0
    margin = max(SMALLEST_LISTED, single)
    return "" if low - margin <= guess <= high + margin else " *"


def rolled_out_columns(explanation: Explanation) -> dict[str, FloatArray]:
    """Columns of a ranking: the tails of the returns in the rollouts."""
    returns = np.sort(explanation.drawn_returns[:, :, -1], axis=0)
    if len(returns) < FEWEST_FOR_TAILS:
        return {}
    return {
        "5 % quantile": np.quantile(returns, 0.05, axis=0),
        "95 % quantile": np.quantile(returns, 0.95, axis=0),
        "mean of the worst 10 %": returns[: len(returns) // 10].mean(axis=0),
    }


def gains(contrast: Contrast) -> dict[str, str]:
    """The contribution of each reward term to the return of the fact over that of the foil."""
    names, gains = contrast.fact.component_names, contrast.component_returns[0, -1]
    if not contrast.foreseen[0, -1]:
        return dict.fromkeys(names, "unknown")
    said = {name: f"{gain:+.2f}" for name, gain in zip(names, gains, strict=True)}
    if contrast.drawn:
        low, high = (end[0, -1] for end in contrast.component_band())
        said = {name: _within("+", gains[i], low[i], high[i]) for i, name in enumerate(names)}
    told = dict(zip(contrast.fact.legend.names, contrast.told.terms[0], strict=True))
    untold = UNANSWERED if contrast.fact.endless else UNTOLD
    return {name: cell if told[name] else untold for name, cell in said.items()}


def return_of(explained: Explained, sign: str = "") -> str:
    """The return, or the difference of two returns, with its band if there is one."""
    if not explained.foreseen[0, -1]:
        return "unknown"
    if not explained.told.returns[0, -1]:
        return UNTOLD
    value = float(explained.expected_return[0, -1])
    drawn = explained.drawn if isinstance(explained, Contrast) else explained.banded
    if not drawn:
        return f"{value:{sign}.2f}"
    low, high = (float(end[0, -1]) for end in explained.return_band())
    return _within(sign, value, low, high)


def _within(sign: str, *value_and_ends: float) -> str:
    """A value with its band, if the band is visible after rounding."""
    value, low, high = (f"{number:{sign}.2f}" for number in value_and_ends)
    return value if low == value == high else f"{value} ({low}..{high})"


def _how_far(side: Explanation) -> str:
    """The last step up to which outcomes are summed."""
    steps = int(side.foreseen[0].sum())
    return f"by step {steps - 1}, then unknown" if 0 < steps < side.horizon else "total"


def _cells(side: Explanation, k: int, is_event: bool) -> list[str]:
    """The most likely step of an outcome, and its expected amount, as far as the future is known."""
    steps = int(side.foreseen[0].sum())
    if not steps:
        return ["unknown", "unknown"]
    told = bool(side.told.at[0, :steps, k].all()), bool(side.told.by[0, steps - 1, k])
    cells = _amounts(side, k, is_event, steps)
    return [cell if shown or not cell else _why_not(side, k) for cell, shown in zip(cells, told, strict=True)]


def _why_not(side: Explanation, k: int) -> str:
    """Why no number is given for an outcome."""
    assert side.verdicts is not None
    worst = side.verdicts.by[0, -1, k]
    return Verdict(worst).words if worst > Verdict.LEARNED else UNTOLD


def _amounts(side: Explanation, k: int, is_event: bool, steps: int) -> list[str]:
    """The most likely step of an outcome within the first `steps` steps, and its expected amount."""
    values, known = side.expected[0, :steps, k], steps == side.horizon
    step, total = int(np.abs(values).argmax()), float(values.sum())
    band = [float(end[0, steps - 1, k]) for end in side.sum_band()] if side.banded else None
    never = abs(values[step]) < SMALLEST_LISTED
    if never and (band is None or abs(band[1]) < SMALLEST_LISTED):
        return ["", "0"] if known else ["unknown", "unknown"]
    once = is_event and side.legend.names[k].startswith(FIRST)
    said = f"{100 * total:.1f} %" if once else f"{total:.2f}"
    if band is not None and band[0] < band[1]:
        low, high = band
        said += f" ({100 * low:.1f}..{100 * high:.1f})" if once else f" ({low:.2f}..{high:.2f})"
    peak = f"{100 * values[step]:.1f} %" if is_event else worth(float(values[step]))
    peak = "" if never else f"{peak} at step {step}"
    if known:
        return [peak, said]
    least = "≥ " if is_event else ""
    return [f"{least}{peak}" if peak else "unknown", f"{least}{said}"]


def observed_columns(observed: BoundedDistribution) -> dict[str, FloatArray]:
    """Columns of a ranking: the tails of the distribution of observed returns.

    NaN if it is unknown; for the worst tenth, if too much of that tenth is unknown.
    """
    known, tail_known = (observed.unknown <= TOLERATED * share for share in (1, WORST))
    return {
        "5 % quantile": np.where(known, observed.quantile(0.05).low, np.nan),
        "95 % quantile": np.where(known, observed.quantile(0.95).high, np.nan),
        "mean of the worst 10 %": np.where(tail_known, observed.cvar(WORST).low, np.nan),
    }


def ranking(
    names: Sequence[str],
    columns: Mapping[str, FloatArray],
    bands: Mapping[str, Band | None],
    own: str | None,
    explanation: Explanation,
    rewards: Mapping[str, float],
) -> Table:
    """All actions, the best first, with one column per way of valuing them.

    bands: of some columns; None if there are none.
    explanation: of the actions in this state.
    rewards: the changed rewards.
    """
    support, unit, told = explanation.support, counted_as(explanation), what_if.tells(explanation, rewards)
    untold = UNANSWERED if explanation.endless else UNTOLD
    changed = ", ".join(f"{name} worth {value:g}" for name, value in rewards.items())
    title = f"All valid actions here{f', with {changed}' if changed else ''}"
    table = empty_table(title, "action", *columns, unit)
    order = np.argsort(-np.nan_to_num(next(iter(columns.values())), nan=-np.inf), kind="stable")
    for i in order:
        nan = "unknown" if told[i] else untold
        cells = [
            nan if np.isnan(column[i]) else _valued(float(column[i]), bands.get(name), i)
            for name, column in columns.items()
        ]
        mark = " (the agent's)" if names[i] == own else ""
        visits = ONE_ROLLOUT if unit == ROLLOUTS and np.isinf(support[i]) else _visits(support[i])
        table.add_row(names[i] + mark, *cells, visits)
    if any(band is not None for band in bands.values()):
        table.caption = f"in brackets: {LEVEL:.0%} bands of the expectations"
    return table


def _valued(value: float, band: Band | None, row: int) -> str:
    """A return, with its band if it has one."""
    return worth(value) if band is None else _within("", value, float(band.low[row]), float(band.high[row]))
