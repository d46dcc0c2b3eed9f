"""SB3 models, and any function, as black-box policies that the rest of tpd explains like its own."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from sb3_contrib import QRDQN, MaskablePPO, RecurrentPPO
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_ext import explainer_for
from sb3_ext.policies import DiscreteSB3Policy, RecurrentSB3Policy, SB3Policy, as_policy
from tests.support import small_mdp
from tests.support.tracing import untraced
from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, DiscretePolicy, RecurrentPolicy
from tpd.envs import Environment
from tpd.envs.fuel_taxi.rules import encode
from tpd.policies.function import DiscreteFunctionPolicy, FunctionPolicy, GivenFunction
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.sources.hidden_state import with_initial_state, with_next_state

Algorithm = type[BaseAlgorithm]
STATES = np.arange(small_mdp.NUM_STATES)
ROLLOUT = {PPO: {"n_steps": 64, "batch_size": 64, "n_epochs": 4}}
SMALLER = {QRDQN: {"n_quantiles": 20}}


def tiny(**more: int) -> dict[str, Any]:
    """A small network; not shared, for SB3 writes into it."""
    return {"net_arch": [8], **more}


def trained(algorithm: Any, deterministic: bool = False) -> DiscreteSB3Policy:
    settings = {"seed": 0, "device": "cpu", "policy_kwargs": tiny(**SMALLER.get(algorithm, {}))}
    settings |= ROLLOUT.get(algorithm, {})
    with untraced():
        model = algorithm("MlpPolicy", gym.make("SmallMDP-v0"), **settings).learn(300)
    policy = as_policy(model, deterministic=deterministic)
    assert isinstance(policy, DiscreteSB3Policy)
    return policy


def frequencies(actions: Array, num_actions: int) -> Array:
    return np.asarray(np.bincount(actions, minlength=num_actions) / len(actions))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN, QRDQN])
def test_probabilities_are_a_distribution_that_peaks_at_the_action(
    algorithm: Algorithm, deterministic: bool
) -> None:
    policy = trained(algorithm, deterministic)
    probabilities = policy.probabilities(STATES)
    assert probabilities.shape == (small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert (probabilities.argmax(axis=1) == policy.action(STATES)).all()
    assert (probabilities.max(axis=1) == 1).all() == deterministic
    best, _ = policy.model.predict(STATES, deterministic=True)
    assert (policy.action(STATES) == best).all()


@pytest.mark.parametrize("algorithm", [PPO, A2C])
def test_actor_critic_probabilities_are_those_it_samples_from(algorithm: Algorithm) -> None:
    policy = trained(algorithm)
    observations = np.zeros(20_000, dtype=np.int64)
    expected = policy.probabilities(observations[:1])[0]
    sampled, _ = policy.model.predict(observations, deterministic=False)
    np.testing.assert_allclose(frequencies(sampled, small_mdp.NUM_ACTIONS), expected, atol=0.02)
    ours = policy.sample(observations, generator(0, "test"))
    np.testing.assert_allclose(frequencies(ours, small_mdp.NUM_ACTIONS), expected, atol=0.02)


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_value_based_models_are_epsilon_greedy_at_their_present_rate(algorithm: Algorithm) -> None:
    policy = trained(algorithm)
    model: Any = policy.model
    greedy = np.eye(small_mdp.NUM_ACTIONS)[policy.action(STATES)]
    for rate in (0.3, 0.0, 1.0):
        model.exploration_rate = rate
        expected = (1 - rate) * greedy + rate / small_mdp.NUM_ACTIONS
        np.testing.assert_allclose(policy.probabilities(STATES), expected)
    model.exploration_rate = 0.3
    # SB3 explores with all copies of a batch or none, so each is asked alone
    asked = [int(model.predict(STATES[:1], deterministic=False)[0][0]) for _ in range(4000)]
    expected = policy.probabilities(STATES[:1])[0]
    np.testing.assert_allclose(frequencies(np.array(asked), small_mdp.NUM_ACTIONS), expected, atol=0.03)


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_only_value_based_models_have_values(algorithm: Algorithm) -> None:
    assert trained(PPO).action_values(STATES) is None
    policy = trained(algorithm)
    values = policy.action_values(STATES)
    assert values is not None
    assert values.shape == (small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS)
    assert (values.argmax(axis=1) == policy.action(STATES)).all()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_model_is_explained_like_any_policy(deterministic: bool) -> None:
    policy, outcomes = trained(PPO, deterministic), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=5)
    explanation = Explainer(solution, policy, outcomes.legend).explain(STATES)
    np.testing.assert_allclose(explanation.ended[:, 1:], 1 - explanation.running[:, :-1], atol=1e-6)


def test_a_model_in_training_is_explained_as_it_is_now() -> None:
    policy = trained(PPO)
    before = policy.probabilities(STATES)
    policy.model.learn(128)
    assert not np.allclose(policy.probabilities(STATES), before)


def pendulum_observations(count: int) -> Array:
    rng = np.random.default_rng(0)
    angle, velocity = rng.uniform(-np.pi, np.pi, count), rng.uniform(-8, 8, count)
    return np.stack([np.cos(angle), np.sin(angle), velocity], axis=1).astype(np.float32)


def test_continuous_actions_have_no_probabilities_but_samples() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", policy_kwargs=tiny())
    seen = pendulum_observations(50)
    policy = as_policy(model, deterministic=False)
    assert not isinstance(policy, DiscretePolicy)
    best, _ = model.predict(seen, deterministic=True)
    np.testing.assert_array_equal(policy.action(seen), best)
    sampled = policy.sample(seen, generator(0, "test"))
    assert sampled.shape == (50, 1)
    assert not np.allclose(sampled, best, atol=0.1)
    assert model.action_space.contains(sampled[0])
    np.testing.assert_array_equal(sampled, policy.sample(seen, generator(0, "test")))
    assert not np.array_equal(sampled, policy.sample(seen, generator(1, "test")))
    assert policy.action_values(seen) is None
    certain = as_policy(model, deterministic=True)
    np.testing.assert_array_equal(certain.sample(seen, generator(0, "test")), best)


def test_sampling_draws_from_the_generator_given_and_from_no_other() -> None:
    model = SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", policy_kwargs=tiny())
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    as_policy(model, deterministic=False).sample(pendulum_observations(5), generator(0, "test"))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_continuous_samples_have_the_spread_that_the_model_draws_with(algorithm: Any) -> None:
    model = algorithm("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", policy_kwargs=tiny())
    seen = pendulum_observations(1).repeat(5000, axis=0)
    theirs, _ = model.predict(seen, deterministic=False)
    ours = as_policy(model, deterministic=False).sample(seen, generator(0, "test"))
    assert ours.std() == pytest.approx(theirs.std(), rel=0.05)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=0.08)


def test_observations_are_normalised_before_the_model_sees_them() -> None:
    model = PPO("MlpPolicy", "Pendulum-v1", seed=0, device="cpu", policy_kwargs=tiny())
    seen = pendulum_observations(20)
    policy = as_policy(model, normalization=lambda observations: observations / 4)
    np.testing.assert_array_equal(policy.action(seen), model.predict(seen / 4, deterministic=True)[0])
    assert not np.allclose(policy.action(seen), as_policy(model).action(seen))


def taxi_model() -> tuple[Environment, MaskablePPO]:
    env = Environment("FuelTaxi-v0")
    model = MaskablePPO(
        "MlpPolicy", env.make(), n_steps=64, batch_size=64, seed=0, device="cpu", policy_kwargs=tiny()
    )
    return env, model.learn(64)


def test_a_masked_model_keeps_to_its_mask() -> None:
    env, model = taxi_model()
    states = np.arange(1050)
    mask = env.mask(states)
    policy = as_policy(model, deterministic=False, mask=env.mask)
    assert isinstance(policy, DiscreteSB3Policy)
    probabilities = policy.probabilities(states)
    assert (probabilities[~mask] == 0).all()
    assert (probabilities[mask] > 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    best, _ = model.predict(states, action_masks=mask, deterministic=True)
    np.testing.assert_array_equal(policy.action(states), best)
    unmasked, _ = model.predict(states, deterministic=True)
    assert not np.array_equal(best, unmasked)
    certain = as_policy(model, mask=env.mask)
    assert isinstance(certain, DiscreteSB3Policy)
    np.testing.assert_array_equal(certain.probabilities(states), np.eye(7)[best])
    np.testing.assert_array_equal(certain.sample(states, generator(0, "test")), best)


def test_a_masked_model_samples_as_it_does_itself() -> None:
    env, model = taxi_model()
    state = np.full(20_000, encode(4, 0, 9, False))
    assert not env.mask(state).all()
    policy = as_policy(model, deterministic=False, mask=env.mask)
    theirs, _ = model.predict(state, action_masks=env.mask(state), deterministic=False)
    ours = policy.sample(state, generator(0, "test"))
    np.testing.assert_allclose(frequencies(ours, 7), frequencies(theirs, 7), atol=0.02)


def test_a_model_trained_with_masks_needs_them() -> None:
    _, model = taxi_model()
    with pytest.raises(ValueError, match="pass mask="):
        as_policy(model)


def test_a_mask_may_be_any_function_of_the_observation() -> None:
    _, model = taxi_model()

    def only(observations: Array) -> BoolArray:
        return np.asarray(np.eye(7)[observations % 7] > 0)

    policy = as_policy(model, deterministic=False, mask=only)
    states = np.arange(100)
    np.testing.assert_array_equal(policy.sample(states, generator(0, "test")), states % 7)


def recurrent(env_id: str) -> RecurrentPPO:
    kwargs = tiny(lstm_hidden_size=5, n_lstm_layers=2)
    settings = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}
    with untraced():
        return RecurrentPPO("MlpLstmPolicy", env_id, policy_kwargs=kwargs, **settings).learn(128)  # type: ignore[arg-type]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_a_recurrent_model_goes_through_episodes_as_it_does_itself(env_id: str) -> None:
    """The hidden state starts at zero and advances with what is observed; actions are the model's own."""
    model = recurrent(env_id)
    policy = as_policy(model)
    assert isinstance(policy, RecurrentSB3Policy)
    assert isinstance(policy, RecurrentPolicy)
    assert policy.start(3).shape == (3, 20)
    env = gym.make(env_id)
    for episode in range(2):
        observation, _ = env.reset(seed=episode)
        seen = with_initial_state(policy, observation[None])
        state: Any = None
        for _ in range(30):
            action, state = model.predict(
                observation[None], state=state, episode_start=np.array([state is None]), deterministic=True
            )
            np.testing.assert_allclose(policy.action(seen), action, rtol=1e-5, atol=1e-6)
            observation, _, terminated, _, _ = env.step(action[0])
            if terminated:
                break
            seen = with_next_state(policy, seen, observation[None])


