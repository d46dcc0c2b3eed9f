"""Small networks and what they are taught."""

from typing import Any

import numpy as np

from tests.support import small_mdp, worlds  # noqa: F401, which registers its environments
from tpd.core.outcomes import Outcome, OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import (
    Array,
    BoolArray,
    Policy,
    Transitions,
    concatenate,
)
from tpd.envs import Environment
from tpd.predictors.network.learner import NetworkFHTD
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration

HORIZON = 6
STATES, ACTIONS = (index.ravel() for index in np.indices((small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS)))


def network(env: Environment, policy: Policy, outcomes: OutcomeSet, **settings: Any) -> NetworkFHTD:
    usual: dict[str, Any] = {
        "horizon": HORIZON,
        "form": "efo",
        "discount": 1.0,
        "hidden": [32],
        "learning_rate": 0.01,
        "batch_size": 256,
        "target_update_rate": 0.05,
        "updates_per_step": 0.0,
        "fit_updates": 0,
        "replay_size": 100_000,
        "weight_decay": 0.0,
        "difference_decay": 0.0,
    }
    return NetworkFHTD(env, policy, outcomes, **(usual | settings))


def collected(env: Environment, policy: Policy, steps: int, epsilon: float = 0.5) -> Transitions:
    rng, exploration = generator(0, "test"), Exploration(epsilon)
    return concatenate(list(collect(env, policy, rng, steps=steps, exploration=exploration, num_envs=50)))


def taught(learner: NetworkFHTD, transitions: Transitions, updates: int) -> NetworkFHTD:
    learner.update(transitions)
    for _ in range(updates):
        learner.learn()
    return learner


def small_network(policy: Policy, **settings: Any) -> NetworkFHTD:
    return network(small_mdp.environment(), policy, small_mdp.outcomes(), **settings)


def small_transitions(policy: Policy, steps: int = 20_000) -> Transitions:
    return collected(small_mdp.environment(), policy, steps)


def rings(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, 1] == 1)


def dial_outcomes() -> OutcomeSet:
    return OutcomeSet([event("rings", rings), Outcome("reward", lambda t: t.reward, -5, 5)])


def turn(observations: Array) -> Array:
    """To the other side."""
    return -observations[:, :1]


class Restless:
    """Never does what it does on average."""

    discount = 0.9

    def action(self, observations: Array) -> Array:
        return np.zeros((len(observations), 1), dtype=np.float32)

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return rng.choice(np.array([-0.8, 0.8], dtype=np.float32), size=(len(observations), 1))

    def action_values(self, observations: Array) -> None:
        return None


def wait(observations: Array) -> Array:
    return np.zeros(len(observations), dtype=np.int64)
