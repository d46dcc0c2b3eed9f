"""Plays many episodes of a policy in parallel and yields their steps, each with the moment before it."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from tpd.core.observations import batch
from tpd.core.types import Array, Policy, Rng
from tpd.envs import Environment
from tpd.sources.hidden_state import with_initial_state, with_next_state
from tpd.sources.moments import Moment
from tpd.sources.stepping import check_numbers, reporting_step_errors
from tpd.sources.worlds import LocalWorlds

TOGETHER = 256
"""Number of environments open at once."""


@dataclass(frozen=True, eq=False)
class PlayedStep:
    """A step of an episode."""

    episode: int
    seed: int
    taken: Sequence[Any]
    """The actions of the episode so far; the list keeps growing."""
    time: int
    """The number of actions before this step."""
    observation: Array
    """[1, ...]: the observation, with the policy's hidden state"""
    action: Array
    """[1, ...]"""
    terminated: bool
    truncated: bool

    def moment(self) -> Moment:
        """The moment before the step."""
        return Moment(self.seed, np.array(self.taken[: self.time]), self.observation[0])


def play_together(env: Environment, policy: Policy, seeds: Sequence[int], rng: Rng) -> Iterator[PlayedStep]:
    """Yield every step of the episodes with these seeds, in order of time within each episode."""
    for first in range(0, len(seeds), TOGETHER):
        yield from _play_some(env, policy, first, seeds[first : first + TOGETHER], rng)


def _play_some(
    env: Environment, policy: Policy, first: int, seeds: Sequence[int], rng: Rng
) -> Iterator[PlayedStep]:
    envs = [env.make() for _ in seeds]
    with closing(LocalWorlds(envs)) as worlds:
        shown = [one.reset(seed=seed)[0] for one, seed in zip(envs, seeds, strict=True)]
        observations = with_initial_state(policy, _observed(env, envs[0], shown))
        taken: list[list[Any]] = [[] for _ in envs]
        running = np.arange(len(envs))
        while len(running):
            actions = np.array(policy.sample(observations, rng))  # a copy, since it is kept
            steps = worlds.step(running, actions)
            ended = np.zeros(len(running), dtype=np.bool_)
            for row, (episode, step) in enumerate(zip(running.tolist(), steps, strict=True)):
                _, _, terminated, truncated, _ = step
                one = slice(row, row + 1)
                taken[episode].append(actions[row])
                yield PlayedStep(
                    first + episode,
                    seeds[episode],
                    taken[episode],
                    len(taken[episode]) - 1,
                    observations[one],
                    actions[one],
                    bool(terminated),
                    bool(truncated),
                )
                ended[row] = terminated or truncated
            arrived = _observed(env, envs[0], [step[0] for step in steps])
            observations = with_next_state(policy, observations, arrived)[~ended]
            running = running[~ended]


def _observed(env: Environment, one: gym.Env[Any, Any], shown: Sequence[Any]) -> Array:
    """[batch, ...]: the observations as one array, checked against the observation space."""
    with reporting_step_errors(one):
        joined = batch(env.observation_space, shown)
        check_numbers(env.observation_space, joined)
    return joined
