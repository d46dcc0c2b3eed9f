"""Numbers, probabilities and lists as text."""

from collections.abc import Sequence

from tpd.core.formats import IMPOSSIBLE as IMPOSSIBLE
from tpd.core.formats import percent as percent
from tpd.core.formats import worth as worth

CERTAIN = 0.99
"""Events above this probability are stated without it."""


LARGEST_TOLD = 100
"""A bound above this many times the size of the returns is not reported."""
WIDE = 0.1
"""A band is reported if it is wider: absolute for probabilities, relative for return differences."""


def sentence(text: str) -> str:
    """The text with a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def listed(parts: Sequence[str], last: str = "and") -> str:
    """The parts joined by commas, and `last` before the last one."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def likely(
    probability: float, band: Sequence[float] | None, foreseen: bool = True, brackets: str = "()"
) -> str:
    """A probability with its band, if that is wide; if not foreseen, a lower bound ("or more")."""
    said, left, right = percent(probability), brackets[0], brackets[1]
    if not foreseen:
        return f"{said} or more" if probability < 1 - IMPOSSIBLE else f"{said} {left}unsure{right}"
    if not is_wide(band):
        return said
    assert band is not None
    ends = f"{percent(max(0.0, band[0])).removesuffix(' %')} to {percent(min(1.0, band[1]))}"
    return f"{said} {left}{ends}{right}"


def is_wide(band: Sequence[float] | None) -> bool:
    """Whether the band of a probability is wide enough to be reported."""
    return band is not None and band[1] - band[0] > WIDE


def bound_in_words(bound: float, size: float) -> str:
    """A bound as text; empty if it is too large compared with returns of this size."""
    if not bound < float("inf"):
        return "without bound"
    return f"at most ±{bound:.3g}" if bound <= LARGEST_TOLD * max(size, 1.0) else ""


def gain(value: float) -> str:
    """A contribution to a return, with its sign."""
    return f"{'+' if value > 0 else ''}{worth(value)}"
