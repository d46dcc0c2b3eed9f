"""Tables of methods that predict returns over an infinite horizon, printed by `tpd-explain`."""

import numpy as np
from rich.table import Table

from tpd.answers.answer import return_row
from tpd.answers.sentences.formatting import worth
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.types import IntArray
from tpd.show.answer_tables import SMALLEST_LISTED, UNANSWERED, UNTOLD, data_behind, gains, return_of
from tpd.show.console import empty_table

STEP_RANGES = 6


def comparison(contrast: Contrast, fact_name: str, foil_name: str) -> Table:
    """One row per outcome: its discounted total over an infinite horizon, and the value of the difference.

    Without such totals, one row per range of steps: the discounted reward.
    """
    rewarded = contrast.fact.legend.reward_bound is not None
    headings = [f"{fact_name}: total", f"{foil_name}: total", *(["return difference"] if rewarded else [])]
    table = empty_table(f"{fact_name} against {foil_name}", "outcome", *headings)
    sides, added = (contrast.fact, contrast.foil), gains(contrast) if rewarded else {}
    if contrast.told.terms.any():
        for k, outcome in enumerate(contrast.fact.legend.names):
            gain = [added.get(outcome, "")] if rewarded else []
            table.add_row(outcome, *(_total(side, k) for side in sides), *gain)
    elif contrast.foreseen[0, -1]:
        for steps in np.array_split(np.arange(contrast.horizon), min(STEP_RANGES, contrast.horizon)):
            table.add_row(_reward_row(contrast, steps), *_rewards(contrast, steps))
    if rewarded:
        table.add_section()
        table.add_row(return_row(contrast.fact), *map(return_of, sides), return_of(contrast, "+"))
    table.caption = f"{data_behind(contrast)}; totals are discounted"
    return table


def _reward_row(contrast: Contrast, steps: IntArray) -> str:
    """The name of a range of steps; the last one includes all later steps."""
    if steps[-1] == contrast.horizon - 1:
        return f"reward from step {steps[0]} on"
    return f"reward at steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f"reward at step {steps[0]}"


def _rewards(contrast: Contrast, steps: IntArray) -> list[str]:
    """The discounted reward of both sides in these steps, and the difference."""
    both = (contrast.fact, contrast.foil)
    fact, foil = (float((side.discounts * side.expected_reward[0])[steps].sum()) for side in both)
    told = [side.told.returns[0, steps].all() for side in (*both, contrast)]
    said = f"{fact:z.2f}", f"{foil:z.2f}", f"{fact - foil:+z.2f}"
    return [text if learned else UNTOLD for text, learned in zip(said, told, strict=True)]


def _total(side: Explanation, k: int) -> str:
    """The discounted total of an outcome over an infinite horizon."""
    if not side.foreseen[0, -1]:
        return "unknown"
    if not side.told.terms[0, k]:
        return UNANSWERED
    total = float(side.discounts @ side.expected[0, :, k])
    return worth(total) if abs(total) >= SMALLEST_LISTED else "0"
