"""Networks that look at the agent's action values: where it may change its mind, other things happen."""

from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import DQN

from sb3_ext.policies import as_policy
from tests.support.networks import collected, network, taught
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import Array, Transitions
from tpd.envs import Environment
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.margins import Margins, has_margins
from tpd.store import explainers


@pytest.fixture(scope="module")
def env() -> Environment:
    return Environment("CartPole-v1")


@pytest.fixture(scope="module")
def model() -> DQN:
    return DQN("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]}, seed=0, device="cpu")


def outcomes() -> OutcomeSet:
    return OutcomeSet([event("right", lambda t: t.next_observation[:, 1] > 0)])


def push_right(observations: Array) -> Array:
    return np.ones(len(observations), dtype=np.int64)


def batch_of(env: Environment, model: DQN, steps: int = 300) -> Transitions:
    return collected(env, as_policy(model), steps)


def test_a_margin_is_the_best_value_minus_the_second_best(env: Environment, model: DQN) -> None:
    observed = batch_of(env, model).observation
    values = as_policy(model).action_values(observed)
    assert values is not None
    expected = np.abs(values[:, 0] - values[:, 1])  # of two actions
    np.testing.assert_allclose(Margins(as_policy(model))(observed)[:, 0], expected, rtol=1e-5)
    assert expected.std() > 0


def test_only_agents_with_action_values_have_margins(env: Environment, model: DQN) -> None:
    observed = batch_of(env, model).observation
    function = DiscreteFunctionPolicy(push_right, 0.9, env.action_space)
    assert has_margins(as_policy(model), observed)
    assert not has_margins(function, observed)
    assert not has_margins(as_policy(model), observed[:0])
    learned = taught(network(env, function, outcomes()), collected(env, function, 300), updates=3)
    assert not learned.network.margin


def test_a_network_that_asks_its_agent_is_saved_loaded_and_refused_without_it(
    env: Environment, model: DQN, tmp_path: Path
) -> None:
    policy, batch = as_policy(model), batch_of(env, model)
    learner = taught(network(env, policy, outcomes(), hidden=[8, 8]), batch, updates=10)
    assert learner.network.margin
    pairs = batch.observation[:50], batch.action[:50]
    expected = learner.predict(*pairs)
    explainers.save(Explainer(learner, policy, outcomes().legend), env, tmp_path)
    for with_agent in (True, False):  # it is made in any case, because the network needs it
        loaded = explainers.load(tmp_path, with_agent=with_agent)
        np.testing.assert_array_equal(loaded.predictor.predict(*pairs), expected)
    (tmp_path / "explainer.json").write_text(
        (tmp_path / "explainer.json").read_text().replace('"margin": true', '"margin": "yes"')
    )
    with pytest.raises(ValueError, match="margin"):
        explainers.load(tmp_path)


def test_an_agent_that_was_not_stored_is_asked_for(env: Environment, model: DQN) -> None:
    learner = taught(network(env, as_policy(model), outcomes()), batch_of(env, model), updates=3)
    solved, pair = learner.solved(), (np.zeros((1, 4), dtype=np.float32), np.array([0]))
    solved.network._margins = None
    assert not solved.complete
    with pytest.raises(ValueError, match="load it with its agent"):
        solved.predict(*pair)
    assert solved.completed(as_policy(model), None).complete
    assert np.isfinite(solved.predict(*pair)).all()


def test_margins_tell_apart_what_observations_hide() -> None:
    """Observations are noise; whether the agent is sure decides what it does next."""
    env, rng = Environment("CartPole-v1"), np.random.default_rng(0)

    class Sure:
        """Its values say which of two kinds of steps this is, which no single number shows."""

        discount = 0.9

        def action(self, observations: Array) -> Array:
            return np.zeros(len(observations), dtype=np.int64)

        def sample(self, observations: Array, rng: np.random.Generator) -> Array:
            return self.action(observations)

        def probabilities(self, observations: Array) -> Array:
            return np.eye(2)[self.action(observations)]

        def action_values(self, observations: Array) -> Array:
            sure = np.floor(observations[:, 0] * 1000) % 2
            return np.stack([1 + 5 * sure, np.ones(len(sure))], axis=1)

    observed = rng.uniform(-1, 1, (4000, 4)).astype(np.float32)
    sure = np.floor(observed[:, 0] * 1000) % 2
    following = observed.copy()
    following[:, 1] = sure - 0.5
    batch = Transitions(
        observation=observed,
        action=np.zeros(4000, dtype=np.int64),
        next_observation=following,
        reward=np.zeros(4000),
        terminated=np.ones(4000, dtype=np.bool_),
        truncated=np.zeros(4000, dtype=np.bool_),
    )
    learner = network(env, Sure(), outcomes(), hidden=[32], learning_rate=1e-2)
    learner = taught(learner, batch, updates=300)
    said = learner.predict(observed[:200], np.zeros(200, dtype=np.int64))[:, 0, 0]
    assert np.mean((said > 0.5) == (sure[:200] == 1)) > 0.95