def test_what_a_recurrent_model_does_depends_on_its_hidden_state() -> None:
    policy = as_policy(recurrent("Pendulum-v1"))
    assert isinstance(policy, RecurrentSB3Policy)
    seen = pendulum_observations(10)
    fresh = np.concatenate([seen, policy.start(10)], axis=1)
    later = np.concatenate([seen, policy.advance(fresh)], axis=1)
    assert not np.allclose(policy.action(fresh), policy.action(later))
    # each row has a hidden state of its own
    np.testing.assert_allclose(policy.action(later[3:4]), policy.action(later)[3:4], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(policy.advance(later[3:4]), policy.advance(later)[3:4], rtol=1e-5, atol=1e-6)


def test_a_recurrent_model_with_numbered_actions_has_probabilities() -> None:
    policy = as_policy(recurrent("CartPole-v1"), deterministic=False)
    assert isinstance(policy, DiscretePolicy)
    assert isinstance(policy, RecurrentPolicy)
    seen = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    fresh = np.concatenate([seen, policy.start(6)], axis=1)
    probabilities = policy.probabilities(fresh)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert (probabilities.argmax(axis=1) == policy.action(fresh)).all()
    many = fresh[:1].repeat(5000, axis=0)
    drawn = frequencies(policy.sample(many, generator(0, "test")), 2)
    np.testing.assert_allclose(drawn, probabilities[0], atol=0.03)


class TwoDials(gym.Env[Any, Any]):
    """Actions that consist of two choices."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        return np.zeros(2, dtype=np.float32), {}


def test_actions_that_consist_of_parts_are_those_of_the_model() -> None:
    policy = as_policy(PPO("MlpPolicy", TwoDials(), device="cpu", seed=0))
    seen = np.random.default_rng(0).uniform(-1, 1, (50, 2)).astype(np.float32)
    expected = policy.model.predict(seen, deterministic=True)[0]
    assert policy.action(seen).shape == (50, 2)
    np.testing.assert_array_equal(policy.action(seen), expected)
    explores = as_policy(policy.model, deterministic=False)
    assert len(np.unique(explores.sample(seen[:1].repeat(200, axis=0), generator(0, "test")), axis=0)) > 3


def test_actions_that_are_not_explained_are_refused_by_name() -> None:
    model = PPO("MlpPolicy", TwoDials(), device="cpu")
    model.action_space = gym.spaces.Text(3)
    with pytest.raises(TypeError, match=r"actions of Text"):
        as_policy(model)


def lean(observations: Array) -> Array:
    return np.asarray(observations[:, 2] > 0)


def test_any_function_is_a_policy_over_numbered_actions() -> None:
    trainer = GivenFunction(Environment("CartPole-v1"), np.random.default_rng(0), function=lean, discount=0.9)
    policy = trainer.policy
    assert (trainer.steps, policy.discount) == (0, 0.9)
    assert isinstance(policy, DiscretePolicy)
    seen = np.random.default_rng(0).normal(size=(50, 4))
    expected = (seen[:, 2] > 0).astype(int)
    np.testing.assert_array_equal(policy.action(seen), expected)
    np.testing.assert_array_equal(policy.probabilities(seen), np.eye(2)[expected])
    np.testing.assert_array_equal(policy.sample(seen, np.random.default_rng(0)), expected)
    assert policy.action_values(seen) is None


def test_any_function_is_a_policy_over_continuous_actions() -> None:
    def against(observations: Array) -> Array:
        return -observations[:, 2:]

    env = Environment("Pendulum-v1")
    policy = GivenFunction(env, np.random.default_rng(0), function=against, discount=0.99).policy
    assert not isinstance(policy, DiscretePolicy)
    seen = pendulum_observations(4)
    np.testing.assert_array_equal(policy.action(seen), -seen[:, 2:])
    np.testing.assert_array_equal(policy.sample(seen, np.random.default_rng(0)), -seen[:, 2:])


def test_a_function_that_is_not_batched_is_refused() -> None:
    policy = FunctionPolicy(lambda observations: np.zeros(1), 0.99, Box(-1, 1, (1,)))
    with pytest.raises(ValueError, match=r"shape \(1,\), expected \(3, 1\)"):
        policy.action(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="discount must lie in"):
        FunctionPolicy(lean, 2.0, Box(-1, 1, (1,)))


def test_every_kind_of_model_is_a_policy_of_its_kind() -> None:
    assert type(as_policy(PPO("MlpPolicy", "Pendulum-v1", device="cpu"))) is SB3Policy
    assert type(as_policy(PPO("MlpPolicy", "CartPole-v1", device="cpu"))) is DiscreteSB3Policy


@pytest.mark.parametrize("wrong", [-1, 2, 0.5])
def test_a_function_that_gives_no_action_is_refused(wrong: float) -> None:
    policy = DiscreteFunctionPolicy(lambda seen: np.full(len(seen), wrong), 0.99, Discrete(2))
    with pytest.raises(ValueError, match="the policy returned the action"):
        policy.probabilities(np.zeros((3, 4)))


def test_exploration_by_gsde_is_refused_by_name() -> None:
    model = PPO("MlpPolicy", "Pendulum-v1", use_sde=True, device="cpu")
    with pytest.raises(ValueError, match="gSDE"):
        as_policy(model, deterministic=False)
    assert as_policy(model).action(pendulum_observations(2)).shape == (2, 1)


def test_masks_of_a_wrapper_need_a_function_of_observations() -> None:
    def everything(env: Any) -> Any:
        return np.ones(2, dtype=bool)

    env = Environment("CartPole-v1", wrappers=[lambda inner: ActionMasker(inner, everything)])
    with pytest.raises(ValueError, match="mask_function"):
        env.check()


def test_an_explainer_is_refused_for_another_world_than_the_models() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(ValueError, match="but Acrobot-v1 has Box"):
        explainer_for(model, "env=acrobot")
    with pytest.raises(ValueError, match="but FuelTaxi-v0 has Discrete"):
        explainer_for(model)
