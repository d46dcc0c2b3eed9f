"""Detects hidden state: the simulator determines events that forecasts from observations leave open."""

from collections.abc import Sequence

import numpy as np

from tpd.core.types import FloatArray

OPEN = 0.05
"""A forecast leaves an event open if its mean variance p (1 - p) is above this: 5 % or more each way."""
SETTLED = 0.25
"""Rollouts determine the event if their variance is below this fraction of the forecast's."""
FEWEST = 10
"""Minimum number of moments."""


def hidden_information(
    names: Sequence[str], rolled_out: FloatArray, rollouts: FloatArray, forecast: FloatArray
) -> str:
    """A warning if rollouts determine an event that forecasts leave open; empty if there is none.

    rolled_out, forecast [moment, event]: probability of each event within the horizon. rollouts [moment]:
    number of rollouts; inf if deterministic. A fork copies the simulator's whole state, but a forecast sees
    only observations. So hidden state makes an event determined for rollouts and open for forecasts. Too
    little learning looks the same, so the warning names both.
    """
    if len(rollouts) < FEWEST or not names:
        return ""
    few = 1 + 1 / np.maximum(rollouts - 1, 1)[:, None]  # corrects the bias of a variance from few rollouts
    known = (few * rolled_out * (1 - rolled_out)).mean(axis=0)
    left_open = (forecast * (1 - forecast)).mean(axis=0)
    more = np.flatnonzero((left_open > OPEN) & (known < SETTLED * left_open))
    if not len(more):
        return ""
    most = more[np.argmax(left_open[more])]
    others = f" (and {len(more) - 1} more)" if len(more) > 1 else ""
    return (
        f"rollouts from the simulator's state predict with near certainty whether {names[most]!r}{others} "
        f"happens within the horizon (variance {known[most]:.3f} over {len(rollouts)} moments), but "
        f"forecasts from the observation do not ({left_open[most]:.3f}): it depends on hidden state, or too "
        "little was learned"
    )
