"""Answers: what is unknown or unsure is not told as if it were known."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.table import Table

from tests.support.explanations import toy
from tests.support.sentences import compare, describe
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.distributions import BoundedDistribution, Distribution
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend
from tpd.core.types import FloatArray
from tpd.show import answer_tables as answers
from tpd.show import plots, survival_curves
from tpd.show.what_if_plots import return_distributions

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


def test_sentences_keep_the_band_of_the_step_they_speak_of() -> None:
    expected = [[0.0, 0.0], [0.6, 0.6], [0.4, 0.4], [0.0, 0.0]]
    later = toy(
        expected, names=NAMES, weights=NO_WEIGHTS, running=[1.0, 1.0, 1.0, 0.0], unknown=[0.0, 0.0, 0.0, 1.0]
    )
    said = describe(spread(later, 0.5, 1.0), 0, "it")
    assert "pickup at step 1 or 2 (100 % [52 to 100 %])" in said


def test_sentences_say_the_least_of_what_is_partly_unknown() -> None:
    said = describe(spread(partly_unknown(), 0.5, 1.0), 0, "it")
    assert "pickup at step 1 or 2 (80 % or more)" in said
    sure = toy(
        [[0.0, 0.0], [1.0, 1.0]], names=NAMES, weights=NO_WEIGHTS, running=[1.0, 0.0], unknown=[0.0, 0.1]
    )
    assert "100 % [unsure]" in describe(sure, 0, "it")


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
    np.testing.assert_array_equal(columns["5 % quantile"], [1, 1, np.nan])
    np.testing.assert_array_equal(columns["95 % quantile"], [2, 2, np.nan])
    np.testing.assert_allclose(columns["mean of the worst 10 %"], [1, np.nan, np.nan])


@pytest.mark.parametrize("unknown", [[0.0, 0.01, 1.0], [0.0, 0.0, 0.3]])
def test_unknown_returns_are_not_drawn(unknown: list[float]) -> None:
    figure = return_distributions(["run", "jump", "wait"], returns(np.array(unknown)))
    assert drawn_texts(figure) == ["run", "jump", "wait: unknown"]
    assert figure.axes[0].get_xlim() == pytest.approx((0.95, 2.05))
    assert sum(np.size(line.get_xdata()) > 0 for line in figure.axes[0].lines) == 4
    nothing = return_distributions(["run"], returns(np.ones(1)))
    assert drawn_texts(nothing) == ["run: unknown"]


# Too wide to tell


def wide_later() -> Explanation:
    """A pickup that is certain by step 1 in one half of the draws, and never happens in the other."""
    steps = [[0.1, 0.1], [0.8, 0.8], [0.0, 0.0]]
    future = toy(steps, names=NAMES, weights=NO_WEIGHTS, running=[1.0, 1.0, 1.0], visits=50)
    draws = np.repeat(future.expected[None], ENOUGH_DRAWS, axis=0)
    draws[::2, :, 1] = 0
    return replace(future, draws=draws)


def test_sentences_do_not_tell_what_the_data_do_not_tell() -> None:
    assert "pickup at step 0 or 1 (90 % [10 to 90 %])" in describe(wide_later(), 0, "it")
    wider = wide_later()
    assert wider.draws is not None
    wider.draws[::2] = 0
    assert describe(wider, 0, "it") == "It: not enough data to tell how likely pickup is."


@pytest.mark.parametrize("draw", [plots.outcomes, plots.happened_by])
def test_lines_are_left_out_where_the_data_do_not_tell(draw: object) -> None:
    assert callable(draw)
    axes = Figure().subplots()
    future = wide_later()
    assert future.draws is not None
    future.draws[::2, :, 1] = -0.1
    draw(axes, future, 0)
    drawn = np.isfinite(np.asarray(axes.lines[0].get_ydata(), dtype=float)).tolist()
    assert drawn == [True, False, draw is plots.outcomes]
    assert [text.get_text() for text in axes.texts] == [
        "no line where the 90% band is wider than 0.8, for lack of data"
    ]


def test_survival_curves_end_where_the_future_is_unknown_or_untold() -> None:
    axes = Figure().subplots()
    survival_curves._explained(axes, spread(partly_unknown(), 0.9, 1.0), 1)
    survival_curves._explained(axes, spread(partly_unknown(), -1.0, 1.0), 1)
    ends = [np.isfinite(np.asarray(line.get_ydata(), dtype=float)).sum() for line in axes.lines]
    assert ends == [2, 2]
    future = replace(spread(wide_later(), -0.1, 1.1), unknown=np.zeros((1, 3)))
    survival_curves._explained(axes, future, 1)
    assert np.isfinite(np.asarray(axes.lines[-1].get_ydata(), dtype=float)).tolist() == [True, False, False]


# Bands of returns, and bars


def test_returns_and_their_differences_have_bands() -> None:
    fact, foil = spread(toy([[0.5, 0.0]]), 0.5, 1.5), spread(toy([[0.0, 0.2]]), 0.5, 1.5)
    table = answers.comparison(fact - foil, "this", "that")
    low, high = (end[0, -1] for end in fact.return_band())
    assert cells(table, 2)[2] == f"5.00 ({low:.2f}..{high:.2f})"
    low, high = (end[0, -1] for end in (fact - foil).return_band())
    assert cells(table, 2)[5] == f"+25.00 ({low:+.2f}..{high:+.2f})"
    goal, crash = (
        (low, high) for low, high in zip(*(end[0, -1] for end in (fact - foil).component_band()), strict=True)
    )
    assert cells(table, 0)[5] == f"+5.00 ({goal[0]:+.2f}..{goal[1]:+.2f})"
    assert cells(table, 1)[5] == f"+20.00 ({crash[0]:+.2f}..{crash[1]:+.2f})"
    assert goal[0] < 5 < goal[1]


def test_what_is_exact_is_said_to_be_exact() -> None:
    side = toy([[0.5, 0.0]])
    caption = answers.comparison(side - side, "this", "that").caption
    assert caption == "exact, computed from the dynamics; horizon 1 steps"
    table = answers.ranking(["run"], {"return": np.ones(1)}, {}, None, side, {})
    assert cells(table, 0)[-1] == "exact"


def test_every_step_of_many_bands_is_shown() -> None:
    names = ("a", "b", "c", "d")
    future = spread(toy([[0.2] * 4] * 3, names=names, weights=(None,) * 4, running=[1.0] * 3), 0.5, 1.5)
    axes = Figure().subplots()
    plots.outcomes(axes, future, 0)
    bands = axes.collections[-4:]  # after the lines
    assert [len(bars.get_paths()) for bars in bands] == [3] * 4


def test_the_band_of_a_return_difference_has_edges() -> None:
    axes = Figure().subplots()
    contrast = spread(toy([[0.5, 0.0]] * 2), 0.5, 1.5) - spread(toy([[0.0, 0.2]] * 2), 0.5, 1.5)
    plots.return_difference(axes, contrast, 0)
    drawn = [np.asarray(line.get_ydata(), dtype=float).tolist() for line in axes.lines]
    for end in contrast.return_band():
        assert end[0].tolist() in drawn


@pytest.mark.parametrize("draw", [plots.reward_components, plots.events])
def test_bars_that_little_data_carries_are_faint(draw: object) -> None:
    assert callable(draw)
    for visits, opacity in ((2.0, plots.FAINT), (3.0, 1)):
        axes = Figure().subplots()
        future = toy([[0.5, 0.5], [0.0, 0.0]], visits=visits)
        draw(axes, replace(future, legend=replace(future.legend, partition=future.legend.names)), 0)
        assert {bars.get_alpha() for bars in axes.collections} == {opacity}


def test_noise_is_no_difference() -> None:
    side = toy([[0.5, 0.0]])
    noisy = spread(side, 1 - 1e-9, 1 + 1e-9)
    other = replace(noisy, draws=side.expected + np.zeros((ENOUGH_DRAWS, 1, 1, 1)))
    assert compare(noisy - other, 0, "run", "jump").startswith(
        "A practical tie within 1 step: a return of 5.00 for run, 5.00 for jump."
    )


def test_what_is_in_the_key_is_in_a_panel() -> None:
    legend = Legend(("fuel", "fuel in [0, 5)"), (1.0, None), ("fuel in [0, 5)",), None, ("fuel in [0, 5)",))
    future = replace(toy([[3.0, 1.0]]), legend=legend)
    assert plots.other_names(future) == ["fuel"]
    assert plots.other_names(replace(future, legend=replace(legend, reward_bound=20.0))) == []
    axes = Figure().subplots()
    plots.other_outcomes(axes, spread(future, 0.5, 1.5), 0)
    assert len(axes.lines) == 1
    assert len(axes.collections) == 2  # the line and its band
