"""A small random environment with a table, for laws that must hold in any."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text.utils import categorical_sample

from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import BoolArray, FloatArray, Transitions
from tpd.envs import Environment
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.pair_table import PairTable

NUM_STATES, NUM_ACTIONS = 6, 3
TERMINATION = 0.15


class SmallMDP(gym.Env[Any, Any]):
    """Random dynamics; reward 1 for arriving in an odd state, 0 otherwise."""

    def __init__(self, render_mode: str | None = None) -> None:
        rng = np.random.default_rng(7)
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Discrete(NUM_STATES)
        self.action_space = gym.spaces.Discrete(NUM_ACTIONS)
        self.initial_state_distrib = np.full(NUM_STATES, 1 / NUM_STATES)
        self.P: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = {}
        for s in range(NUM_STATES):
            self.P[s] = {}
            for a in range(NUM_ACTIONS):
                successors = rng.choice(NUM_STATES, size=2, replace=False)
                p = float(rng.uniform(0.2, 0.8)) * (1 - TERMINATION)
                ending = int(rng.integers(NUM_STATES))
                self.P[s][a] = [
                    (p, int(successors[0]), float(successors[0] % 2), False),
                    (1 - TERMINATION - p, int(successors[1]), float(successors[1] % 2), False),
                    (TERMINATION, ending, float(ending % 2), True),
                ]
        self.s = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.s = int(categorical_sample(self.initial_state_distrib, self.np_random))
        return self.s, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        branches = self.P[self.s][int(action)]
        _, self.s, reward, terminated = branches[
            int(categorical_sample([b[0] for b in branches], self.np_random))
        ]
        return self.s, reward, terminated, False, {"parity": self.s % 2}


gym.register(id="SmallMDP-v0", entry_point="tests.support.small_mdp:SmallMDP", max_episode_steps=50)


def odd(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation % 2 == 1)


def even(t: Transitions) -> BoolArray:
    return ~odd(t)


def environment() -> Environment:
    return Environment("SmallMDP-v0")


def outcomes() -> OutcomeSet:
    return OutcomeSet(
        [event("odd", odd, 1.0), event("even", even, 0.0), event("odd", odd, first=True)],
        partition=True,
        accounts_for_reward=True,
    )


def policy(stochastic: bool = True) -> TabularPolicy:
    rng = np.random.default_rng(11)
    if stochastic:
        return TabularPolicy(rng.dirichlet(np.ones(NUM_ACTIONS), NUM_STATES), discount=0.9)
    return TabularPolicy(np.eye(NUM_ACTIONS)[rng.integers(NUM_ACTIONS, size=NUM_STATES)], discount=0.9)


def dense(table: PairTable) -> FloatArray:
    """[state, action, horizon, outcome]: 0 where unknown."""
    states, actions = np.indices((NUM_STATES, NUM_ACTIONS))
    return table.predict(states, actions)
