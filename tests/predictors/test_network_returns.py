"""Networks that learn how the return is distributed: close to exact convolution, and kept like all else."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete
from scipy.stats import wasserstein_distance

from tests.support import small_mdp
from tests.support.networks import Restless, collected, network, taught, wait
from tests.support.returns import ACTIONS, HORIZON, SHARE, STATES, convolved
from tpd.core.distributions import BoundedDistribution, Distribution, PredictsReturns
from tpd.core.outcomes import OutcomeSet, component, event
from tpd.core.types import Array, Policy
from tpd.envs import Environment
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.network.returns import REACH, project, standard_atoms
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.returns import predicts_returns
from tpd.store import explainers

ATOMS = 51
CLOSE = 0.15
"""Of a Wasserstein distance, where returns lie between 0 and 5.7."""


def small(policy: Policy, **settings: Any) -> NetworkFHTD:
    usual = {"horizon": HORIZON, "return_atoms": ATOMS, "batch_size": 128}
    return network(small_mdp.environment(), policy, small_mdp.outcomes(), **(usual | settings))


def found(learner: NetworkFHTD, observations: Array = STATES, actions: Array = ACTIONS) -> Distribution:
    """Where everything is known."""
    returns = learner.solved().returns(observations, actions)
    assert returns is not None
    assert not returns.unknown.any()
    return Distribution(returns.lowest.values[:, 1:], returns.lowest.probabilities[:, 1:])


def exact(policy: TabularPolicy) -> list[Distribution]:
    """For each pair, by convolution over all paths."""
    ordered = (dict(sorted(returns.items())) for returns in convolved(policy))
    return [Distribution(np.array(list(one)), np.array(list(one.values()))) for one in ordered]


def distance(returns: Distribution, truth: list[Distribution]) -> float:
    """Wasserstein, as a mean over pairs."""
    rows = zip(returns.values, returns.probabilities, truth, strict=True)
    return float(np.mean([wasserstein_distance(v, t.values, p, t.probabilities) for v, p, t in rows]))


# The projection


@pytest.mark.parametrize("count", [11, 50, 51, 201])
def test_a_projection_keeps_the_mass_and_the_mean(count: int) -> None:
    """And adds spread only between neighbouring atoms; beyond the last ones the mass stays, at the end."""
    rng = np.random.default_rng(count)
    atoms = standard_atoms(count)
    assert (atoms.diff() > 0).all()
    values = torch.as_tensor(rng.uniform(-REACH, REACH, (40, 5, 17)), dtype=torch.float32)
    values[0, 0, :2] = torch.tensor([-REACH, REACH])
    mass = torch.as_tensor(rng.dirichlet(np.ones(17), (40, 5)), dtype=torch.float32)
    projected = project(values, mass, atoms)
    assert (projected >= 0).all()
    torch.testing.assert_close(projected.sum(dim=-1), torch.ones(40, 5))
    torch.testing.assert_close((projected * atoms).sum(-1), (mass * values).sum(-1), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(project(3 * values, mass, atoms).sum(dim=-1), torch.ones(40, 5))
    far = project(torch.tensor([[-99.0, 99.0]]), torch.tensor([[0.3, 0.7]]), atoms)[0]
    torch.testing.assert_close(far[[0, -1]], torch.tensor([0.3, 0.7]))


def test_what_lies_on_an_atom_stays_there() -> None:
    atoms = standard_atoms(ATOMS)
    torch.testing.assert_close(
        project(atoms.expand(3, -1), torch.eye(ATOMS)[:3], atoms), torch.eye(ATOMS)[:3], atol=1e-3, rtol=0
    )


# What is learned


@pytest.mark.no_cover
@pytest.mark.parametrize("stochastic", [pytest.param(False, marks=pytest.mark.slow), True])
def test_learning_comes_close_to_exact_convolution(stochastic: bool) -> None:
    """Expectations over a stochastic policy included; another policy's returns are not those."""
    policy, other = small_mdp.policy(stochastic), small_mdp.policy(not stochastic)
    truth = exact(policy)
    learner = small(policy)
    learner.update(collected(small_mdp.environment(), policy, 20_000))
    distances = [distance(found(learner), truth)]
    for updates in (40, 320):
        distances.append(distance(found(taught_more(learner, updates)), truth))
    assert distances[2] < 0.6 * distances[1] < 0.6 * distances[0]
    assert distances[2] < CLOSE
    assert distance(found(learner), exact(other)) > 2 * CLOSE
    ours = found(learner)
    assert np.abs(ours.mean - [one.mean for one in truth]).mean() < 0.12
    explained = Explainer(learner, policy, small_mdp.outcomes().legend).explain(STATES, ACTIONS)
    assert np.abs(ours.mean - explained.expected_return[:, -1]).mean() < 0.12
    apart = ours.cvar(SHARE) - [one.cvar(SHARE) for one in truth]
    assert np.abs(apart).mean() < 0.2


