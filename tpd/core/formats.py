"""Numbers as text: one table of rules, which the report's JavaScript reads too.

Ties round away from zero, as `toFixed` of JavaScript does.
"""

from decimal import ROUND_HALF_UP, Context, Decimal
from math import isfinite
from typing import Any

EXACT = Context(prec=1100)  # a float has no more digits
IMPOSSIBLE = 1e-9
RULES: dict[str, Any] = {
    "percent": [
        ["<=", IMPOSSIBLE, "0 %"],
        ["<", 0.001, "< 0.1 %"],
        ["<", 0.01, 1],
        ["<=", 0.99, 0],
        ["<", 1 - IMPOSSIBLE, "> 99 %"],
        ["<=", 1e9, "100 %"],
    ],
    "worth": {"decimals": 2, "digits_below": 0.1, "digits": 2},
    "price": {"digits": 4},
}
"""percent: what is said of a probability up to a bound: a text, or so many decimals of the percentage.
worth: decimals of a return, and significant digits of one nearer to 0. price: those of a reward."""


def percent(probability: float) -> str:
    """In whole percent, below one with a decimal; what is possible is never 0, what is unsure never 100."""
    for relation, bound, said in RULES["percent"]:
        if probability < bound or (relation == "<=" and probability == bound):
            return said if isinstance(said, str) else f"{fixed(100 * probability, said)} %"
    return str(probability)


def worth(value: float) -> str:
    """A return, with as many digits as a reader needs."""
    rule = RULES["worth"]
    if value == 0 or abs(value) >= rule["digits_below"]:
        return fixed(value, rule["decimals"])
    return significant(value, rule["digits"])


def price(value: float) -> str:
    """The size of a reward."""
    return significant(value, RULES["price"]["digits"])


def fixed(value: float, decimals: int) -> str:
    """With so many decimals."""
    if not isfinite(value):
        return str(value)
    return str(_rounded(Decimal(float(value) + 0.0), -decimals))  # 0 has no sign


def significant(value: float, digits: int) -> str:
    """With so many significant digits, without zeros at the end."""
    if not isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    exact = Decimal(float(value))
    return f"{float(_rounded(exact, exact.adjusted() - digits + 1)):.{digits}g}"


def _rounded(exact: Decimal, place: int) -> Decimal:
    return exact.quantize(Decimal(1).scaleb(place), ROUND_HALF_UP, EXACT)
