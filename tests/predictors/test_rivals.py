"""Other methods of the field, each right by itself on a small MDP, and silent on what it cannot tell."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.learning import batches
from tests.support.small_mdp import NUM_ACTIONS, NUM_STATES
from tpd.core.outcomes import OutcomeSet, reward
from tpd.core.seeding import generator
from tpd.core.types import FloatArray, IntArray, Transitions, concatenate
from tpd.core.verdicts import Verdict
from tpd.envs import Environment
from tpd.evaluation.errors import evaluate
from tpd.evaluation.forecasts import forecast_skill
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.rivals.belief_map import BeliefMap
from tpd.predictors.rivals.discounted_totals import DiscountedTotals
from tpd.predictors.rivals.model_rollouts import ModelRollouts
from tpd.predictors.rivals.most_likely_trajectory import MostLikelyTrajectory
from tpd.predictors.rivals.outcome_gvfs import OutcomeGVFs
from tpd.predictors.rivals.reward_decomposition import RewardDecomposition
from tpd.predictors.rivals.temporal_reward import TemporalReward
from tpd.sources.collection import play
from tpd.store import explainers

LONG = 150
"""Steps after which nothing is left: the small MDP terminates with 15 % at each."""
PAIRS: tuple[IntArray, IntArray] = tuple(part.ravel() for part in np.indices((NUM_STATES, NUM_ACTIONS)))  # type: ignore[assignment]
POWERS = 0.9 ** np.arange(LONG)


@pytest.fixture(scope="module")
def seen() -> Transitions:
    return concatenate(list(batches(small_mdp.policy(), 20_000)))


def taught(kind: type[ReplayedFHTD], seen: Transitions, horizon: int = LONG, **settings: Any) -> Any:
    learned = kind(
        small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=horizon, **settings
    )
    learned.update(seen)
    return learned


def table_of(policy: TabularPolicy) -> FloatArray:
    """[state, action]"""
    return policy.probabilities(np.arange(NUM_STATES))


def efos(seen: Transitions) -> FloatArray:
    """[pair, LONG, outcome + 1]: of the same counts."""
    found: FloatArray = taught(ReplayedFHTD, seen).predict(*PAIRS)
    return found


@pytest.mark.parametrize("kind", [RewardDecomposition, OutcomeGVFs, BeliefMap])
def test_discounted_totals_are_the_discounted_sums_of_expected_outcomes(
    kind: type[DiscountedTotals], seen: Transitions
) -> None:
    rival = taught(kind, seen, horizon=5)
    sums, totals = np.einsum("h,phk->pk", POWERS, efos(seen)), rival.totals(*PAIRS)
    assert rival.tells[:2].all()  # the terms of the reward
    np.testing.assert_allclose(totals[:, rival.tells], sums[:, rival.tells], atol=1e-6)
    assert np.isnan(totals[:, ~rival.tells]).all()
    assert np.abs(sums[:, :2] - np.einsum("h,phk->pk", POWERS[:5], efos(seen)[:, :5, :2])).max() > 0.1


def test_a_belief_map_times_outcomes_is_their_discounted_sum_and_its_visits_are_those_of_the_chain(
    seen: Transitions,
) -> None:
    rival = taught(BeliefMap, seen)
    pairs, maps = rival.maps(*PAIRS)
    np.testing.assert_array_equal(pairs, np.arange(NUM_STATES * NUM_ACTIONS))
    immediate = taught(ReplayedFHTD, seen, horizon=1).predict(*PAIRS)[:, 0, :2]
    sums = np.einsum("h,phk->pk", POWERS, efos(seen))[:, :2]
    np.testing.assert_allclose(maps @ immediate, sums, atol=1e-6)
    np.testing.assert_allclose(
        maps.sum(axis=1), sums.sum(axis=1), atol=1e-6
    )  # one event happens at each visit
    assert (np.diag(maps) >= 1).all()
    first = np.einsum("h,ph->p", POWERS, efos(seen)[:, :, 2])
    immediately = taught(ReplayedFHTD, seen, horizon=1).predict(*PAIRS)[:, 0, 2]
    assert np.abs(maps @ immediately - first).max() > 0.1  # no map knows first occurrences
    assert not rival.tells[2]


def test_component_values_sum_to_the_value_of_the_reward(seen: Transitions) -> None:
    rival = taught(RewardDecomposition, seen, horizon=5)
    explanation = Explainer(rival, rival.policy, rival.outcomes.legend).explain(*PAIRS)
    whole = OutcomeSet([reward(0, 1)], accounts_for_reward=True)
    alone = RewardDecomposition(small_mdp.environment(), small_mdp.policy(), whole, horizon=5)
    alone.update(seen)
    q = alone.totals(*PAIRS)[:, 0]
    np.testing.assert_allclose(explanation.component_returns[:, -1].sum(axis=1), q, atol=1e-9)
    np.testing.assert_allclose(explanation.expected_return[:, -1], q, atol=1e-9)
    # expected Sarsa: Q = E[r + discount Q(s', pi)]
    seen_pair = (seen.observation == 1) & (seen.action == 2)
    value = (q.reshape(NUM_STATES, NUM_ACTIONS) * table_of(small_mdp.policy())).sum(axis=1)
    target = seen.reward + 0.9 * ~seen.terminated * value[seen.next_observation]
    assert q[NUM_ACTIONS + 2] == pytest.approx(target[seen_pair].mean())


def test_temporal_rewards_are_those_of_a_single_outcome_and_its_tail(seen: Transitions) -> None:
    whole, horizon = OutcomeSet([reward(0, 1)], accounts_for_reward=True), 6
    ours = ReplayedFHTD(small_mdp.environment(), small_mdp.policy(), whole, horizon=LONG)
    rival = TemporalReward(small_mdp.environment(), small_mdp.policy(), whole, horizon=horizon)
    ours.update(seen)
    rival.update(seen)
    steps = POWERS * ours.predict(*PAIRS)[:, :, 0]
    bins = rival.bins(*PAIRS)
    np.testing.assert_allclose(bins[:, :-1], steps[:, : horizon - 1], atol=1e-9)
    np.testing.assert_allclose(bins[:, -1], steps[:, horizon - 1 :].sum(axis=1), atol=1e-7)
    told = Explainer(rival, rival.policy, whole.legend).explain(*PAIRS).told
    assert told.at[:, :-1].all()
    assert not told.at[:, -1].any()  # the tail is no expectation at a step
    several = taught(TemporalReward, seen, horizon=horizon)
    np.testing.assert_allclose(several.bins(*PAIRS), bins, atol=1e-6)
    told = Explainer(several, several.policy, several.outcomes.legend).explain(*PAIRS).told
    assert not told.at.any()  # of which event it comes is not known
    assert told.returns.all()


def test_model_rollouts_converge_to_the_exact_solution() -> None:
    exact = ExactSolution(small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=6)
    truth = exact.predict(*PAIRS)
    errors = []
    for steps, rollouts in ((1_000, 20), (300_000, 3_000)):
        learned = taught(
            ModelRollouts,
            concatenate(list(batches(small_mdp.policy(), steps))),
            horizon=6,
            rollouts=rollouts,
            seed=0,
        )
        errors.append(np.sqrt(np.mean((learned.predict(*PAIRS) - truth) ** 2)))
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < 0.01


def test_model_rollouts_sample_the_counted_model(seen: Transitions) -> None:
    """Their mean is what the counts say, and their noise that of so many rollouts."""
    truth = efos(seen)[:, :6]
    drawn = taught(ModelRollouts, seen, horizon=6, rollouts=400, seed=0).predict(*PAIRS)
    noise = np.sqrt(truth * (1 - truth) / 400)
    off = (drawn - truth)[noise > 0.005] / noise[noise > 0.005]
    assert abs(off.std() - 1) < 0.15
    assert abs(off.mean()) < 0.15


def deterministic() -> tuple[TabularPolicy, Transitions]:
    """Every pair of the small MDP leads to one state; its counts, each pair tried three times."""
    rng = np.random.default_rng(3)
    states, actions = (np.tile(part, 3) for part in PAIRS)
    after = np.tile(rng.integers(NUM_STATES, size=len(PAIRS[0])), 3)
    ends = np.tile(rng.random(len(PAIRS[0])) < 0.15, 3)
    going = np.zeros(len(after), dtype=np.bool_)
    return small_mdp.policy(stochastic=False), Transitions(states, actions, after, after % 2.0, ends, going)


def kept_deviating(policy: TabularPolicy) -> MostLikelyTrajectory:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    return MostLikelyTrajectory(env, policy, outcomes, horizon=10, foil_steps=None)


def test_the_most_likely_trajectory_is_exact_where_nothing_is_random() -> None:
    policy, seen = deterministic()
    ours, rival = (
        kind(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=10)
        for kind in (ReplayedFHTD, MostLikelyTrajectory)
    )
    ours.update(seen)
    rival.update(seen)
    np.testing.assert_array_equal(rival.predict(*PAIRS), ours.predict(*PAIRS))
    deviating = kept_deviating(policy)
    deviating.update(seen)
    same = (deviating.predict(*PAIRS) == ours.predict(*PAIRS)).all(axis=(1, 2))
    own = table_of(policy)[PAIRS] == 1
    assert same[own].all()
    assert not same[~own].all()  # a foil that keeps deviating is another question


def test_a_foil_that_keeps_deviating_repeats_its_action() -> None:
    policy, seen = deterministic()
    rival = kept_deviating(policy)
    rival.update(seen)
    stubborn: IntArray = np.argwhere(table_of(policy) == 0)
    for state, action in stubborn.tolist():
        table = np.zeros_like(table_of(policy))
        table[:, action] = 1
        always = ReplayedFHTD(
            small_mdp.environment(), TabularPolicy(table, 0.9), small_mdp.outcomes(), horizon=10
        )
        always.update(seen)
        pair = np.array([state]), np.array([action])
        np.testing.assert_array_equal(rival.predict(*pair), always.predict(*pair))


def test_the_most_likely_trajectory_says_0_or_1_where_chance_decides(seen: Transitions) -> None:
    said = taught(MostLikelyTrajectory, seen, horizon=6).predict(*PAIRS)
    assert set(np.unique(said)) == {0.0, 1.0}
    assert np.abs(said - efos(seen)[:, :6]).max() > 0.3


def test_the_most_likely_trajectory_begins_with_the_most_frequent_transition(seen: Transitions) -> None:
    rival, checked = taught(MostLikelyTrajectory, seen, horizon=1), 0
    column = rival.outcomes.legend.names.index("odd")
    for state, action in zip(*PAIRS, strict=True):
        rows = (seen.observation == state) & (seen.action == action)
        counts = np.bincount(seen.next_observation[rows], minlength=NUM_STATES)
        odd = small_mdp.odd(seen[rows])
        likeliest = counts.argmax()
        if np.sort(counts)[-2] < counts[likeliest]:
            checked += 1
            wanted = odd[seen.next_observation[rows] == likeliest][0]
            said = rival.predict(np.array([state]), np.array([action]))
            assert said[0, 0, column] == wanted
    assert checked > 5


def test_a_method_of_one_trajectory_says_so_also_after_loading(seen: Transitions, tmp_path: Path) -> None:
    for foil_steps, words in ((1, ""), (3, "; a foil is repeated for 3 steps")):
        rival = taught(MostLikelyTrajectory, seen, horizon=6, foil_steps=foil_steps)
        explainer = Explainer(rival, rival.policy, rival.outcomes.legend)
        explainers.save(explainer, small_mdp.environment(), tmp_path / str(foil_steps))
        for each in (explainer, explainers.load(tmp_path / str(foil_steps))):
            assert each.explain(*PAIRS).remark.endswith(f"so probabilities are 0 or 100 %{words}")
    description = tmp_path / "1" / "explainer.json"
    description.write_text(description.read_text().replace("it predicts only", "\\u001b[2J"))
    with pytest.raises(ValueError, match="remark must be printable text"):
        explainers.load(tmp_path / "1")


@pytest.mark.parametrize("kind", [RewardDecomposition, OutcomeGVFs, BeliefMap, TemporalReward])
def test_no_number_is_given_for_what_a_rival_cannot_tell(
    kind: type[ReplayedFHTD], seen: Transitions, tmp_path: Path
) -> None:
    rival, env = taught(kind, seen, horizon=6), small_mdp.environment()
    explainer = Explainer(rival, rival.policy, rival.outcomes.legend)
    exact = ExactSolution(env, rival.policy, rival.outcomes, horizon=6)
    errors = evaluate(explainer, env, exact.cases(50, generator(0, "cases")))
    assert np.isnan(errors.pi_mse).all()
    episodes = play(env, rival.policy, generator(0, "fresh"), episodes=60)
    skill = forecast_skill(explainer, rival.outcomes, episodes)
    columns = [skill.names.index(name) for name in ("odd", "even", "first odd", "terminated")]
    assert np.isnan(skill.by.scores.skill[:, columns]).all()
    assert (skill.by.verdict[:, columns] == Verdict.UNANSWERABLE).all()
    explainers.save(explainer, env, tmp_path)
    for one in (explainer, explainers.load(tmp_path)):
        explanation = one.explain(*PAIRS)
        assert not explanation.told.by.any()
        assert explanation.told.returns[:, -1].all()
        assert explanation.to_frame()["expected"].isna().all()
        assert np.isfinite(one.action_returns(np.arange(NUM_STATES))).all()
    ours = Explainer(taught(ReplayedFHTD, seen, horizon=6), rival.policy, rival.outcomes.legend)
    assert ours.explain(*PAIRS).told.by.all()


@pytest.mark.parametrize("kind", [RewardDecomposition, OutcomeGVFs, BeliefMap, TemporalReward])
def test_an_infinite_horizon_needs_a_discount(kind: type[ReplayedFHTD]) -> None:
    undiscounted = TabularPolicy(table_of(small_mdp.policy()), discount=1.0)
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        kind(small_mdp.environment(), undiscounted, small_mdp.outcomes(), horizon=6)


def test_a_belief_map_is_for_numbered_states() -> None:
    with pytest.raises(TypeError, match="discrete observations"):
        BeliefMap(Environment("CartPole-v1"), small_mdp.policy(), small_mdp.outcomes(), horizon=6)


def test_untried_pairs_are_unknown_to_rivals(seen: Transitions) -> None:
    part = seen[(seen.action != 2) | (seen.observation > 0)]
    for kind in (RewardDecomposition, BeliefMap, TemporalReward, MostLikelyTrajectory):
        rival = taught(kind, part, horizon=6)
        explanation = Explainer(rival, rival.policy, rival.outcomes.legend).explain(*PAIRS)
        assert not explanation.known[2]
        assert explanation.known[[0, 1, *range(3, len(PAIRS[0]))]].all()
        assert (explanation.unknown[explanation.known] > 0).any()