def taught_more(learner: NetworkFHTD, updates: int) -> NetworkFHTD:
    for _ in range(updates):
        learner.learn()
    return learner


def test_a_distribution_that_is_off_by_one_reward_would_be_found_out() -> None:
    """The corrupted case of the distance above."""
    policy = small_mdp.policy()
    truth = exact(policy)
    moved = [replace(one, values=one.values + 1) for one in truth]
    size = max(len(one.values) for one in truth)
    padding = [(0, size - len(one.values)) for one in truth]
    both = list(zip(truth, padding, strict=True))
    same = Distribution(
        np.array([np.pad(one.values, pad, mode="edge") for one, pad in both]),
        np.array([np.pad(one.probabilities, pad) for one, pad in both]),
    )
    assert distance(same, truth) < 1e-6
    assert distance(same, moved) > 2 * CLOSE


def clock(accounts: bool = True) -> OutcomeSet:
    ticks = event("ticks", lambda t: np.ones(len(t)), 1.0)
    return OutcomeSet([ticks], partition=True, accounts_for_reward=accounts)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("breaks", "confused", "goes_on"),
    [
        pytest.param(0.0, False, 1.0, id="truncated"),
        pytest.param(0.3, False, 0.7, id="terminated", marks=pytest.mark.slow),
        pytest.param(0.0, True, 2 / 3, id="confused"),
    ],
)
def test_only_a_termination_ends_a_return(breaks: float, confused: bool, goes_on: float) -> None:
    """A clock that ticks three times, each worth 1, unless it breaks; a time limit does not break it."""
    env = Environment("Clock-v0", kwargs={"breaks": breaks})
    policy = DiscreteFunctionPolicy(wait, 1.0, Discrete(2))
    transitions = collected(env, policy, 5_000)
    if confused:
        transitions = replace(transitions, terminated=transitions.terminated | transitions.truncated)
    learner = network(env, policy, clock(), horizon=3, hidden=[16], return_atoms=ATOMS, batch_size=64)
    taught(learner, transitions, updates=200)
    returns = found(learner, np.full((1, 1), 0.5, np.float32), np.zeros(1, np.int64))
    np.testing.assert_allclose(returns.above(2.5)[0], goes_on**2, atol=0.1)
    np.testing.assert_allclose(returns.below(1.5)[0], 1 - goes_on, atol=0.1)


def test_next_continuous_actions_are_drawn_and_not_averaged() -> None:
    """The second reward is -0.8 or 0.8, never what is done on average."""
    env, policy = Environment("Dial-v0"), Restless()
    turned = OutcomeSet([component("turned", lambda t: t.action[:, 0], -1, 1)], accounts_for_reward=True)
    batch = collected(env, policy, 5_000)
    batch = replace(batch, reward=batch.action[:, 0].astype(np.float64))
    learner = network(env, policy, turned, horizon=2, return_atoms=ATOMS, batch_size=64)
    taught(learner, batch, updates=300)
    returns = found(learner, np.array([[0.3, 1]], np.float32), np.full((1, 1), 0.1, np.float32))
    np.testing.assert_allclose(returns.quantile(0.25), -0.72, atol=0.25)
    np.testing.assert_allclose(returns.quantile(0.75), 0.72, atol=0.25)


