"""Sentences about the drivers of a forecast (`tpd.answers.drivers`)."""

from typing import TYPE_CHECKING

import numpy as np

from tpd.answers.sentences.formatting import listed, percent, worth

if TYPE_CHECKING:
    from tpd.answers.drivers import Drivers

SHARE = 0.8
"""Parts are named until they make up this fraction of all |values|, but at most `MOST_NAMED`."""
MOST_NAMED = 3
SURE = 2.0
"""Minimum size of a named value, in standard errors."""
SMALL = 0.01
"""Minimum size of a named value of a probability."""
CAVEAT = "This is how the forecast depends on its inputs, not what causes the event."


def relies_on(drivers: "Drivers") -> str:
    """The parts of the state that move the forecast most, and by how much."""
    if drivers.withheld:
        return f"No drivers are given for the forecast of {drivers.what}: {drivers.withheld}."
    here, base = (amount(value, drivers) for value in (drivers.forecast, drivers.base))
    rolled_out = "" if drivers.rolled_out is None else f", by rollouts {amount(drivers.rolled_out, drivers)}"
    average = f"{base} on average over {drivers.background} visited states"
    begin = f"The forecast of {drivers.what} ({here}{rolled_out}; {average})"
    named = _main(drivers)
    if not named:
        return f"{begin} hardly depends on any part of the state."
    parts = [f"{drivers.shown[k]} ({moved(float(drivers.values[k]), drivers)})" for k in named]
    said = f"mainly on {parts[0]}" + (f", then on {listed(parts[1:])}" if parts[1:] else "")
    return f"{begin} relies {said}. {CAVEAT}"


def contradiction(drivers: "Drivers") -> str:
    """Why values are withheld: the forecast contradicts the rollouts."""
    assert drivers.rolled_out is not None
    said = (amount(value, drivers) for value in (drivers.forecast, drivers.rolled_out))
    return "it contradicts the rollouts in this state, {} instead of {}".format(*said)


def too_unlike(share: float) -> str:
    """Why values are withheld: too many mixed states are unlike the visited ones."""
    if np.isnan(share):
        return "there are too few episodes to tell which states are similar to visited ones"
    mixed = "states that combine parts of this state with parts of visited ones"
    return f"of the {mixed}, {100 * share:.0f} % are unlike any visited state"


def not_mixed(left_out: int, drawn: int) -> str:
    """Why values are withheld: too many visited states had to be left out."""
    mixed = f"combined with {left_out} of {drawn} visited states, parts of this state give states"
    return f"{mixed} in which the action is invalid or was never tried"


def _main(drivers: "Drivers") -> list[int]:
    """The groups to name, largest first (see `SHARE`)."""
    sizes = np.abs(drivers.values)
    least = np.maximum(SURE * drivers.errors, SMALL if drivers.probability else 0.0)
    left, named = (1 - SHARE) * sizes.sum(), list[int]()
    for k in np.argsort(-sizes, kind="stable"):
        rest = sizes.sum() - sizes[named].sum()
        if len(named) == MOST_NAMED or rest <= left or sizes[k] <= least[k]:
            break
        named.append(int(k))
    return named


def amount(value: float, drivers: "Drivers") -> str:
    """A forecast as text; probabilities in percent."""
    if not drivers.probability:
        return worth(value)
    return moved(value, drivers) if drivers.against else percent(value)


def moved(value: float, drivers: "Drivers") -> str:
    """A difference as text; of probabilities in percentage points."""
    if not drivers.probability:
        return f"{value:+.2g}"
    return f"{100 * value:+.0f} points" if abs(value) >= 0.01 else f"{100 * value:+.1f} points"
