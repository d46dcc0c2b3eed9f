"""Answers: what is unknown or unsure is not told as if it were known."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.table import Table

from tests.test_words import toy
from tpd.bands import ENOUGH_DRAWS
from tpd.distributions import BoundedDistribution, Distribution
from tpd.explanation import Explanation
from tpd.show import answers
from tpd.types import FloatArray
from tpd.words import describe

NAMES, NO_WEIGHTS = ("pickup", "first pickup"), (None, None)


def spread(explanation: Explanation, low: float, high: float) -> Explanation:
    """The same with draws: everything expected, times numbers from low to high."""
    draws = np.linspace(low, high, ENOUGH_DRAWS)[:, None, None, None] * explanation.expected
    return replace(explanation, draws=draws)


def partly_unknown() -> Explanation:
    """A pickup at step 1 that is likely, then nothing is known."""
    expected = [[0.0, 0.0], [0.6, 0.6], [0.2, 0.2], [0.0, 0.0]]
    return toy(
        expected,
        names=NAMES,
        weights=NO_WEIGHTS,
        running=[1.0, 1.0, 0.5, 0.0],
        unknown=[0.0, 0.0, 0.5, 1.0],
    )


def cells(table: Table, row: int) -> list[str]:
    return [str(list(column.cells)[row]) for column in table.columns]


def drawn_texts(figure: Figure) -> list[str]:
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_a_table_says_how_far_the_future_is_known() -> None:
    side = spread(partly_unknown(), 0.5, 1.5)
    table = answers.comparison(side - side, "this", "that")
    peak, in_all = cells(table, 0)[1:3]
    assert peak == "≥ 60.0 % at step 1"
    assert in_all == "≥ 0.60 (0.32..0.88)"
    assert cells(table, 1)[2] == "≥ 60.0 % (32.1..87.9)"
    assert table.columns[2].header == "by step 1, then unknown"


def test_a_table_knows_no_zeros_where_the_future_is_unknown() -> None:
    unknown = [0.0, 0.5]
    partly = toy([[0.0, 0.3], [0.0, 0.0]], running=[0.7, 0.2], unknown=unknown)
    for side in (partly, spread(partly, 0.5, 1.5)):
        assert cells(answers.comparison(side - side, "this", "that"), 0)[1:3] == ["unknown", "unknown"]
    surely = toy([[0.0, 0.3], [0.0, 0.0]])
    assert cells(answers.comparison(surely - surely, "this", "that"), 0)[1:3] == ["", "0"]


def test_words_keep_the_band_of_the_step_they_speak_of() -> None:
    expected = [[0.0, 0.0], [0.6, 0.6], [0.4, 0.4], [0.0, 0.0]]
    later = toy(
        expected, names=NAMES, weights=NO_WEIGHTS, running=[1.0, 1.0, 1.0, 0.0], unknown=[0.0, 0.0, 0.0, 1.0]
    )
    said = describe(spread(later, 0.5, 1.0), 0, "it")
    assert "pickup most likely at step 1 (60 % [31 to 60 %]; 100 % [52 to 100 %] by step 2)" in said


def test_words_say_the_least_of_what_is_partly_unknown() -> None:
    said = describe(spread(partly_unknown(), 0.5, 1.0), 0, "it")
    assert "pickup most likely at step 1 (60 % [31 to 60 %]; 80 % or more by step 2)" in said
    sure = toy(
        [[0.0, 0.0], [1.0, 1.0]], names=NAMES, weights=NO_WEIGHTS, running=[1.0, 0.0], unknown=[0.0, 0.1]
    )
    assert "100 % (unsure)" in describe(sure, 0, "it")


def returns(unknown: FloatArray) -> BoundedDistribution:
    """Returns of 1 or 2, but for what is unknown, which may be anything up to 2600."""
    known = (1 - unknown)[:, None] * np.full(2, 0.5)
    values, ends = np.tile([1.0, 2.0], (len(unknown), 1)), np.full((len(unknown), 1), 2600.0)
    return BoundedDistribution(
        Distribution(np.hstack([-ends, values]), np.hstack([unknown[:, None], known])),
        Distribution(np.hstack([values, ends]), np.hstack([known, unknown[:, None]])),
        unknown,
    )


def test_unknown_returns_are_unknown_in_the_table() -> None:
    columns = answers.observed_columns(returns(np.array([0.0, 0.01, 1.0])))
    np.testing.assert_array_equal(columns["5 % fall below"], [1, 1, np.nan])
    np.testing.assert_array_equal(columns["5 % above"], [2, 2, np.nan])
    np.testing.assert_allclose(columns["mean of the worst tenth"], [1, np.nan, np.nan])


@pytest.mark.parametrize("unknown", [[0.0, 0.01, 1.0], [0.0, 0.0, 0.3]])
def test_unknown_returns_are_not_drawn(unknown: list[float]) -> None:
    figure = answers.return_distributions(["run", "jump", "wait"], returns(np.array(unknown)))
    assert drawn_texts(figure) == ["run", "jump", "wait: unknown"]
    assert figure.axes[0].get_xlim() == pytest.approx((0.95, 2.05))
    assert sum(np.size(line.get_xdata()) > 0 for line in figure.axes[0].lines) == 4
    nothing = answers.return_distributions(["run"], returns(np.ones(1)))
    assert drawn_texts(nothing) == ["run: unknown"]