def test_what_is_expected_is_the_same_bits_with_returns_or_without() -> None:
    policy = small_mdp.policy()
    batch = collected(small_mdp.environment(), policy, 500)
    answers = [
        taught(small(policy, return_atoms=atoms), batch, updates=10).predict(STATES, ACTIONS)
        for atoms in (0, ATOMS)
    ]
    np.testing.assert_array_equal(answers[0], answers[1])


def test_what_is_beyond_the_last_atoms_is_said() -> None:
    policy = small_mdp.policy()
    learner = taught(small(policy), collected(small_mdp.environment(), policy, 500), updates=3)
    assert 0 <= learner.metrics()["explainer/returns_beyond"] < 0.01
    assert "explainer/returns_beyond" not in learner.metrics()


# What is asked and kept


def test_what_is_stored_answers_alike_also_with_known_errors(tmp_path: Path) -> None:
    policy, env = small_mdp.policy(), small_mdp.environment()
    learner = taught(small(policy), collected(env, policy, 500), updates=5)
    ours = found(learner)
    explainers.save(Explainer(learner, policy, small_mdp.outcomes().legend), env, tmp_path)
    returns = predicts_returns(explainers.load(tmp_path))
    assert returns is not None
    again = returns.returns(STATES, ACTIONS)
    assert again is not None
    np.testing.assert_array_equal(again.lowest.values[:, 1:], ours.values)
    np.testing.assert_array_equal(again.lowest.probabilities[:, 1:], ours.probabilities)


def test_learning_goes_on_from_its_state_to_the_same_bits() -> None:
    policy = small_mdp.policy()
    batch = collected(small_mdp.environment(), policy, 500)
    first, second = taught(small(policy), batch, updates=5), small(policy)
    second.restore(first.state())
    for learner in (first, second):
        taught_more(learner, 5)
    np.testing.assert_array_equal(found(first).values, found(second).values)
    np.testing.assert_array_equal(found(first).probabilities, found(second).probabilities)


def test_where_nothing_was_seen_anything_possible_may_come() -> None:
    policy = small_mdp.policy()
    batch = collected(small_mdp.environment(), policy, 500)
    learner = taught(small(policy), batch[batch.action != 2], updates=1)
    returns = learner.solved().returns(STATES, ACTIONS)
    assert isinstance(returns, BoundedDistribution)
    np.testing.assert_array_equal(returns.unknown, ACTIONS == 2)
    bound = sum(policy.discount**h for h in range(HORIZON))
    np.testing.assert_allclose(returns.quantile(0.5).low[ACTIONS == 2], -bound, rtol=1e-6)
    np.testing.assert_allclose(returns.quantile(0.5).high[ACTIONS == 2], bound, rtol=1e-6)
    with pytest.raises(ValueError, match="numbered from 0 to 2"):
        learner.solved().returns(np.array([0]), np.array([3]))


def test_tables_and_networks_are_asked_alike() -> None:
    policy, env = small_mdp.policy(), small_mdp.environment()
    legend, batch = small_mdp.outcomes().legend, collected(small_mdp.environment(), policy, 500)
    table = ReplayedFHTD(env, policy, small_mdp.outcomes(), horizon=HORIZON)
    for learner in (table, small(policy), small(policy, return_atoms=0)):
        learner.update(batch)
        knows = predicts_returns(Explainer(learner, policy, legend))
        assert isinstance(knows, PredictsReturns)
        returns = knows.returns(STATES, ACTIONS)
        asked = not isinstance(learner, NetworkFHTD) or learner.solved().of_returns is not None
        assert (returns is not None) == asked


def test_returns_need_outcomes_that_account_for_the_reward() -> None:
    policy = DiscreteFunctionPolicy(wait, 1.0, Discrete(2))
    with pytest.raises(ValueError, match=r"return_atoms=51 needs outcomes that account for the reward"):
        network(Environment("Clock-v0"), policy, clock(accounts=False), return_atoms=ATOMS)
    with pytest.raises(ValueError, match="return_atoms must be 0, or 11 or more, got 3"):
        small(small_mdp.policy(), return_atoms=3)
    with pytest.raises(ValueError, match="return_atoms must be 0 or more, got -1"):
        small(small_mdp.policy(), return_atoms=-1)
