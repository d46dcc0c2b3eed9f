"""Whether the simulator knows more of the future than was learned from observations."""

from collections.abc import Sequence

import numpy as np

from tpd.core.types import FloatArray

OPEN = 0.05
"""Mean variance p (1 - p) of a forecast from which on it leaves open what happens: 5 % or more each way."""
SETTLED = 0.25
"""Share of that variance below which rollouts have settled it."""
FEWEST = 10
"""Moments."""


def hidden_information(
    names: Sequence[str], rolled_out: FloatArray, rollouts: FloatArray, forecast: FloatArray
) -> str:
    """What to say where rollouts settle an event that forecasts leave open; empty where they do not.

    rolled_out, forecast [moment, event]: how likely each event is to happen within the horizon; rollouts
    [moment]: how many there were, inf where any other would have been the same. A simulator is forked with
    all of its state, a forecast sees observations: what the observation hides is settled for the one and
    open for the other. Forecasts that have learned too little look the same, so that is said as well.
    """
    if len(rollouts) < FEWEST or not names:
        return ""
    few = 1 + 1 / np.maximum(rollouts - 1, 1)[:, None]  # the variance of a mean over few is too small
    known = (few * rolled_out * (1 - rolled_out)).mean(axis=0)
    left_open = (forecast * (1 - forecast)).mean(axis=0)
    more = np.flatnonzero((left_open > OPEN) & (known < SETTLED * left_open))
    if not len(more):
        return ""
    most = more[np.argmax(left_open[more])]
    others = f" (and {len(more) - 1} more)" if len(more) > 1 else ""
    return (
        f"the simulator knows more than the observations tell, or than was learned from them: whether "
        f"{names[most]!r}{others} happens within the horizon is settled by its state (variance "
        f"{known[most]:.3f} over {len(rollouts)} moments) and left open by the forecasts "
        f"({left_open[most]:.3f}); rollouts answer for the episode at hand, forecasts for what is observed"
    )
