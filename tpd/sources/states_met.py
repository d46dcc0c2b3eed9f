"""The states that an agent visits, from recorded episodes or from a few new ones."""

import itertools
from dataclasses import dataclass

import numpy as np

from tpd.core.seeding import generator
from tpd.core.types import Array, IntArray, Policy, Rng
from tpd.envs import Environment
from tpd.sources.episodes import Recording
from tpd.sources.playing import play_together

PLAYED, ENOUGH_STATES = 40, 10_000
"""Upper bounds: episodes to play, and states to collect."""
AT_ONCE = 10
FIRST_SEED = 1_000_000
LONGEST = 20_000
"""Total steps of episodes played at once if the environment has no time limit."""


@dataclass(frozen=True)
class StatesMet:
    """States visited in the agent's own episodes, repeated as often as they were visited."""

    observations: Array
    """[state, ...]"""
    episode: IntArray
    """[state]: the episode of each state"""

    def __len__(self) -> int:
        return len(self.episode)

    def sample(self, count: int, rng: Rng) -> "StatesMet":
        """At most `count` of them, in order of time."""
        if len(self) <= count:
            return self
        chosen = np.sort(rng.choice(len(self), count, replace=False))
        return StatesMet(self.observations[chosen], self.episode[chosen])


def recorded_states(recording: Recording) -> StatesMet:
    """The states of recorded episodes."""
    episodes = recording.episodes
    steps = np.diff([*episodes.begins.tolist(), len(episodes.transitions)])
    return StatesMet(episodes.transitions.observation, np.repeat(np.arange(len(episodes)), steps))


def played_states(env: Environment, policy: Policy) -> StatesMet:
    """The states of newly played episodes."""
    rng = generator(0, "states met")
    observations, episode = list[Array](), list[int]()
    for first in range(0, PLAYED, AT_ONCE):
        seeds = range(FIRST_SEED + first, FIRST_SEED + first + AT_ONCE)
        for step in itertools.islice(play_together(env, policy, seeds, rng), LONGEST):
            observations.append(step.observation)
            episode.append(first + step.episode)
        if len(episode) >= ENOUGH_STATES:
            break
    return StatesMet(np.concatenate(observations), np.array(episode))
