"""Distributions of outcomes and returns: what is read from them is right, and what is unknown stays so."""

from pathlib import Path

import numpy as np
import pytest
from conformal import observed
from hydra.utils import instantiate
from scipy.stats import wasserstein_distance

from tests.support import small_mdp
from tests.support.learning import batches
from tests.support.networks import collected, network, taught
from tests.support.returns import ACTIONS, HORIZON, SHARE, STATES, convolved
from tests.support.small_mdp import NUM_ACTIONS, NUM_STATES
from tpd.core.distributions import (
    Bounds,
    Distribution,
    StepDistribution,
    binned,
    distribution,
    with_bins,
)
from tpd.core.outcomes import Legend, Outcome, OutcomeError, OutcomeSet, component, event
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, FloatArray, IntArray, Predictor, Transitions, concatenate
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import Edges, PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.returns import ReturnTable, return_table
from tpd.sources.collection import play
from tpd.store import explainers


def sample(size: int) -> tuple[FloatArray, Distribution]:
    values = np.sort(np.random.default_rng(3).normal(size=size))
    return values, Distribution(values, np.full(size, 1 / size))


@pytest.mark.parametrize("level", [0.05, 0.2, 0.5, 0.95, 1.0])
def test_quantiles_are_those_of_the_sample(level: float) -> None:
    values, found = sample(1000)
    assert found.quantile(level) == np.quantile(values, level, method="inverted_cdf")


def test_cvar_is_the_mean_of_the_lowest() -> None:
    values, found = sample(1000)
    assert found.cvar(SHARE) == pytest.approx(values[:200].mean())
    assert found.cvar(1.0) == pytest.approx(values.mean()) == found.mean
    lowest_half_atom = Distribution(np.array([0.0, 10.0]), np.array([0.1, 0.9]))
    assert lowest_half_atom.cvar(0.2) == pytest.approx(5.0)


def test_tails_count_neither_the_value_itself() -> None:
    found = Distribution(np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.3, 0.5]))
    np.testing.assert_allclose([found.below(2.0), found.above(2.0)], [0.2, 0.5])


