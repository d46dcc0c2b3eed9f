"""The exact solution: against enumeration, against laws, and against the paper's figures."""

import itertools

import numpy as np
import pytest

from tests.support import Compose, small_mdp
from tpd.core.types import DiscretePolicy
from tpd.envs import Environment
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.run.parts import Parts, build

DROPOFF, PICKUP, REFUEL, FAILURE = range(4)


@pytest.mark.parametrize("stochastic", [False, True])
def test_equals_the_sum_over_all_trajectories(stochastic: bool) -> None:
    env, policy, horizon = small_mdp.environment(), small_mdp.policy(stochastic), 3
    assert env.model is not None
    table = env._probe.P
    expected = np.zeros((small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS, horizon))
    choices = range(3)
    for s0, a0 in np.ndindex(expected.shape[:2]):
        for branches in itertools.product(choices, repeat=horizon):
            for later in itertools.product(range(small_mdp.NUM_ACTIONS), repeat=horizon - 1):
                p, s, a = 1.0, s0, a0
                for h in range(horizon):
                    chance, s_next, reward, terminated = table[s][a][branches[h]]
                    p *= chance
                    # the branches and actions after step h are free and must be counted once
                    free = 3 ** (horizon - 1 - h) * small_mdp.NUM_ACTIONS ** (horizon - 1 - h)
                    expected[s0, a0, h] += p * reward / free
                    if terminated or h == horizon - 1:
                        break
                    s, a = s_next, later[h]
                    p *= policy.probabilities(np.array([s]))[0, a]
    solved = small_mdp.dense(ExactSolution(env, policy, small_mdp.outcomes(), horizon=horizon).table())
    np.testing.assert_allclose(solved[..., 0], expected, atol=1e-12)


@pytest.mark.no_cover
@pytest.mark.parametrize("env", ["fuel_taxi", "frozen_lake", "cliff_walking", "taxi"])
@pytest.mark.parametrize("stochastic", [False, True])
def test_probability_is_conserved_in_every_env_with_a_table(
    env: str, stochastic: bool, compose_config: Compose
) -> None:
    """At each step exactly one event happens, or the episode has ended before."""
    parts = build(compose_config(f"env={env}", "explainer=exact"))
    num_states, num_actions = parts.env.table_shape()
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(num_actions), num_states)
    if not stochastic:
        probabilities = np.eye(num_actions)[rng.integers(num_actions, size=num_states)]
    policy = TabularPolicy(probabilities, 0.99)
    solved = ExactSolution(parts.env, policy, parts.outcomes, horizon=30).table().expected
    legend = parts.outcomes.legend
    happening = solved[..., [legend.names.index(name) for name in legend.partition]].sum(axis=2)
    running = 1 - solved[..., -1].cumsum(axis=1)
    assert len(solved) == num_states * num_actions
    np.testing.assert_allclose(happening[:, 0], 1, atol=1e-12)
    np.testing.assert_allclose(happening[:, 1:], running[:, :-1], atol=1e-12)
    assert (solved >= -1e-12).all()


@pytest.mark.no_cover
def test_rewards_rebuilt_from_events_are_the_rewards(paper: Parts, compose_config: Compose) -> None:
    """Three outcome sets, the same expected reward: events, components and the reward itself."""
    paper.trainer.train()
    states = np.arange(0, 1050, 7)
    rebuilt = []
    for name in ("fuel_taxi", "fuel_taxi_components", "reward"):
        outcomes = build(compose_config("experiment=paper", f"outcomes={name}")).outcomes
        policy = discrete(paper)
        solution = ExactSolution(paper.env, policy, outcomes, horizon=30)
        rebuilt.append(Explainer(solution, policy, outcomes.legend).explain(states).expected_reward)
    np.testing.assert_allclose(rebuilt[0], rebuilt[1], atol=1e-9)
    np.testing.assert_allclose(rebuilt[0], rebuilt[2], atol=1e-9)


def discrete(parts: Parts) -> DiscretePolicy:
    policy = parts.trainer.policy
    assert isinstance(policy, DiscretePolicy)
    return policy


@pytest.fixture
def figure_2(paper: Parts) -> np.ndarray:
    """[south or east, horizon, outcome] at (2, 0) with fuel 6, for a trained policy."""
    paper.trainer.train()
    solution = ExactSolution(paper.env, discrete(paper), paper.outcomes, horizon=30)
    truth = Explainer(solution, solution.policy, paper.outcomes.legend)
    spec = next(spec for spec in paper.figures if spec.name == "figure_2")
    return np.asarray(spec.explain(truth, paper.env).expected)


def test_figure_2_of_the_paper(figure_2: np.ndarray) -> None:
    south, east = figure_2
    assert np.argmax(south[:, PICKUP]) == 2
    assert np.argmax(south[:, DROPOFF]) == 7
    assert south[6, FAILURE] == pytest.approx(1 - 0.9**6, abs=0.005)
    assert south[:, REFUEL].sum() == pytest.approx(0, abs=1e-9)
    assert east[5, FAILURE] == pytest.approx(0.30, abs=0.01)
    assert east[6, FAILURE] == pytest.approx(0.17, abs=0.01)
    assert east[:, REFUEL].sum() > 1


def test_follows_a_policy_that_changes() -> None:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    probabilities = np.eye(small_mdp.NUM_ACTIONS)[np.zeros(small_mdp.NUM_STATES, dtype=int)]
    solution = ExactSolution(env, TabularPolicy(probabilities, 1.0), outcomes, horizon=5)
    before = small_mdp.dense(solution.table())
    probabilities[:] = np.eye(small_mdp.NUM_ACTIONS)[1]
    after = small_mdp.dense(solution.table())
    np.testing.assert_array_equal(before[:, :, 0], after[:, :, 0])
    assert not np.allclose(before[:, :, 1:], after[:, :, 1:])


def test_env_without_table_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="CartPole-v1 has no table P"):
        ExactSolution(Environment("CartPole-v1"), small_mdp.policy(), small_mdp.outcomes(), horizon=3)


def test_an_exact_solution_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match=r"needs .* shorter horizon, or explainer=replayed"):
        ExactSolution(small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=10**15)
