"""The error table: which pairs count, how often, and what is unknown."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests import small_mdp
from tpd.envs import Environment
from tpd.evaluate import LearningCurve, Visits, evaluate, read_errors, write_errors
from tpd.explainer import Explainer
from tpd.seeding import generator
from tpd.sources.collection import play
from tpd.truth.exact import ExactSolution
from tpd.types import Transitions

HORIZON = 5


@pytest.fixture
def episodes() -> Transitions:
    return play(small_mdp.environment(), small_mdp.policy(), generator(0, "test"), episodes=200)


@pytest.fixture
def truth() -> Explainer:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    return Explainer(solution, policy, outcomes.legend)


def changed(truth: Explainer, state: int, action: int, by: float, support: float = 1.0) -> Explainer:
    """The truth, but for one pair."""
    table = truth.predictor.table()  # type: ignore[attr-defined]
    row = state * small_mdp.NUM_ACTIONS + action
    expected, visits = table.expected.copy(), np.ones(len(table.pairs))
    expected[row] += by
    visits[row] = support
    return Explainer(replace(table, expected=expected, visits=visits), truth.policy, truth.legend)


def test_the_truth_has_no_errors(truth: Explainer, episodes: Transitions) -> None:
    errors = evaluate(truth, truth, small_mdp.environment(), episodes)
    assert not errors.pi_mse.any()
    assert not errors.foil_max.any()
    assert (errors.pi_known, errors.foil_known) == (1, 1)


def test_each_pair_counts_as_often_as_it_was_met(truth: Explainer, episodes: Transitions) -> None:
    state, action = 2, 1
    errors = evaluate(changed(truth, state, action, 0.1), truth, small_mdp.environment(), episodes)
    here = episodes.observation == state
    taken = here & (episodes.action == action)
    passed_over = here & (episodes.action != action)
    assert taken.any()
    assert passed_over.any()
    np.testing.assert_allclose(errors.pi_mse, 0.01 * taken.mean(), rtol=1e-9)
    np.testing.assert_allclose(errors.foil_mse, 0.01 * passed_over.mean() / 2, rtol=1e-9)
    np.testing.assert_allclose(errors.pi_max, 0.1)


def test_an_untried_pair_scores_as_zero_and_lowers_the_known_share(
    truth: Explainer, episodes: Transitions
) -> None:
    state, action = 2, 1
    learned = changed(truth, state, action, by=0.0, support=0.0)
    errors = evaluate(learned, truth, small_mdp.environment(), episodes)
    taken = (episodes.observation == state) & (episodes.action == action)
    size = np.square(truth.explain(np.array([state]), np.array([action])).expected).mean(axis=(0, 1))
    np.testing.assert_allclose(errors.pi_mse, size * taken.mean())
    assert errors.pi_known == pytest.approx(1 - taken.mean())


def test_foils_are_the_valid_actions_that_were_not_taken(fuel_taxi: Environment) -> None:
    rng = np.random.default_rng(0)
    state = rng.choice(1050, size=200, replace=False)
    valid = fuel_taxi.mask(state)
    action = np.array([rng.choice(np.flatnonzero(row)) for row in valid])
    foils = Visits(state, action, np.arange(200)).foils(fuel_taxi)
    taken = set(zip(state, action, strict=True))
    passed_over = set(zip(foils.state, foils.action, strict=True))
    assert taken | passed_over == set(zip(state[np.nonzero(valid)[0]], np.nonzero(valid)[1], strict=True))
    assert not taken & passed_over
    counts = dict(zip(state, range(200), strict=True))
    assert all(counts[s] == n for s, n in zip(foils.state, foils.count, strict=True))


def test_disagreement_is_the_share_of_visits_where_another_action_is_better(
    truth: Explainer, episodes: Transitions
) -> None:
    errors = evaluate(truth, truth, small_mdp.environment(), episodes)
    returns = truth.action_returns(episodes.observation)
    chosen = returns[np.arange(len(returns)), episodes.action]
    assert errors.disagreement == pytest.approx((chosen < returns.max(axis=1) - 1e-6).mean())
    assert 0 < errors.disagreement < 1


def test_the_table_is_written_without_losing_a_digit(
    truth: Explainer, episodes: Transitions, tmp_path: Path
) -> None:
    frame = evaluate(changed(truth, 2, 1, 1 / 3), truth, small_mdp.environment(), episodes).frame()
    write_errors(frame, tmp_path / "errors.json")
    again = read_errors(tmp_path / "errors.json")
    assert again.equals(frame)


def test_the_curve_is_measured_at_growing_intervals_before_the_end(episodes: Transitions) -> None:
    steps: list[int] = []
    curve = LearningCurve(steps.append, steps=10_000, points=4)
    for _ in range(1000):
        curve(episodes[:10])
    assert steps == [10, 60, 320, 1780]
