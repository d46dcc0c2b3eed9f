"""Forks of a running environment: copies that start at the same moment and continue with different seeds."""

import contextlib
import copy
import functools
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from tpd.core.observations import batch
from tpd.core.seeding import generator
from tpd.core.types import Array, IntArray, Rng
from tpd.envs import Environment
from tpd.sources.exploration import random_actions
from tpd.sources.moments import Moment
from tpd.sources.random_sources import GLOBAL, reseed, take_over
from tpd.sources.worlds import Env, ForkedWorlds, LocalWorlds, WorldError, Worlds

DEPTHS = (0, 5, 20)  # steps before the fork, one tested episode for each
FUTURE = 30  # steps after the fork that are compared
FORK_PATIENCE = 20.0
"""Seconds after which an unresponsive process fork counts as hung, while forking is tested."""
LIMITS_AND_CHECKS = gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker
WORTH_FORKING = 5
"""Use several processes if the work takes at least this many times as long as forking them."""


class Start(NamedTuple):
    """A moment to fork from, and the seed of each fork."""

    moment: Moment
    seeds: IntArray
    """[fork]: forks with the same seed have the same future"""


class Forks:
    """Forks an environment at moments of its episodes, after testing that this works.

    A fork is a new environment with the simulator state of the original (MuJoCo), or a deep copy, if tests
    show that it behaves like a replay. Otherwise it is a replay (a new environment with the same seed and
    actions) or a fork of this process after a single replay, whichever is faster. Its random generators are
    seeded anew, so that futures differ. Its time limit is removed: only termination ends a predicted future.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        rng = generator(0, "proof of forks")
        moments = [self._random_moment(seed, depth, rng) for seed, depth in enumerate(DEPTHS)]
        for moment in moments:
            self._prove_replay(moment, rng)
        ways = [self._take_over_state, self._deep_copy]
        proven = (way for way in ways if all(self._prove_copy(way, moment, rng) for moment in moments))
        self._copy = next(proven, None)
        self._make_seconds, self._step_seconds = self._time_replay(moments)
        self._fork_seconds = np.inf
        if hasattr(os, "fork"):
            self._fork_seconds = max(self._prove_process(moment, rng) for moment in moments)
        for moment in moments:
            self._prove_seeding(moment, rng)
        self._prove_reach(rng)

    @property
    def by_copy(self) -> bool:
        """Whether forks are copies; otherwise they are replays, or forks of this process."""
        return self._copy is not None

    def fork(self, moment: Moment, seeds: Sequence[int] | IntArray) -> list[Env]:
        """One environment per seed, all at this moment; the same seed has the same future."""
        if self._copy is not None:
            standing = self._lead_to(moment)
            envs = [self._copy(standing, moment) for _ in seeds]
            standing.close()
        else:
            envs = [self._lead_to(moment) for _ in seeds]
        for env, seed in zip(envs, seeds, strict=True):
            reseed(env, int(seed))
        return envs

    def worlds(self, starts: Sequence[Start], steps: int, watched: bool = False) -> Worlds:
        """The forks of all starts, in order, in as many processes as is fastest.

        steps: how many steps each fork will probably take. The futures do not depend on the way of forking.
        """
        forks = sum(len(start.seeds) for start in starts)
        replayed = sum(len(start.seeds) * len(start.moment.actions) for start in starts)
        replaying = 0 if self.by_copy else forks * self._make_seconds + replayed * self._step_seconds
        if replaying > forks * self._fork_seconds:
            return self.in_processes(starts, watched)
        seconds = forks * steps * self._step_seconds + replaying
        workers = min(_cores(), forks)
        if workers < 2 or seconds < WORTH_FORKING * workers * self._fork_seconds:
            return LocalWorlds(self._fork_all(starts), watched)
        return self.in_workers(starts, workers, watched)

    def in_processes(self, starts: Sequence[Start], watched: bool = False) -> ForkedWorlds:
        """Each fork in its own process, forked from this one after a single replay."""
        with contextlib.ExitStack() as standing:
            makers = []
            for start in starts:
                env = standing.enter_context(contextlib.closing(self._lead_to(start.moment)))
                makers += [functools.partial(_seeded, env, int(seed)) for seed in start.seeds]
            return ForkedWorlds(makers, [1] * len(makers), watched)

    def in_workers(self, starts: Sequence[Start], workers: int, watched: bool = False) -> ForkedWorlds:
        """The forks distributed over worker processes, each of which makes its own share."""
        shares = [share for share in _shares(starts, workers) if share]
        makers = [functools.partial(self._fork_all, share) for share in shares]
        return ForkedWorlds(makers, [sum(len(start.seeds) for start in share) for share in shares], watched)

    def _fork_all(self, starts: Sequence[Start]) -> list[Env]:
        return [env for start in starts for env in self.fork(start.moment, start.seeds)]

    def _new(self) -> Env:
        """A new environment without time limit, and without wrappers that only check its usage."""
        env = layer = self._env.make()
        while isinstance(env, LIMITS_AND_CHECKS):
            env = layer = env.env
        while isinstance(layer, gym.Wrapper):
            if isinstance(layer, gym.wrappers.TimeLimit):
                layer._max_episode_steps = sys.maxsize
            layer = layer.env
        return env

    def _lead_to(self, moment: Moment) -> Env:
        env = self._new()
        observation, _ = env.reset(seed=moment.seed)
        for step, action in enumerate(moment.actions.tolist() if self._env.discrete else moment.actions):
            observation, _, terminated, *_ = env.step(action)
            if terminated:
                raise ValueError(
                    f"the episode of seed {moment.seed} terminates at step {step}, so it cannot be "
                    "continued: ask about an earlier step"
                )
        if not moment.shows(self._env.observation_space, observation):
            raise ValueError(
                self._unrepeatable(f"gives another observation after {len(moment.actions)} steps")
            )
        return env

    def _deep_copy(self, env: Env, moment: Moment) -> Env:
        shared = {}
        if self._env.model is not None:  # the transition table never changes and is slow to copy
            table = env.unwrapped.P  # type: ignore[attr-defined]
            shared[id(table)] = table
        return copy.deepcopy(env, shared)

    def _take_over_state(self, env: Env, moment: Moment) -> Env:
        """A new environment with the full MuJoCo state of another: positions, warm starts, sensors."""
        new = self._new()
        new.reset(seed=moment.seed)  # draws what is kept outside the state
        inner, data = new.unwrapped, env.unwrapped.data  # type: ignore[attr-defined]
        sys.modules["mujoco"].mj_copyData(inner.data, inner.model, data)  # type: ignore[attr-defined]
        take_over(new, env)
        return new

    def _random_moment(self, seed: int, depth: int, rng: Rng) -> Moment:
        env = self._new()
        observation = self._seen(env.reset(seed=seed)[0])
        actions = list[Any]()
        for _ in range(depth):
            action = self._random_action(observation, rng)
            arrived, _, terminated, *_ = env.step(action)
            if terminated:
                break
            actions.append(action)
            observation = self._seen(arrived)
        env.close()
        return Moment(seed, np.array(actions), observation)

    def _seen(self, observation: Any) -> Array:
        """[...]: the observation as one array; copied, since some environments reuse the same buffer."""
        return np.array(batch(self._env.observation_space, [observation])[0])

    def _random_action(self, observation: Array, rng: Rng) -> Any:
        return random_actions(self._env, observation[None], rng)[0]

    def _prove_replay(self, moment: Moment, rng: Rng) -> None:
        envs = [self._lead_to(moment), self._lead_to(moment)]
        before = pickle.dumps(GLOBAL)
        same = self._same_future(envs, moment.observation, rng)
        if pickle.dumps(GLOBAL) != before:
            raise ValueError(
                f"{self._env.id} draws from the global generator of the module numpy.random or random, which "
                "all environments share, so it cannot be forked; let it draw from self.np_random instead"
            )
        if not same:
            raise ValueError(self._unrepeatable("continues differently"))

    def _unrepeatable(self, what: str) -> str:
        return (
            f"{self._env.id} cannot be forked: with the same seed and actions it {what}, so it has "
            "randomness that reset(seed=...) does not control, or state that its copies share; ask the "
            "learned predictor about the observation"
        )

    def _prove_copy(self, way: Callable[[Env, Moment], Env], moment: Moment, rng: Rng) -> bool:
        """Whether a copy, its original and a replay behave the same when they are stepped in turn."""
        original, replay = self._lead_to(moment), self._lead_to(moment)
        try:
            envs = [replay, way(original, moment), original]
            return self._same_future(envs, moment.observation, rng)
        except Exception:  # an incomplete copy may fail with any error; a replay is complete
            return False

    def _prove_process(self, moment: Moment, rng: Rng) -> float:
        """CPU seconds for a future in a process fork; inf if that future differs from the one of a replay."""
        standing, replay = self._lead_to(moment), self._lead_to(moment)
        reseed(replay, 1)
        observation, began = moment.observation, _cpu_seconds()
        try:
            maker = functools.partial(_seeded, standing, 1)
            with contextlib.closing(ForkedWorlds([maker], [1], patience=FORK_PATIENCE)) as forked:
                for _ in range(FUTURE):
                    action = self._random_action(observation, rng)
                    here, (there,) = replay.step(action)[:3], forked.step([0], action[None])
                    if not data_equivalence(here, there[:3], exact=True):
                        return np.inf
                    if here[2]:
                        break
                    observation = self._seen(here[0])
        except WorldError:  # for example, it waits for a thread that was not forked
            return np.inf
        return _cpu_seconds() - began

    def _time_replay(self, moments: Sequence[Moment]) -> tuple[float, float]:
        """CPU seconds to make an environment, and to take one step."""
        made = stepped = 0.0
        for moment in moments:
            began = _cpu_seconds()
            env = self._new()
            env.reset(seed=moment.seed)
            begun = _cpu_seconds()
            for action in moment.actions:
                env.step(action)
            made, stepped = made + begun - began, stepped + _cpu_seconds() - begun
            env.close()
        return made / len(moments), stepped / max(1, sum(len(moment.actions) for moment in moments))

    def _prove_seeding(self, moment: Moment, rng: Rng) -> None:
        if not self._same_future(self.fork(moment, [1, 1]), moment.observation, rng):
            raise ValueError(
                f"{self._env.id} cannot be forked: two forks of one moment with the same seed continue "
                "differently, so it has randomness that cannot be seeded"
            )

    def _prove_reach(self, rng: Rng) -> None:
        """Check that reseeding reaches all randomness: the future must not depend on the first seed."""
        envs, observations = list[Env](), list[Any]()
        for first_seed in (1, 2):
            env = self._new()
            env.reset(seed=first_seed)
            reseed(env, 0)
            observations.append(self._seen(env.reset()[0]))
            reseed(env, 0)  # once more, since a reset may have created new generators
            envs.append(env)
        if not np.array_equal(observations[0], observations[1]):
            return  # the initial states differ, so the futures may differ
        if not self._same_future(envs, observations[0], rng):
            raise ValueError(
                f"{self._env.id} cannot be forked: its future depends on the seed of its reset, but not "
                "through a NumPy or Python random generator in its attributes, so all its forks would "
                "have the same future"
            )

    def _same_future(self, envs: Sequence[Env], observation: Array, rng: Rng) -> bool:
        """Whether the environments give the same results for the same random actions."""
        for _ in range(FUTURE):
            action = self._random_action(observation, rng)
            first, *others = [copy.deepcopy(env.step(action)[:3]) for env in envs]
            if not all(data_equivalence(first, other, exact=True) for other in others):
                return False
            if first[2]:
                break
            observation = self._seen(first[0])
        for env in envs:
            env.close()
        return True


def _seeded(env: Env, seed: int) -> list[Env]:
    reseed(env, seed)
    return [env]


def _shares(starts: Sequence[Start], count: int) -> list[list[Start]]:
    """Split the forks into `count` parts of about the same size, in order."""
    place = np.repeat(np.arange(len(starts)), [len(start.seeds) for start in starts])
    seeds = np.concatenate([np.asarray(start.seeds) for start in starts])
    parts = zip(np.array_split(place, count), np.array_split(seeds, count), strict=True)
    return [[Start(starts[i].moment, part[where == i]) for i in np.unique(where)] for where, part in parts]


def _cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
