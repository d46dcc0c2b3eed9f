"""The error table: which pairs count, how often, and what is unknown."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.seeding import generator
from tpd.core.types import Transitions
from tpd.envs import Environment
from tpd.envs.events.default import default_outcomes
from tpd.evaluation.errors import evaluate
from tpd.evaluation.examiner import Examiner
from tpd.evaluation.learning_curve import LearningCurve
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.cases import Cases
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.sources.collection import play
from tpd.sources.exploration import uniform
from tpd.store.tables import read_errors, read_table, write_table

HORIZON = 5


EPISODES = 200


@pytest.fixture
def episodes() -> Transitions:
    """The steps that the cases come from."""
    rng = generator(0, "test")
    return play(small_mdp.environment(), small_mdp.policy(), rng, episodes=EPISODES).transitions


@pytest.fixture
def solution() -> ExactSolution:
    return ExactSolution(small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=HORIZON)


@pytest.fixture
def cases(solution: ExactSolution) -> Cases:
    return solution.cases(EPISODES, generator(0, "test"))


@pytest.fixture
def truth(solution: ExactSolution) -> Explainer:
    return Explainer(solution, solution.policy, small_mdp.outcomes().legend)


def changed(truth: Explainer, state: int, action: int, by: float, support: float = 1.0) -> Explainer:
    """The truth, but for one pair."""
    table = truth.predictor.table()  # type: ignore[attr-defined]
    row = state * small_mdp.NUM_ACTIONS + action
    expected, visits = table.expected.copy(), np.ones(len(table.pairs))
    expected[row] += by
    visits[row] = support
    return Explainer(replace(table, expected=expected, visits=visits), truth.policy, truth.legend)


def test_the_truth_has_no_errors(truth: Explainer, cases: Cases) -> None:
    errors = evaluate(truth, small_mdp.environment(), cases)
    assert not errors.pi_mse.any()
    assert not errors.foil_max.any()
    assert (errors.pi_known, errors.foil_known) == (1, 1)
    assert errors.pi_noise is None


def test_each_pair_counts_as_often_as_it_was_met(
    truth: Explainer, cases: Cases, episodes: Transitions
) -> None:
    state, action = 2, 1
    errors = evaluate(changed(truth, state, action, 0.1), small_mdp.environment(), cases)
    here = episodes.observation == state
    taken = here & (episodes.action == action)
    passed_over = here & (episodes.action != action)
    assert taken.any()
    assert passed_over.any()
    each_time = slice(2)  # a first occurrence is never more than certain
    np.testing.assert_allclose(errors.pi_mse[each_time], 0.01 * taken.mean(), rtol=1e-9)
    np.testing.assert_allclose(errors.foil_mse[each_time], 0.01 * passed_over.mean() / 2, rtol=1e-9)
    np.testing.assert_allclose(errors.pi_max[each_time], 0.1)


def test_an_untried_pair_scores_as_zero_and_lowers_the_known_share(
    truth: Explainer, cases: Cases, episodes: Transitions
) -> None:
    state, action = 2, 1
    learned = changed(truth, state, action, by=0.0, support=0.0)
    errors = evaluate(learned, small_mdp.environment(), cases)
    taken = (episodes.observation == state) & (episodes.action == action)
    size = np.square(truth.explain(np.array([state]), np.array([action])).expected).mean(axis=(0, 1))
    np.testing.assert_allclose(errors.pi_mse, size * taken.mean())
    assert errors.pi_known == pytest.approx(1 - taken.mean())


def test_foils_are_the_valid_actions_that_were_not_taken(fuel_taxi: Environment) -> None:
    valid = fuel_taxi.mask(np.arange(1050))
    policy, outcomes = TabularPolicy(uniform(valid), 1.0), default_outcomes(fuel_taxi)
    cases = ExactSolution(fuel_taxi, policy, outcomes, horizon=1).cases(20, np.random.default_rng(0))
    every = list(zip(cases.observations, cases.actions, cases.weight, strict=True))
    own = [case for case, taken in zip(every, cases.own, strict=True) if taken]
    foils = [case for case, taken in zip(every, cases.own, strict=True) if not taken]
    assert len({pair[:2] for pair in own}) == len(own) > 100
    assert foils == [(s, a, n) for s, taken, n in own for a in np.flatnonzero(valid[s]) if a != taken]


def test_disagreement_is_the_share_of_visits_where_another_action_is_better(
    truth: Explainer, cases: Cases, episodes: Transitions
) -> None:
    errors = evaluate(truth, small_mdp.environment(), cases)
    returns = truth.action_returns(episodes.observation)
    chosen = returns[np.arange(len(returns)), episodes.action]
    assert errors.disagreement == pytest.approx((chosen < returns.max(axis=1) - 1e-6).mean())
    assert 0 < errors.disagreement < 1


def test_noise_is_the_mean_square_of_the_standard_errors_of_an_estimated_truth(
    truth: Explainer, cases: Cases
) -> None:
    sizes = np.where(cases.own, 0.1, 0.3)[:, None, None]
    estimated = replace(cases, standard_error=sizes * np.ones_like(cases.expected))
    errors = evaluate(truth, small_mdp.environment(), estimated)
    np.testing.assert_allclose(errors.pi_noise, 0.01)  # type: ignore[arg-type]
    np.testing.assert_allclose(errors.foil_noise, 0.09)  # type: ignore[arg-type]
    assert errors.metrics()["odd/foil_noise"] == pytest.approx(0.09)


def test_an_examiner_asks_again_only_if_the_policy_changes(solution: ExactSolution, truth: Explainer) -> None:
    asked: list[int] = []

    class Asked:
        def cases(self, episodes: int, rng: np.random.Generator) -> Cases:
            asked.append(episodes)
            return solution.cases(episodes, rng)

    for policy_stays in (True, False):
        examiner = Examiner(truth, small_mdp.environment(), Asked(), seed=0, policy_stays=policy_stays)
        same = [examiner.errors(20), examiner.errors(20)]
        assert same[0].metrics() == same[1].metrics()
    assert asked == [20, 20, 20]


def test_tables_are_written_without_losing_a_digit(truth: Explainer, cases: Cases, tmp_path: Path) -> None:
    frame = evaluate(changed(truth, 2, 1, 1 / 3), small_mdp.environment(), cases).frame()
    write_table(frame, tmp_path / "errors.json")
    assert read_errors(tmp_path / "errors.json").equals(frame)
    plain = frame.reset_index().assign(unknown=math.nan)
    write_table(plain, tmp_path / "plain.json")
    assert read_table(tmp_path / "plain.json").equals(plain)


def test_the_curve_is_measured_at_growing_intervals_before_the_end(
    truth: Explainer, cases: Cases, episodes: Transitions
) -> None:
    errors = evaluate(truth, small_mdp.environment(), cases)
    curve = LearningCurve(lambda step: errors, steps=10_000, points=4)
    for _ in range(1000):
        curve(episodes[:10])
    assert list(curve.measured) == [10, 60, 320, 1780]


def test_a_curve_that_was_put_down_goes_on(truth: Explainer, cases: Cases, episodes: Transitions) -> None:
    errors = evaluate(truth, small_mdp.environment(), cases)
    whole, first, second = (LearningCurve(lambda step: errors, steps=10_000, points=4) for _ in range(3))
    for _ in range(1000):
        whole(episodes[:10])
    for _ in range(50):
        first(episodes[:10])
    second.restore(first.state())
    for _ in range(950):
        second(episodes[:10])
    assert [errors.metrics() for errors in second.measured.values()] == [
        errors.metrics() for errors in whole.measured.values()
    ]
    assert list(second.measured) == list(whole.measured)
