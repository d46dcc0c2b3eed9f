"""Differences: few, and they account for the difference that they are said to account for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tpd.answers.differences import Differences, narrowest
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend
from tpd.core.types import FloatArray

HORIZON, NAMES = 5, ("a", "b", "c", "d")
WEIGHTS = (10.0, -3.0, 1.0, -20.0)
probabilities = arrays(np.float64, (1, HORIZON, len(NAMES)), elements=st.floats(0, 1))


def explanation(expected: FloatArray, rewarded: bool = True, visits: float = 1.0) -> Explanation:
    weights = WEIGHTS if rewarded else (None,) * len(NAMES)
    legend = Legend(NAMES, weights, (), 20.0 if rewarded else None, NAMES)
    zeros = np.zeros(1, int)
    return Explanation(zeros, zeros, expected, np.ones((1, HORIZON)), np.array([visits]), legend, 0.9)


@given(probabilities, probabilities, st.floats(0.1, 1))
def test_differences_account_for_the_share_of_the_difference(
    one: FloatArray, other: FloatArray, share: float
) -> None:
    contrast = explanation(one) - explanation(other)
    differences = Differences(contrast).main(0, share)
    difference = contrast.expected_return[0, -1]
    told = sum(fact.gain or 0 for fact in differences)
    assert abs(difference - told) <= (1 - share) * abs(difference) + 1e-9
    gains = contrast.component_returns[0, -1]
    for fact in differences:
        k = NAMES.index(fact.outcome)
        assert fact.gain == pytest.approx(gains[k])
        assert fact.fact_count - fact.foil_count == pytest.approx(contrast.expected[0, :, k].sum())
    unsaid = [
        abs(gain)
        for name, gain in zip(NAMES, gains, strict=True)
        if name not in {f.outcome for f in differences}
    ]
    smallest = min((abs(fact.gain or 0) for fact in differences), default=0)
    assert max(unsaid, default=0) <= smallest + 1e-9 or not differences
    assert not differences or sum(unsaid) + smallest > (1 - share) * abs(difference) - 1e-9  # none too many


@given(probabilities, probabilities)
def test_what_speaks_for_comes_first_and_the_larger_before_the_smaller(
    one: FloatArray, other: FloatArray
) -> None:
    gains = [fact.gain or 0 for fact in Differences(explanation(one) - explanation(other)).main(0)]
    assert gains == sorted(gains, key=lambda gain: (gain < 0, -abs(gain)))


@given(probabilities, probabilities)
def test_reversing_a_contrast_reverses_its_differences(one: FloatArray, other: FloatArray) -> None:
    forth = Differences(explanation(one) - explanation(other)).main(0)
    back = Differences(explanation(other) - explanation(one)).main(0)
    assert {(f.outcome, f.gain, f.begin, f.end) for f in forth} == {
        (f.outcome, -(f.gain or 0), f.begin, f.end) for f in back
    }


@given(arrays(np.float64, HORIZON, elements=st.floats(-1, 1)), st.floats(0.1, 1))
def test_the_narrowest_window_holds_the_share_and_no_narrower_one_does(
    steps: FloatArray, share: float
) -> None:
    begin, end = narrowest(steps.tolist(), share)
    total = sum(steps.tolist())
    made = np.maximum(steps * (1 if total >= 0 else -1), 0)
    wanted = share * abs(total)
    assert 0 <= begin <= end < HORIZON
    assert made[begin : end + 1].sum() >= wanted - 1e-6
    width = end - begin
    assert all(made[i : i + width].sum() < wanted + 1e-6 for i in range(HORIZON - width + 1) if width)


def test_large_differences_against_are_told_too() -> None:
    one, other = np.zeros((1, HORIZON, 4)), np.zeros((1, HORIZON, 4))
    one[0, 1, 0], one[0, 2, 3] = 1.0, 0.2
    differences = Differences(explanation(one) - explanation(other)).main(0)
    assert [(fact.outcome, fact.begin, fact.end) for fact in differences] == [("a", 1, 1), ("d", 2, 2)]
    assert differences[0].gain == pytest.approx(10 * 0.9)
    assert differences[1].gain == pytest.approx(-20 * 0.2 * 0.81)


def test_without_rewards_the_outcomes_that_differ_most_are_told() -> None:
    one, other = np.zeros((1, HORIZON, 4)), np.zeros((1, HORIZON, 4))
    one[0, 1, 1], other[0, 2, 1], one[0, 3, 2] = 0.9, 0.9, 0.1
    (fact,) = Differences(explanation(one, rewarded=False) - explanation(other, rewarded=False)).main(0)
    assert fact == ("b", None, 0.9, 0.9, 1, 2)


def test_nothing_is_told_of_what_is_equal_or_unknown() -> None:
    some = np.full((1, HORIZON, 4), 0.1)
    assert Differences(explanation(some) - explanation(some)).main(0) == []
    assert Differences(explanation(some) - explanation(0 * some, visits=0)).main(0) == []


def test_steps_that_cancel_are_not_called_the_main_ones() -> None:
    one, other = np.zeros((1, HORIZON, 4)), np.zeros((1, HORIZON, 4))
    one[0, 0, 0], other[0, 2, 0] = 1.0, 1.0
    assert Differences(explanation(one) - explanation(0 * one)).steps(0, "a") == (0, 0, False)
    assert Differences(explanation(one) - explanation(other)).steps(0, "a") == (0, 2, True)
