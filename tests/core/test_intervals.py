"""Confidence intervals of rollouts keep their level."""

import numpy as np
import pytest
from scipy import stats

from tests.support.explanations import toy
from tpd.core.explanation import Explanation
from tpd.core.intervals import clopper_pearson, difference_band, student, tango, trials_for
from tpd.core.outcomes import Legend
from tpd.core.types import Array


def test_exact_limits_are_those_of_clopper_and_pearson() -> None:
    band = clopper_pearson(np.arange(13.0), np.full(13, 12.0), level=0.9)
    for count in range(13):
        interval = stats.binomtest(count, 12).proportion_ci(0.9, method="exact")
        assert (band.low[count], band.high[count]) == pytest.approx((interval.low, interval.high))


def test_student_is_that_of_scipy() -> None:
    samples = np.random.default_rng(0).normal(size=(9, 3))
    reference = stats.ttest_1samp(samples, 0).confidence_interval(0.9)
    np.testing.assert_allclose(student(samples), [reference.low, reference.high])
    with pytest.raises(ValueError, match="at least 2 samples, got 1"):
        student(samples[:1])


@pytest.mark.parametrize("trials", [20, 50, 200])
@pytest.mark.parametrize(("only_first", "only_second"), [(0.01, 0.0), (0.05, 0.02), (0.3, 0.1), (0.5, 0.4)])
def test_the_paired_interval_holds_the_difference(trials: int, only_first: float, only_second: float) -> None:
    """Summed over every result that there can be, with its probability."""
    first, second = (counts.ravel() for counts in np.mgrid[: trials + 1, : trials + 1])
    possible = first + second <= trials
    first, second = first[possible], second[possible]
    chances = [only_first, only_second, 1 - only_first - only_second]
    weight = stats.multinomial.pmf(
        np.stack([first, second, trials - first - second], axis=1), trials, chances
    )
    band, true = tango(first, second, trials), only_first - only_second
    held = weight[(band.low <= true) & (true <= band.high)].sum()
    assert held > 0.885
    narrow = tango(first, second, trials, level=0.5)
    assert weight[(narrow.low <= true) & (true <= narrow.high)].sum() < held


def test_pairs_that_all_agree_leave_room_for_a_difference() -> None:
    band = tango(np.zeros(1), np.zeros(1), 200)
    assert band.high[0] == pytest.approx(-band.low[0])
    assert 0.01 < band.high[0] < 0.02
    everything = tango(np.full(1, 200.0), np.zeros(1), 200)
    assert everything.low[0] > 0.95
    assert everything.high[0] == pytest.approx(1)


def test_as_many_trials_as_the_width_needs() -> None:
    for chance in (0.0, 0.1, 0.5):
        trials = trials_for(chance, 0.06, 0.9, 1000)
        widths = [
            clopper_pearson(np.rint(chance * n), np.array(n), 0.9).width for n in (trials, max(trials - 1, 1))
        ]
        assert widths[0] <= 0.12
        assert trials == 1 or widths[1] > 0.12
    assert trials_for(0.5, 0.001, 0.9, most=500) == 500


LEGEND = Legend(("first crash", "push", "speed"), (None, None, 2.0), (), 10.0, ("first crash", "push"))


def rolled_out(seen: Array, certain: bool = False) -> Explanation:
    """From what was seen [rollout, batch, horizon, outcome]."""
    batch = seen.shape[1]
    return Explanation(
        np.zeros(batch, int),
        np.zeros(batch, int),
        seen.mean(axis=0),
        np.ones(seen.shape[1:3]),
        np.full(batch, np.inf if certain else len(seen)),
        LEGEND,
        0.9,
        rollouts=seen,
    )


def seen(seed: int, rollouts: int = 40) -> Array:
    rng = np.random.default_rng(seed)
    first = np.zeros((rollouts, 2, 5))
    when = rng.integers(0, 9, (rollouts, 2))
    for rollout, row in np.ndindex(rollouts, 2):
        first[rollout, row, when[rollout, row] : when[rollout, row] + 1] = 1
    push = rng.random((rollouts, 2, 5)) < 0.4
    return np.stack([first, push, rng.normal(size=(rollouts, 2, 5))], axis=3)


def test_events_have_exact_bands_and_other_outcomes_students() -> None:
    explanation = rolled_out(seen(0))
    band, sums = explanation.band(), explanation.sum_band()
    exact = clopper_pearson(seen(0)[..., :2].sum(axis=0), np.array(40))
    np.testing.assert_allclose(band.low[..., :2], exact.low)
    np.testing.assert_allclose(band.high[..., 2], student(seen(0)[..., 2]).high)
    happened = np.cumsum(seen(0), axis=2)
    np.testing.assert_allclose(
        sums.high[..., 0], clopper_pearson(happened[..., 0].sum(axis=0), np.array(40)).high
    )
    np.testing.assert_allclose(sums.high[:, -1, 1], student(happened[:, :, -1, 1]).high)  # it comes again
    returns = (seen(0)[..., 2] * 2 * 0.9 ** np.arange(5)).cumsum(axis=2)
    np.testing.assert_allclose(explanation.return_band().low, student(returns).low)
    assert explanation.obtained == "by 40 rollouts"


def test_no_band_has_a_width_where_nothing_is_random() -> None:
    explanation = rolled_out(seen(0)[:1], certain=True)
    assert not explanation.band().width.any()
    assert not (explanation - explanation).band().width.any()
    assert explanation.obtained == "by one rollout: policy and environment are deterministic here"
    varying = rolled_out(seen(1))
    assert (explanation - varying).band().width[..., 1].all()  # one rollout pairs with every other


def test_contrasts_pair_the_rollouts() -> None:
    fact, foil = seen(0), seen(0)
    foil[:3, :, 0, 1] = 1 - foil[:3, :, 0, 1]
    contrast = rolled_out(fact) - rolled_out(foil)
    apart = fact - foil
    exact = tango((apart > 0).sum(axis=0), (apart < 0).sum(axis=0), 40)
    np.testing.assert_allclose(contrast.band().low[..., 1], exact.low[..., 1])
    shuffled = rolled_out(fact) - rolled_out(foil[np.random.default_rng(0).permutation(40)])
    assert contrast.band().width[:, 0, 1].mean() < shuffled.band().width[:, 0, 1].mean() * 0.6
    np.testing.assert_allclose(contrast.return_band().low, 0, atol=1e-9)  # no speed differs
    with pytest.raises(ValueError, match="40 posterior samples with 39"):
        rolled_out(fact) - rolled_out(foil[:39])
    with pytest.raises(ValueError, match="cannot pair 40 rollouts with 39"):
        difference_band(fact, foil[:39], np.False_, np.zeros(2, dtype=np.bool_))


def test_rollouts_are_kept_when_rows_are_chosen_and_never_mixed_with_what_was_learned() -> None:
    explanation = rolled_out(seen(0))
    some = explanation[np.array([1])]
    assert some.rollouts is not None
    np.testing.assert_array_equal(some.rollouts, seen(0)[:, 1:])
    learned = toy([[0.1, 0.2, 0.3]] * 5, names=LEGEND.names, weights=LEGEND.weights, visits=7)
    assert learned.obtained == "learned"
    assert not (some - learned).drawn
