"""One colour for each outcome, the same in every plot and in the report."""

import colorsys
from collections.abc import Sequence

from tpd.core.outcomes import FIRST

# Okabe and Ito's palette, which colour-blind readers can tell apart; black is for totals
PALETTE = ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#0072B2", "#440088", "#F0E442")
# chosen in CIELAB as far as possible from the palette, white, grey and each other
MORE = (
    *("#00EE88", "#FF0066", "#661111", "#555500", "#449900", "#AA88FF", "#FFAA88", "#BBDD88"),
    *("#0000FF", "#AA1188", "#55DDDD", "#996644", "#004422", "#9900DD", "#CC5555", "#99DD00"),
)
GOLDEN = 0.618034


def colour(names: Sequence[str], name: str) -> str:
    """The colour of one outcome among all names. Only its first occurrence has the same colour."""
    position = _position(names, name)
    every = (*PALETTE, *MORE)
    return every[position] if position < len(every) else _further(position - len(every))


def _further(number: int) -> str:
    """Generated colours, used when both palettes are exhausted."""
    lightness = 0.3 + 0.1 * (number % 4)
    parts = colorsys.hls_to_rgb(number * GOLDEN % 1, lightness, 0.65 - 0.0007 * (number % 100))
    return "#" + "".join(f"{round(255 * part):02X}" for part in parts)


def rounds(names: Sequence[str], name: str) -> int:
    """How many full palettes come before this outcome. Lines and bars use it to choose a pattern."""
    return _position(names, name) // len(PALETTE)


def _position(names: Sequence[str], name: str) -> int:
    return list(dict.fromkeys(other.removeprefix(FIRST) for other in names)).index(name.removeprefix(FIRST))
