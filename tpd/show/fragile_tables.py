"""Tables of states where a small change of a reward changes the best action."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from tpd.answers.what_if import Fragility
from tpd.core.types import Array
from tpd.envs import Environment
from tpd.show.console import empty_table

MOST_LISTED = 10


def most_fragile(env: Environment, states: Array, found: Fragility, now: float) -> list[dict[str, Any]]:
    """The states where the smallest change of the reward lets another action overtake, smallest first."""
    order = np.argsort(np.abs(found.reward - now), kind="stable")
    return [
        {
            "state": env.name_of_state(states[i]),
            "best": env.name_of_action(found.best[i]),
            "overtaken by": env.name_of_action(found.rival[i]),
            "at": float(found.reward[i]),
        }
        for i in order
        if not np.isnan(found.reward[i])
    ]


def fragile_table(outcome: str, rows: Sequence[Mapping[str, Any]], where: str, uncertain: int) -> Table:
    """Table of these states; `where` names the states searched and the method.

    uncertain: the number of further states where the data do not determine the reward.
    """
    title = f"States where another action overtakes first if the reward of {outcome} changes, {where}"
    table = empty_table(title, "state", "best", "overtaken by", f"at a reward of {outcome} of", texts=4)
    for row in rows[:MOST_LISTED]:
        table.add_row(str(row["state"]), str(row["best"]), str(row["overtaken by"]), f"{row['at']:.4g}")
    table.caption = "the rest of the policy is unchanged"
    if uncertain:
        table.caption += f"; in {uncertain} more states the data do not say which action overtakes the other"
    if len(rows) > MOST_LISTED:
        table.caption = f"{len(rows) - MOST_LISTED} more states are not listed; {table.caption}"
    return table
