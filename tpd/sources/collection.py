"""Collects transitions from an environment: with exploration to learn from, or whole episodes to judge by."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tpd.core.seeding import reset_seed
from tpd.core.types import Episodes, IntArray, Policy, Rng, Transitions, concatenate
from tpd.envs import Environment
from tpd.envs.tabular import TabularVectorEnv
from tpd.sources.exploration import Exploration, TabularExplorer, explorer
from tpd.sources.long_episodes import LongEpisodes
from tpd.sources.stepping import interact

SMALLEST_BATCH, LARGEST_BATCH = 5_000, 50_000
STEPS_AT_ONCE = 5  # with more, exploration would lag behind the visit counts
MANY_COPIES, FEW_COPIES = 1000, 32
NO_EXPLORATION = Exploration(0.0)


def collect(
    env: Environment,
    policy: Policy,
    rng: Rng,
    *,
    steps: int,
    exploration: Exploration,
    num_envs: int,
    info_keys: Sequence[str] = (),
) -> Iterator[Transitions]:
    """Yield exactly `steps` transitions, in batches."""
    if steps == 0:
        return
    wrap = LongEpisodes().wrap if exploration.cut_long else None
    envs = env.make_vector(min(num_envs, steps), info_keys, wrap)
    behaviour = explorer(env, policy, exploration, rng)
    if exploration.restarts:
        assert isinstance(envs, TabularVectorEnv), "restarts were not checked"
        assert isinstance(behaviour, TabularExplorer)
        envs.restart = behaviour.restart
    stream: Iterator[Transitions]
    if isinstance(behaviour, TabularExplorer) and type(envs) is TabularVectorEnv:
        envs.reset(seed=reset_seed(rng))
        stream = (envs.roll(behaviour.table, STEPS_AT_ONCE, rng) for _ in itertools.count())
    else:
        stream = (step for _, step in interact(envs, policy, behaviour, reset_seed(rng), info_keys))
    parts, gathered, done = list[Transitions](), 0, 0
    while done < steps:
        # small batches first, so that the beginning of learning can be watched
        size = min(steps - done, max(SMALLEST_BATCH, min(LARGEST_BATCH, done // 4)))
        while gathered < size:
            parts.append(next(stream))
            gathered += len(parts[-1])
        joined = concatenate(parts)
        batch, parts = joined[:size], [joined[size:]]
        gathered -= size
        done += size
        if env.masking is not None:
            env.require_choice(batch.observation, env.mask(batch.observation))
        behaviour.remember(batch)
        yield batch
    envs.close()


def play(
    env: Environment,
    policy: Policy,
    rng: Rng,
    *,
    episodes: int,
    info_keys: Sequence[str] = (),
    exploration: Exploration = NO_EXPLORATION,
) -> Episodes:
    """Play whole episodes of the policy, by default without exploration.

    Each copy plays a fixed share of the episodes to the end: stopping once enough episodes have ended would
    favour short ones.
    """
    num_envs = min(MANY_COPIES if env.tabular else FEW_COPIES, episodes)
    left = np.full(num_envs, episodes // num_envs)
    left[: episodes % num_envs] += 1
    envs = env.make_vector(num_envs, info_keys)
    parts, owners = list[Transitions](), list[IntArray]()
    behaviour = explorer(env, policy, exploration, rng)
    for copies, step in interact(envs, policy, behaviour, reset_seed(rng), info_keys):
        playing = left[copies] > 0
        parts.append(step[playing])
        owners.append(copies[playing])
        left[copies] -= step.terminated | step.truncated
        if (left <= 0).all():
            break
    envs.close()
    # the steps of each copy are in order, so a stable sort by copy groups them into episodes
    order = np.argsort(np.concatenate(owners), kind="stable")
    transitions = concatenate(parts)[order]
    ended = transitions.terminated | transitions.truncated
    return Episodes(transitions, np.flatnonzero(np.concatenate([[True], ended[:-1]])))
