"""Numbers, probabilities and lists as text."""

from collections.abc import Sequence

IMPOSSIBLE = 1e-9


def percent(probability: float) -> str:
    """In whole percent, where what is possible is never 0 and what is not certain never 100."""
    if probability <= IMPOSSIBLE:
        return "0 %"
    if probability < 0.01:
        return "< 1 %"
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


def listed(parts: Sequence[str]) -> str:
    """With commas, and a last `and`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def likely(
    probability: float, band: Sequence[float] | None, foreseen: bool = True, brackets: str = "()"
) -> str:
    """A probability, with its band where that is wide; of what is not foreseen, only the least is known."""
    said, left, right = percent(probability), brackets[0], brackets[1]
    if not foreseen:
        return f"{said} or more" if probability < 1 - IMPOSSIBLE else f"{said} {left}unsure{right}"
    low, high = (probability, probability) if band is None else band
    if high - low <= WIDE:
        return said
    ends = f"{percent(max(0.0, low)).removesuffix(' %')} to {percent(min(1.0, high))}"
    return f"{said} {left}{ends}{right}"


def bound_in_words(bound: float, size: float) -> str:
    """How much something is worth at most, beside returns of a size; empty if that says nothing."""
    if not bound < float("inf"):
        return "without bound"
    return f"at most ±{bound:.3g}" if bound <= LARGEST_TOLD * max(size, 1.0) else ""


def worth(value: float) -> str:
    """A return, with as many digits as a reader needs."""
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"
