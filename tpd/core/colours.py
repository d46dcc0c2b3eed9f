"""The colour of each outcome, the same wherever it is shown."""

from collections.abc import Sequence

from tpd.core.outcomes import FIRST

# Okabe and Ito's palette, which colour-blind readers can tell apart
PALETTE = ("#009E73", "#56B4E9", "#E69F00", "#D55E00", "#CC79A7", "#0072B2", "#000000", "#F0E442")


def colour(names: Sequence[str], name: str) -> str:
    """The colour of one outcome among the outcomes explained; a first occurrence has that of its event."""
    return PALETTE[_position(names, name) % len(PALETTE)]


def rounds(names: Sequence[str], name: str) -> int:
    """How often the palette has run out before the outcome, so that another outcome has its colour."""
    return _position(names, name) // len(PALETTE)


def _position(names: Sequence[str], name: str) -> int:
    return list(dict.fromkeys(other.removeprefix(FIRST) for other in names)).index(name.removeprefix(FIRST))
