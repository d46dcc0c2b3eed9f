"""Step sizes (learning rates) of tabular FHTD, as functions of the visit count n of a pair."""

from typing import NamedTuple

from tpd.guards.settings import number


class StepSize(NamedTuple):
    """`scale * n ** -exponent`"""

    scale: float
    exponent: float


def constant(rate: float) -> StepSize:
    """A constant rate, as in the paper's experiments. It tracks a changing policy but does not converge."""
    return StepSize(number("rate", rate, 0, 1, above_low=True), 0.0)


def polynomial(exponent: float) -> StepSize:
    """`n ** -exponent`, which converges for exponents in (0.5, 1] by the paper's theorem."""
    return StepSize(1.0, number("exponent", exponent, 0.5, 1, above_low=True))
