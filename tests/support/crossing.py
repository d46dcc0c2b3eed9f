"""A ferry that crosses in three steps: a storm at the first step decides how, and rain decides nothing."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text.utils import categorical_sample

from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import BoolArray, Transitions
from tpd.envs import Environment
from tpd.policies.tabular import TabularPolicy

STORM, ARRIVES_AFTER_STORM, ARRIVES = 0.2, 0.25, 0.95
PLACES = 6
"""Each is two states, dry and in the rain."""
PIER, STORMY, CALM, LATER_STORMY, LATER_CALM, ASHORE = range(PLACES)


class Crossing(gym.Env[Any, Any]):
    """Action 0 sails, action 1 waits at the pier and is harmless elsewhere."""

    def __init__(self, render_mode: str | None = None, storm: float = STORM, matters: bool = True) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Discrete(2 * PLACES)
        self.action_space = gym.spaces.Discrete(2)
        self.initial_state_distrib = np.eye(2 * PLACES)[PIER]
        after_storm = ARRIVES_AFTER_STORM if matters else ARRIVES
        moves: dict[int, list[tuple[float, int, float, bool]]] = {
            PIER: [(storm, STORMY, 0.0, False), (1 - storm, CALM, 0.0, False)],
            STORMY: [(1.0, LATER_STORMY, 0.0, False)],
            CALM: [(1.0, LATER_CALM, 0.0, False)],
            LATER_STORMY: [(after_storm, ASHORE, 1.0, True), (1 - after_storm, ASHORE, -1.0, True)],
            LATER_CALM: [(ARRIVES, ASHORE, 1.0, True), (1 - ARRIVES, ASHORE, -1.0, True)],
            ASHORE: [(1.0, ASHORE, 0.0, True)],
        }
        waits = {**moves, PIER: [(1.0, PIER, 0.0, False)]}
        self.P = {
            2 * place + rain: {a: _in_the_rain(way[place]) for a, way in enumerate((moves, waits))}
            for place in range(PLACES)
            for rain in range(2)
        }
        self.s = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.s = 0
        return self.s, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        branches = self.P[self.s][int(action)]
        drawn = int(categorical_sample([branch[0] for branch in branches], self.np_random))
        _, self.s, reward, terminated = branches[drawn]
        return self.s, reward, terminated, False, {}


def _in_the_rain(
    branches: list[tuple[float, int, float, bool]],
) -> list[tuple[float, int, float, bool]]:
    return [(p / 2, 2 * s + rain, r, end) for p, s, r, end in branches for rain in range(2)]


gym.register(id="Crossing-v0", entry_point="tests.support.crossing:Crossing", max_episode_steps=20)


def environment(**kwargs: Any) -> Environment:
    return Environment("Crossing-v0", kwargs=kwargs)


def storm(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation // 2 == STORMY)


def rain(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation % 2 == 1)


def arrives(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (t.reward > 0))


def sinks(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (t.reward < 0))


def outcomes() -> OutcomeSet:
    events = [event("storm", storm), event("rain", rain)]
    return OutcomeSet([*events, event("arrives", arrives), event("sinks", sinks)], first=["arrives", "sinks"])


def sailor() -> TabularPolicy:
    return TabularPolicy(np.tile([1.0, 0.0], (2 * PLACES, 1)), discount=1.0)
