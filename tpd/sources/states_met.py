"""The states that an agent meets: those of recorded episodes, or of a few that are played for it."""

import itertools
from dataclasses import dataclass

import numpy as np

from tpd.core.seeding import generator
from tpd.core.types import Array, IntArray, Policy
from tpd.envs import Environment
from tpd.sources.episodes import Recording
from tpd.sources.playing import play_together

PLAYED, ENOUGH_STATES = 40, 10_000
"""So many episodes are played at most, until there are so many states."""
AT_ONCE = 10
FIRST_SEED = 1_000_000
LONGEST = 20_000
"""Steps of episodes played at once, where no time limit ends them."""


@dataclass(frozen=True)
class StatesMet:
    """States of the agent's own episodes, each as often as it was met."""

    observations: Array
    """[state, ...]"""
    episode: IntArray
    """[state]: the episode that each was met in"""

    def __len__(self) -> int:
        return len(self.episode)

    def sample(self, count: int, rng: np.random.Generator) -> "StatesMet":
        """At most so many of them, in the order of time."""
        if len(self) <= count:
            return self
        chosen = np.sort(rng.choice(len(self), count, replace=False))
        return StatesMet(self.observations[chosen], self.episode[chosen])


def recorded_states(recording: Recording) -> StatesMet:
    """Those of recorded episodes."""
    episodes = recording.episodes
    steps = np.diff([*episodes.begins.tolist(), len(episodes.transitions)])
    return StatesMet(episodes.transitions.observation, np.repeat(np.arange(len(episodes)), steps))


def played_states(env: Environment, policy: Policy) -> StatesMet:
    """Those of fresh episodes."""
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
