"""Numbers read the same wherever they are shown."""

import pytest

from tpd.core import sections
from tpd.core.formats import fixed, percent, price, significant, worth


@pytest.mark.parametrize(
    ("probability", "said"),
    [
        (0.0, "0 %"),
        (1e-9, "0 %"),
        (0.0004, "< 0.1 %"),
        (0.001, "0.1 %"),
        (0.004, "0.4 %"),
        (0.01, "1 %"),
        (0.125, "13 %"),
        (0.99, "99 %"),
        (0.992, "> 99 %"),
        (1.0, "100 %"),
        (float("nan"), "nan"),
    ],
)
def test_probabilities(probability: float, said: str) -> None:
    assert percent(probability) == said


def test_returns_and_rewards() -> None:
    assert [worth(value) for value in (0, 12.345, -0.1, 0.0123, -1e-5)] == [
        "0.00",
        "12.35",
        "-0.10",
        "0.012",
        "-1e-05",
    ]
    assert [price(value) for value in (0, 20, 12.3456, 123456.0)] == ["0", "20", "12.35", "1.235e+05"]
    assert worth(float("inf")) == "inf"


def test_ties_round_away_from_zero_and_nothing_else_does() -> None:
    assert [fixed(value, 0) for value in (0.5, 1.5, -2.5)] == ["1", "2", "-3"]
    assert fixed(0.35, 1) == "0.3"  # a little less than it reads
    assert significant(0.0625, 2) == "0.063"
    assert fixed(1e300, 2) == f"{1e300:.2f}"


def test_a_notebook_shows_differences_of_probabilities_with_their_sign() -> None:
    assert [sections.shown_number(value, in_percent=True) for value in (0.004, -0.004, -0.5)] == [
        "0.4 %",
        "-0.4 %",
        "-50 %",
    ]
