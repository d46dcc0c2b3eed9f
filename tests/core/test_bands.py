"""Bands travel with explanations, and are said and drawn."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.sentences import compare, describe
from tpd.core.bands import ENOUGH_DRAWS, band_of
from tpd.core.explanation import Explanation
from tpd.core.seeding import generator
from tpd.evaluation.coverage import coverage
from tpd.evaluation.errors import evaluate
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.show.tables import overall, shown
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration

HORIZON = 4


@pytest.fixture
def explainer() -> Explainer:
    """What few transitions of a small MDP teach."""
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    learner = ReplayedFHTD(env, policy, outcomes, horizon=HORIZON)
    transitions = collect(
        env, policy, generator(0, "test"), steps=150, exploration=Exploration(0.3), num_envs=5
    )
    for batch in transitions:
        learner.update(batch)
    return Explainer(learner, policy, outcomes.legend)


@pytest.fixture
def drawn(explainer: Explainer) -> Explanation:
    return explainer.explain(np.array([0, 1, 2]), draws=ENOUGH_DRAWS)


def test_the_ends_are_order_statistics_around_the_estimate() -> None:
    draws = np.random.default_rng(0).permutation(np.arange(1, 60)).astype(float)[:, None, None]
    band = band_of(draws, np.array([[30.0]]), np.array([[True]]))
    assert [float(end.item()) for end in band] == pytest.approx([3, 57])
    above = band_of(draws, np.array([[70.0]]), np.array([[True]]))
    assert [float(end.item()) for end in above] == pytest.approx([3, 70])
    assert np.isnan(band_of(draws, np.array([[30.0]]), np.array([[False]])).low)


def test_without_draws_nothing_changes(explainer: Explainer, drawn: Explanation) -> None:
    plain = explainer.explain(np.array([0, 1, 2]))
    np.testing.assert_array_equal(plain.expected, drawn.expected)
    assert plain.draws is None
    with pytest.raises(ValueError, match=r"request them with explain.*must also be measured by rollouts"):
        plain.band()


def test_bands_hold_the_estimate_and_are_wider_the_surer_they_are_to_be(drawn: Explanation) -> None:
    for band, estimate in (
        (drawn.band(), drawn.expected),
        (drawn.sum_band(), drawn.expected.cumsum(axis=1)),
        (drawn.return_band(), drawn.expected_return),
    ):
        known = ~np.isnan(band.low)
        assert known.any()
        assert (band.low <= estimate)[known].all()
        assert (estimate <= band.high)[known].all()
    narrow, wide = drawn.band(0.5), drawn.band(0.9)
    assert (narrow.width <= wide.width + 1e-12)[~np.isnan(wide.low)].all()


def test_a_contrast_is_drawn_in_the_same_models(drawn: Explanation) -> None:
    nothing = drawn - drawn
    assert np.nanmax(np.abs(nothing.return_band().high)) == 0
    apart = drawn[:1] - drawn[1:2]
    assert apart.drawn
    sure, separate = apart.return_band(), drawn.return_band()
    widths = [
        float((band.high - band.low)[row, -1]) for band, row in ((sure, 0), (separate, 0), (separate, 1))
    ]
    assert widths[0] <= widths[1] + widths[2]


def test_draws_are_compared_one_by_one(explainer: Explainer, drawn: Explanation) -> None:
    with pytest.raises(
        ValueError, match="cannot compare 59 posterior samples with 99: request the same number"
    ):
        drawn - explainer.explain(np.array([0, 1, 2]), draws=99)


def test_what_is_exact_has_no_bands() -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    exact = Explainer(ExactSolution(env, policy, outcomes, horizon=HORIZON), policy, outcomes.legend)
    assert exact.explain(np.array([0]), draws=ENOUGH_DRAWS).draws is None


def test_wide_bands_are_said(drawn: Explanation) -> None:
    band = re.compile(r" to (> )?\d+ %")
    assert band.search(describe(drawn, 0, "it"))
    assert not band.search(describe(replace(drawn, draws=None), 0, "it"))
    said = compare(drawn[:1] - drawn[1:2], 0, "this", "that")
    assert re.search(r"(a difference of -?[\d.]+|\([\d.]+) to [\d.]+\)", said)


def test_coverage_stands_beside_the_errors(explainer: Explainer) -> None:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    truth = ExactSolution(env, small_mdp.policy(), outcomes, horizon=HORIZON)
    cases = truth.cases(300, generator(0, "cases"))
    errors = evaluate(explainer, env, cases, bands=True)
    assert errors.pi_bands is not None
    assert 0.5 < np.nanmean(errors.pi_bands.covered) <= 1
    assert "odd/foil_covered" in errors.metrics()
    assert 0.5 < errors.metrics()["covered/pi"] <= 1
    assert "pi_covered" in shown(errors.frame())
    assert "of the predictions for the policy's actions" in overall(errors.metrics())
    assert evaluate(explainer, env, cases).pi_bands is None


def test_coverage_is_of_the_bands_that_are_shown() -> None:
    """Futures that lead to the unknown have no band, so none that could be wrong."""
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    learner = ReplayedFHTD(env, policy, outcomes, horizon=HORIZON)
    untried = policy.probabilities(np.array([1])).argmax()
    batches = collect(env, policy, generator(0, "test"), steps=3000, exploration=Exploration(0.3), num_envs=5)
    for batch in batches:
        learner.update(batch[(batch.observation != 1) | (batch.action != untried)])
    explainer = Explainer(learner, policy, outcomes.legend)
    cases = ExactSolution(env, policy, outcomes, horizon=HORIZON).cases(300, generator(0, "cases"))
    found = coverage(explainer, cases)
    band = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS).band()
    exact = cases.expected[:, :, :-1]
    judged = ~np.isnan(band.low) & (exact > 1e-9) & (exact < 1 - 1e-9)
    held = (band.low <= exact) & (exact <= band.high) & judged
    assert found is not None
    np.testing.assert_array_equal(found.judged, judged.sum(axis=(0, 1)))
    np.testing.assert_array_equal(found.held, held.sum(axis=(0, 1)))
    assert found.overall.covered.item() > 0.7  # 0.46 with those that are not shown
    assert found.overall.shown.item() < 0.5


def test_too_few_draws_have_no_ends_outside() -> None:
    few = np.zeros((18, 1, 2, 1))
    with pytest.raises(ValueError, match=r"18 posterior samples are too few for a 0\.9 band"):
        band_of(few, few[0], np.ones((1, 2), dtype=bool))
    enough = np.zeros((19, 1, 2, 1))
    assert not band_of(enough, enough[0], np.ones((1, 2), dtype=bool)).width.any()
