"""Step sizes: how far the n-th visit of a pair moves its estimate."""

from typing import NamedTuple

from tpd.guards.settings import number


class StepSize(NamedTuple):
    """`scale * n ** -exponent`"""

    scale: float
    exponent: float


def constant(rate: float) -> StepSize:
    """The same for every visit, as in the paper's experiments: forgets, and never stops moving."""
    return StepSize(number("rate", rate, 0, 1, above_low=True), 0.0)


def polynomial(exponent: float) -> StepSize:
    """`n ** -exponent`, which the paper's theorem lets converge for exponents in (0.5, 1]."""
    return StepSize(1.0, number("exponent", exponent, 0.5, 1, above_low=True))
