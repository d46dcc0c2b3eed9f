"""SB3 models as black-box policies that the rest of tpd explains like its own."""

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import A2C, DQN, PPO

from sb3_ext.policies import SB3Policy
from tests import small_mdp
from tpd.explainer import Explainer
from tpd.truth.exact import ExactSolution

Algorithm = type[PPO] | type[A2C] | type[DQN]
STATES = np.arange(small_mdp.NUM_STATES)


def trained(algorithm: Algorithm) -> SB3Policy:
    model = algorithm("MlpPolicy", gym.make("SmallMDP-v0"), seed=0, device="cpu")
    return SB3Policy(model.learn(300))


@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN])
def test_probabilities_are_a_distribution_that_peaks_at_the_action(algorithm: Algorithm) -> None:
    policy = trained(algorithm)
    probabilities = policy.probabilities(STATES)
    assert probabilities.shape == (small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (probabilities.argmax(axis=1) == policy.action(STATES)).all()


def test_actor_critic_probabilities_are_those_it_samples_from() -> None:
    policy = trained(PPO)
    observations = np.zeros(20_000, dtype=np.int64)
    sampled, _ = policy.model.predict(observations, deterministic=False)
    frequencies = np.bincount(sampled, minlength=small_mdp.NUM_ACTIONS) / len(sampled)
    np.testing.assert_allclose(frequencies, policy.probabilities(observations[:1])[0], atol=0.02)


def test_only_value_based_models_have_values() -> None:
    assert trained(PPO).action_values(STATES) is None
    dqn = trained(DQN)
    values = dqn.action_values(STATES)
    assert values is not None
    assert (values.argmax(axis=1) == dqn.action(STATES)).all()


def test_a_model_is_explained_like_any_policy() -> None:
    policy, outcomes = trained(PPO), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=5)
    explanation = Explainer(solution, policy, outcomes.legend).explain(STATES)
    np.testing.assert_allclose(explanation.ended[:, 1:], 1 - explanation.running[:, :-1], atol=1e-6)


def test_continuous_actions_are_refused_by_name() -> None:
    model = PPO("MlpPolicy", "Pendulum-v1", device="cpu")
    with pytest.raises(TypeError, match="Box"):
        SB3Policy(model)