@pytest.mark.parametrize(
    ("values", "probabilities", "named"),
    [
        ([0.0, 1.0], [0.5, 1.5], r"sum to 1, got \[0\.5 1\.5\]"),
        ([0.0, 1.0], [-0.5, 1.5], "must be non-negative"),
        ([3.0, 1.0], [0.5, 0.5], r"must be in ascending order, got \[3\. 1\.\]"),
    ],
)
def test_what_is_no_distribution_is_refused(
    values: list[float], probabilities: list[float], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        Distribution(np.array(values), np.array(probabilities))


def some_transitions(rewards: FloatArray) -> Transitions:
    count = len(rewards)
    numbers, never = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    return Transitions(numbers, numbers, numbers, rewards, never, never)


def test_exactly_one_bin_happens_also_at_the_edges() -> None:
    bins = binned(component("reward", lambda t: t.reward, -1, 1), [-0.3, 0.1, 0.7])
    assert [bin_.name for bin_ in bins] == [
        "reward in [-1, -0.3)",
        "reward in [-0.3, 0.1)",
        "reward in [0.1, 0.7)",
        "reward in [0.7, 1]",
    ]
    transitions = some_transitions(np.array([-1, -0.5, -0.3, 0.1, 0.69, 0.7, 1.0]))
    happened = np.array([bin_.values(transitions) for bin_ in bins])
    np.testing.assert_array_equal(happened.argmax(axis=0), [0, 0, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(happened.sum(axis=0), 1)


@pytest.mark.parametrize("cuts", [[0.5, 0.2], [-1.0], [1.0], [0.0, 2.0], [0.3, 0.3]])
def test_cuts_that_do_not_ascend_within_the_bounds_are_refused(cuts: list[float]) -> None:
    with pytest.raises(OutcomeError, match=r"bins of 'reward' need .* -1 and 1, got"):
        binned(component("reward", lambda t: t.reward, -1, 1), cuts)


def test_an_event_has_no_bins() -> None:
    with pytest.raises(OutcomeError, match="bins of 'odd' need a real-valued outcome"):
        binned(event("odd", small_mdp.odd), [0.5])


def arrived(t: Transitions) -> IntArray:
    return np.asarray(t.next_observation)


def test_bins_are_named_in_a_config() -> None:
    config = {
        "_target_": "tpd.core.distributions.with_bins",
        "bins": {"arrived": [2, 4]},
        "outcomes": [
            {
                "_target_": "tpd.core.outcomes.component",
                "name": "arrived",
                "low": 0,
                "high": 6,
                "function": {"_target_": "tests.core.test_distributions.arrived", "_partial_": True},
            }
        ],
    }
    made = instantiate(config, _convert_="all")
    assert made.legend.names == (
        "arrived",
        "arrived in [0, 2)",
        "arrived in [2, 4)",
        "arrived in [4, 6]",
    )
    config["bins"] = {"speed": [1]}
    with pytest.raises(Exception, match="there is no outcome 'speed'; the outcomes are arrived"):
        instantiate(config, _convert_="all")


def arrivals() -> OutcomeSet:
    """The number of the next state, with a bin for each."""
    arrival = Outcome("arrived", arrived, 0, NUM_STATES)
    return with_bins([arrival], {"arrived": range(1, NUM_STATES)}, partition=True)


def explained(predictor: Predictor, policy: TabularPolicy) -> tuple[StepDistribution, FloatArray]:
    explanation = Explainer(predictor, policy, arrivals().legend).explain(STATES, ACTIONS)
    return distribution(explanation, "arrived"), explanation.expected[:, :, 0]


def exactly(policy: TabularPolicy) -> tuple[StepDistribution, FloatArray]:
    return explained(ExactSolution(small_mdp.environment(), policy, arrivals(), horizon=HORIZON), policy)


def test_the_ended_are_left_out_and_said() -> None:
    found, expected = exactly(small_mdp.policy())
    ended = 1 - (1 - small_mdp.TERMINATION) ** np.arange(HORIZON)
    np.testing.assert_allclose(found.ended, np.tile(ended, (len(STATES), 1)), atol=1e-6)
    np.testing.assert_allclose(found.mean.low, expected / (1 - found.ended), rtol=1e-6)
    np.testing.assert_allclose(found.mean.high - found.mean.low, 1, rtol=1e-6)  # the width of the bins


def test_a_network_learns_bins_as_it_learns_events() -> None:
    policy, env = small_mdp.policy(), small_mdp.environment()
    learner = network(env, policy, arrivals(), horizon=HORIZON)
    exact, _ = exactly(policy)
    atoms = exact.lowest.probabilities.shape[-1]

    def distance() -> float:
        found, _ = explained(learner, policy)
        values = np.broadcast_to(exact.lowest.values, exact.lowest.probabilities.shape).reshape(-1, atoms)
        ours, true = (one.lowest.probabilities.reshape(-1, atoms) for one in (found, exact))
        each = zip(values, ours, true, strict=True)
        return float(np.mean([wasserstein_distance(v, v, p, q) for v, p, q in each]))

    untaught = distance()
    taught(learner, collected(env, policy, 20_000), updates=400)
    assert distance() < 0.1 < 0.3 * untaught


def figures(found: StepDistribution) -> list[Bounds]:
    return [found.mean, found.quantile(0.3), found.cvar(SHARE), found.below(3), found.above(3)]


def test_what_was_never_tried_widens_every_figure_around_the_truth() -> None:
    """The truth must be that of the counts, so it is the same learner that has seen action 2 as well."""
    policy = small_mdp.policy()
    batch = concatenate(list(batches(policy, 100_000)))
    tried, all_tried = (
        ReplayedFHTD(small_mdp.environment(), policy, arrivals(), horizon=HORIZON) for _ in range(2)
    )
    tried.update(batch[(batch.action != 2) | (batch.observation != 1)])
    all_tried.update(batch)
    partly, _ = explained(tried, policy)
    wholly, _ = explained(all_tried, policy)
    assert (partly.unknown[:, -1] > 0.01).all()
    assert not wholly.unknown.any()
    for known, true in zip(figures(partly), figures(wholly), strict=True):
        assert (known.low <= true.low + 1e-9).all()
        assert (known.high >= true.high - 1e-9).all()
        assert (known.high - known.low > true.high - true.low + 1e-3).any()


def test_nothing_is_said_of_a_step_that_is_never_reached() -> None:
    policy = small_mdp.policy()
    explanation = Explainer(
        ExactSolution(small_mdp.environment(), policy, arrivals(), horizon=2), policy, arrivals().legend
    ).explain(STATES[:1], ACTIONS[:1])
    explanation.expected[:, 1] = 0
    found = distribution(explanation, "arrived")
    assert found.ended[0, 1] == 1
    for low, high in figures(found):
        assert np.isnan([low[0, 1], high[0, 1]]).all()
        assert not np.isnan([low[0, 0], high[0, 0]]).any()


def test_an_outcome_without_bins_is_refused_by_name() -> None:
    explanation = Explainer(
        ExactSolution(small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=2),
        small_mdp.policy(),
        small_mdp.outcomes().legend,
    ).explain(STATES, ACTIONS)
    with pytest.raises(ValueError, match="'odd' has no bins; the outcomes are odd, even"):
        distribution(explanation, "odd")


def counted(policy: TabularPolicy, steps: int) -> PairTable:
    learner = ReplayedFHTD(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=HORIZON)
    for batch in batches(policy, steps):
        learner.update(batch)
    return learner.table()


def true_counts() -> PairTable:
    """A table whose counts are in the proportion of the true probabilities."""
    model = small_mdp.environment().model
    assert model is not None
    transitions, probability = model.transitions()
    outcome, continuation = small_mdp.outcomes().observe(transitions)
    pair = transitions.observation * NUM_ACTIONS + transitions.action
    edges = Edges(
        pair, transitions.next_observation, outcome, continuation, (1e12 * probability).astype(np.int64)
    )
    pairs = np.unique(pair)
    return PairTable(NUM_ACTIONS, pairs, np.zeros((len(pairs), 1, 1)), np.ones(len(pairs)), None, edges)


def solved(table: PairTable, policy: TabularPolicy, atoms: int = 401) -> ReturnTable:
    return return_table(table, policy, small_mdp.outcomes().legend, horizon=HORIZON, atoms=atoms)


def distance(table: PairTable, policy: TabularPolicy, atoms: int) -> float:
    """The Wasserstein distance from the exact convolution, as a mean over all pairs."""
    found = solved(table, policy, atoms).returns(STATES, ACTIONS).lowest
    distances = [
        wasserstein_distance(values, list(exact), probabilities, list(exact.values()))
        for values, probabilities, exact in zip(
            found.values, found.probabilities, convolved(policy), strict=True
        )
    ]
    return float(np.mean(distances))


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_distance_from_exact_convolution_falls_with_the_atoms(stochastic: bool) -> None:
    policy = small_mdp.policy(stochastic)
    distances = [distance(true_counts(), policy, atoms) for atoms in (11, 51, 251)]
    assert distances[1] < 0.5 * distances[0]
    assert distances[2] < 0.5 * distances[1]
    assert distances[2] < 0.01


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_distance_from_exact_convolution_falls_with_the_data(stochastic: bool) -> None:
    policy = small_mdp.policy(stochastic)
    distances = [distance(counted(policy, steps), policy, atoms=401) for steps in (1000, 10_000, 100_000)]
    assert distances[1] < 0.6 * distances[0]
    assert distances[2] < 0.6 * distances[1]


def test_the_mean_is_the_expected_return_whatever_the_atoms() -> None:
    policy = small_mdp.policy()
    table = counted(policy, 5000)
    explanation = Explainer(table, policy, small_mdp.outcomes().legend).explain(STATES, ACTIONS)
    for atoms in (2, 7, 101):
        mean = solved(table, policy, atoms).returns(STATES, ACTIONS).mean
        np.testing.assert_allclose(mean.low, explanation.expected_return[:, -1], atol=1e-6)


@pytest.mark.parametrize("stochastic", [False, True])
def test_two_spacings_away_from_a_return_the_projection_does_not_show(stochastic: bool) -> None:
    policy = small_mdp.policy(stochastic)
    table = solved(true_counts(), policy)
    found = table.returns(STATES, ACTIONS).highest
    spacing = (table.high - table.low) / (found.values.shape[1] - 2)
    off = [0.0, 0.0]
    for pair, exact in enumerate(convolved(policy)):
        returns, chances = np.array(list(exact)), np.array(list(exact.values()))
        for value in returns[:: max(1, len(returns) // 60)]:
            for spacings in (0, 2):
                low, high = (value + sign * (spacings * spacing[pair] + 1e-9) for sign in (-1, 1))
                true = chances[returns < value - 1e-9].sum()
                too_much = found.below(low)[pair] - true, true - found.below(high)[pair]
                off[spacings // 2] = max(off[spacings // 2], *too_much)
    assert off[1] < 0.0002 < 0.1 < off[0]


def test_without_chance_two_atoms_lose_nothing() -> None:
    """States 0, 1, 2 in a row with rewards 1, 2, 4, the last of which ends the episode."""
    reward, over = np.array([1.0, 2.0, 4.0]), np.array([0.0, 0.0, 1.0])
    edges = Edges(
        np.arange(3), np.array([1, 2, 0]), np.stack([reward, over], 1), np.ones((3, 2)), np.ones(3, np.int64)
    )
    table = PairTable(1, np.arange(3), np.zeros((3, 1, 1)), np.ones(3), None, edges)
    legend = Legend(("reward",), (1.0,), (), 4.0)
    found = return_table(table, TabularPolicy(np.ones((3, 1)), 0.5), legend, horizon=5, atoms=2)
    returns = found.returns(np.arange(3), np.zeros(3, dtype=np.int64))
    for level in (0.01, 0.99):
        np.testing.assert_allclose(returns.quantile(level).low, [3.0, 4.0, 4.0])


def test_cvar_is_within_the_sampling_error_of_observed_returns() -> None:
    policy = small_mdp.policy()
    found = solved(true_counts(), policy).returns(STATES, ACTIONS).cvar(SHARE).low
    episodes = play(small_mdp.environment(), policy, generator(0, "test"), episodes=40_000)
    starts = episodes.transitions[episodes.begins]
    returns = observed(
        episodes, episodes.begins, episodes.transitions.reward, policy.discount ** np.arange(HORIZON)
    )
    apart, errors = [], []
    for state, action, cvar in zip(STATES, ACTIONS, found, strict=True):
        here = returns[(starts.observation == state) & (starts.action == action)]
        if len(here) > 200:
            quantile = np.quantile(here, SHARE, method="inverted_cdf")
            terms = quantile - np.maximum(quantile - here, 0) / SHARE
            apart.append(abs(cvar - terms.mean()))
            errors.append(terms.std() / np.sqrt(len(here)))
    assert np.count_nonzero(errors) > NUM_STATES
    assert (np.array(apart) <= 4 * np.array(errors) + 1e-6).all()


def test_returns_that_come_to_the_untried_may_be_anything_within_the_bound() -> None:
    policy = small_mdp.policy()
    learner = ReplayedFHTD(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=HORIZON)
    batch = concatenate(list(batches(policy, 20_000)))
    learner.update(batch[(batch.action != 2) | (batch.observation != 1)])
    found = solved(learner.table(), policy).returns(STATES, ACTIONS)
    np.testing.assert_allclose(found.unknown, learner.table().unknown(STATES, ACTIONS)[:, -1], atol=1e-12)
    bound = sum(policy.discount**h for h in range(HORIZON))
    untried = (STATES == 1) & (ACTIONS == 2)
    np.testing.assert_allclose(found.quantile(0.5).low[untried], -bound)
    np.testing.assert_allclose(found.quantile(0.5).high[untried], bound)
    np.testing.assert_allclose(found.lowest.probabilities.sum(axis=1), 1)
    truth = solved(true_counts(), policy).returns(STATES, ACTIONS)
    assert (found.cvar(SHARE).low < truth.cvar(SHARE).low + 0.05).all()
    assert (found.mean.high > truth.mean.high - 0.05).all()


def test_a_stored_explainer_gives_the_same_returns(tmp_path: Path) -> None:
    policy, env = small_mdp.policy(), small_mdp.environment()
    learner = ReplayedFHTD(env, policy, small_mdp.outcomes(), horizon=HORIZON)
    for batch in batches(policy, 5000):
        learner.update(batch)
    explainers.save(Explainer(learner, policy, small_mdp.outcomes().legend), env, tmp_path / "explainer")
    loaded = explainers.load(tmp_path / "explainer")
    assert isinstance(loaded.predictor, PairTable)
    assert isinstance(loaded.policy, DiscretePolicy)
    found = return_table(loaded.predictor, loaded.policy, loaded.legend, horizon=HORIZON, atoms=51)
    np.testing.assert_array_equal(found.mass, solved(learner.table(), policy, 51).mass)


def test_a_table_without_counts_or_rewards_is_refused() -> None:
    policy, legend = small_mdp.policy(), small_mdp.outcomes().legend
    exact = ExactSolution(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=2).table()
    with pytest.raises(ValueError, match="need counts of transitions"):
        return_table(exact, policy, legend, horizon=2)
    with pytest.raises(ValueError, match="do not account for the reward"):
        return_table(true_counts(), policy, arrivals().legend, horizon=2)
