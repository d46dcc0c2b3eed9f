"""Numbers as text: one table of rules, shared with the report's JavaScript.

Ties round away from zero, like `toFixed` in JavaScript.
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
"""percent: for probabilities up to a bound, a fixed text or the number of decimals of the percentage.
worth: decimals of a return, and significant digits if it is close to 0. price: significant digits of a
reward."""


def percent(probability: float) -> str:
    """A probability in whole percent, below 1 % with one decimal. Only impossible is 0 %, only sure 100 %."""
    for relation, bound, said in RULES["percent"]:
        if probability < bound or (relation == "<=" and probability == bound):
            return said if isinstance(said, str) else f"{fixed(100 * probability, said)} %"
    return str(probability)


def worth(value: float) -> str:
    """A return, with two decimals, or two significant digits if it is close to 0."""
    rule = RULES["worth"]
    if value == 0 or abs(value) >= rule["digits_below"]:
        return fixed(value, rule["decimals"])
    return significant(value, rule["digits"])


def price(value: float) -> str:
    """The size of a reward."""
    return significant(value, RULES["price"]["digits"])


def fixed(value: float, decimals: int) -> str:
    """A number with a fixed number of decimals."""
    if not isfinite(value):
        return str(value)
    return str(_rounded(Decimal(float(value) + 0.0), -decimals))  # 0 has no sign


def significant(value: float, digits: int) -> str:
    """A number with a fixed number of significant digits, without trailing zeros."""
    if not isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    exact = Decimal(float(value))
    return f"{float(_rounded(exact, exact.adjusted() - digits + 1)):.{digits}g}"


def _rounded(exact: Decimal, place: int) -> Decimal:
    return exact.quantize(Decimal(1).scaleb(place), ROUND_HALF_UP, EXACT)
