"""Agents that need special care, against the truth: stochastic, masked, and recurrent."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hydra.utils import instantiate
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import PPO

from sb3_ext import as_policy
from tests.support import Compose, small_mdp
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy, Transitions
from tpd.envs import Environment
from tpd.evaluation.errors import Errors, evaluate
from tpd.predictors.cases import Truth
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.rollouts import MonteCarlo
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration

HORIZON = 6


class Signal(gym.Env[Any, Any]):
    """Shows a coin, thrown anew at every step; episodes terminate after one head in four, or never."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return self._throw(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        return self._throw(), float(action), bool(self.np_random.random() < 0.05), False, {}

    def _throw(self) -> Array:
        return np.array([self.np_random.integers(2)], dtype=np.float32)


gym.register(id="Signal-v0", entry_point="tests.sb3_ext.test_special_agents:Signal", max_episode_steps=40)


def acts(t: Transitions) -> BoolArray:
    return np.asarray(t.action == 1)


def rests(t: Transitions) -> BoolArray:
    return ~acts(t)


def signal_outcomes() -> OutcomeSet:
    return OutcomeSet([event("acts", acts), event("rests", rests)], partition=True)


class Alternating:
    """Acts at every second step, whatever the signal: only its hidden state tells which."""

    discount = 1.0
    version = 0

    def probabilities(self, observations: Array) -> FloatArray:
        return np.eye(2)[self.action(observations)]

    def action(self, observations: Array) -> IntArray:
        return observations[:, -1].astype(np.int64)

    def sample(self, observations: Array, rng: np.random.Generator) -> IntArray:
        return self.action(observations)

    def action_values(self, observations: Array) -> None:
        return None

    def start(self, count: int) -> FloatArray:
        return np.zeros((count, 1), dtype=np.float32)

    def advance(self, observations: Array) -> FloatArray:
        return 1 - observations[:, -1:]


def network(
    compose_config: Compose,
    env: Environment,
    policy: Policy,
    outcomes: OutcomeSet,
    steps: int,
    updates: int = 1500,
) -> Explainer:
    """An explainer that learned from transitions around the policy."""
    cfg = compose_config(
        "explainer=network", f"explainer.horizon={HORIZON}", "explainer.target_update_rate=0.05"
    )
    cfg.explainer.update({"hidden": [64, 64], "fit_updates": updates, "updates_per_step": 0})
    learner = instantiate(cfg.explainer, _convert_="all")(env, policy, outcomes)
    rng = generator(0, "collection")
    for batch in collect(env, policy, rng, steps=steps, exploration=Exploration(0.2), num_envs=8):
        learner.update(batch)
    learner.fit()
    return Explainer(learner, policy, outcomes.legend)


def judged(explainer: Explainer, env: Environment, truth: Truth, episodes: int) -> Errors:
    return evaluate(explainer, env, truth.cases(episodes, generator(0, "evaluation")))


@pytest.mark.slow  # tests/predictors/test_network.py states the same law on a small MDP
def test_a_stochastic_agent_is_explained_by_expectations_over_its_actions(compose_config: Compose) -> None:
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    model = PPO("MlpPolicy", env.make(), n_steps=64, seed=0, device="cpu").learn(256)
    policy = as_policy(model, deterministic=False)
    assert isinstance(policy, DiscretePolicy)
    assert (policy.probabilities(np.arange(small_mdp.NUM_STATES)).max(axis=1) < 0.95).all()
    explainer = network(compose_config, env, policy, outcomes, 20_000)
    exact = ExactSolution(env, policy, outcomes, horizon=HORIZON)
    errors = judged(explainer, env, exact, 500)
    assert errors.pi_mse.max() < 1e-3
    assert errors.foil_mse.max() < 1e-3
    greedy = as_policy(model, deterministic=True)
    assert isinstance(greedy, DiscretePolicy)
    other = ExactSolution(env, greedy, outcomes, horizon=HORIZON)
    assert judged(explainer, env, other, 500).pi_mse.max() > 2e-3  # the test can tell the two apart


def test_a_masked_agent_is_explained_within_its_mask(compose_config: Compose, fuel_taxi: Environment) -> None:
    outcomes = instantiate(compose_config("outcomes=fuel_taxi").outcomes, _convert_="all")
    model = MaskablePPO("MlpPolicy", fuel_taxi.make(), n_steps=64, seed=0, device="cpu").learn(128)
    policy = as_policy(model, deterministic=False, mask=fuel_taxi.mask)
    assert isinstance(policy, DiscretePolicy)
    learner = instantiate(compose_config("explainer=replayed", f"explainer.horizon={HORIZON}").explainer)
    explainer = Explainer(learner(fuel_taxi, policy, outcomes), policy, outcomes.legend)
    rng = generator(0, "collection")
    for batch in collect(fuel_taxi, policy, rng, steps=100_000, exploration=Exploration(0.0), num_envs=100):
        assert not outcomes.observe(batch).outcome[:, outcomes.legend.names.index("invalid")].any()
        explainer.predictor.update(batch)  # type: ignore[attr-defined]
    exact = ExactSolution(fuel_taxi, policy, outcomes, horizon=HORIZON)
    assert judged(explainer, fuel_taxi, exact, 500).pi_mse.max() < 2e-3


@pytest.mark.no_cover
def test_what_only_the_hidden_state_tells_is_learned(compose_config: Compose) -> None:
    env, policy, outcomes = Environment("Signal-v0"), Alternating(), signal_outcomes()
    explainer = network(compose_config, env, policy, outcomes, 6000, updates=600)
    expected = explainer.explain(np.array([[0, 0], [0, 1]], dtype=np.float32)).expected[:, :, 0]
    steps = np.arange(HORIZON)
    alive = 0.95**steps
    np.testing.assert_allclose(expected[0], alive * (steps % 2 == 1), atol=0.08)
    np.testing.assert_allclose(expected[1], alive * (steps % 2 == 0), atol=0.08)


@pytest.mark.slow  # the test above learns from hidden states too, without SB3's, of which each step is slow
def test_a_recurrent_agent_is_explained_with_its_hidden_states(compose_config: Compose) -> None:
    env, outcomes = Environment("Signal-v0"), signal_outcomes()
    small = {"lstm_hidden_size": 4, "net_arch": [8]}
    model = RecurrentPPO(
        "MlpLstmPolicy", env.make(), n_steps=32, seed=1, device="cpu", policy_kwargs=small
    ).learn(64)
    policy = as_policy(model, deterministic=False)
    explainer = network(compose_config, env, policy, outcomes, 10_000)
    truth = MonteCarlo(env, policy, outcomes, horizon=HORIZON, moments=20, rollouts=60)
    errors = judged(explainer, env, truth, 10)
    assert errors.pi_noise is not None
    np.testing.assert_array_less(errors.pi_mse - errors.pi_noise, 2e-3)


def test_a_masking_environment_without_a_mask_function_is_refused() -> None:
    model = MaskablePPO("MlpPolicy", gym.make("tpd.envs:FuelTaxi-v0"), device="cpu")
    with pytest.raises(ValueError, match="mask"):
        as_policy(model)
