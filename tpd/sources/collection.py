"""Transitions collected now: with exploration for learning, or as whole episodes for judging."""

from collections.abc import Iterator, Sequence

import numpy as np

from tpd.envs import Environment
from tpd.envs.tabular import TabularVectorEnv
from tpd.seeding import reset_seed
from tpd.sources.exploration import Exploration, TabularExplorer
from tpd.sources.interaction import interact
from tpd.types import Policy, Transitions, concatenate

SMALLEST_BATCH, LARGEST_BATCH = 5_000, 50_000


def collect(
    env: Environment,
    policy: Policy,
    rng: np.random.Generator,
    *,
    steps: int,
    exploration: Exploration,
    num_envs: int,
    info_keys: Sequence[str] = (),
) -> Iterator[Transitions]:
    """Exactly `steps` transitions, in batches."""
    if steps == 0:
        return
    envs = env.make_vector(min(num_envs, steps), info_keys)
    explorer = TabularExplorer(env, policy, exploration, rng)
    if exploration.restarts:
        assert isinstance(envs, TabularVectorEnv), "restarts were not checked"
        envs.restart = explorer.restart
    stream = interact(envs, explorer, reset_seed(rng), info_keys)
    parts, gathered, done = list[Transitions](), 0, 0
    while done < steps:
        # small batches at first, so that learning can be watched from its beginning
        size = min(steps - done, max(SMALLEST_BATCH, min(LARGEST_BATCH, done // 4)))
        while gathered < size:
            parts.append(next(stream)[1])
            gathered += len(parts[-1])
        joined = concatenate(parts)
        batch, parts = joined[:size], [joined[size:]]
        gathered -= size
        done += size
        explorer.remember(batch)
        yield batch
    envs.close()


def play(
    env: Environment, policy: Policy, rng: np.random.Generator, *, episodes: int, num_envs: int = 1000
) -> Transitions:
    """All transitions of whole episodes of the policy itself, without exploration.

    Every copy plays its share to the end: stopping at the first so many endings would favour
    short episodes.
    """
    num_envs = min(num_envs, episodes)
    left = np.full(num_envs, episodes // num_envs)
    left[: episodes % num_envs] += 1
    envs = env.make_vector(num_envs)
    parts = []
    for copies, step in interact(envs, TabularExplorer(env, policy, Exploration(0.0), rng), reset_seed(rng)):
        parts.append(step[left[copies] > 0])
        left[copies] -= step.terminated | step.truncated
        if (left <= 0).all():
            break
    envs.close()
    return concatenate(parts)
