"""Numbers, probabilities and lists as text."""

from collections.abc import Sequence

IMPOSSIBLE = 1e-9
CERTAIN = 0.99
"""What is more likely is said without its probability."""


def percent(probability: float) -> str:
    """In whole percent, below one with a decimal; what is possible is never 0, what is unsure never 100."""
    if probability <= IMPOSSIBLE:
        return "0 %"
    if probability < 0.001:
        return "< 0.1 %"
    if probability < 0.01:
        return f"{100 * probability:.1f} %"
    if probability >= 1 - IMPOSSIBLE:
        return "100 %"
    return "> 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


LARGEST_TOLD = 100
"""Times the size of the returns: a larger bound of a return is no information."""
WIDE = 0.1
"""How wide the band of a probability has to be to be said, and that of a return difference relative to it."""


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."


def listed(parts: Sequence[str], last: str = "and") -> str:
    """With commas, and a last `and`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"


def likely(
    probability: float, band: Sequence[float] | None, foreseen: bool = True, brackets: str = "()"
) -> str:
    """A probability, with its band where that is wide; of what is not foreseen, only the least is known."""
    said, left, right = percent(probability), brackets[0], brackets[1]
    if not foreseen:
        return f"{said} or more" if probability < 1 - IMPOSSIBLE else f"{said} {left}unsure{right}"
    if not is_wide(band):
        return said
    assert band is not None
    ends = f"{percent(max(0.0, band[0])).removesuffix(' %')} to {percent(min(1.0, band[1]))}"
    return f"{said} {left}{ends}{right}"


def is_wide(band: Sequence[float] | None) -> bool:
    """Whether the band of a probability has to be said."""
    return band is not None and band[1] - band[0] > WIDE


def bound_in_words(bound: float, size: float) -> str:
    """How much something is worth at most, beside returns of a size; empty if that says nothing."""
    if not bound < float("inf"):
        return "without bound"
    return f"at most ±{bound:.3g}" if bound <= LARGEST_TOLD * max(size, 1.0) else ""


def worth(value: float) -> str:
    """A return, with as many digits as a reader needs."""
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def gain(value: float) -> str:
    """What is added to a return, with its sign."""
    return f"{'+' if value > 0 else ''}{worth(value)}"
