"""Forks of a running environment: the same moment, with another future each."""

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
from tpd.core.types import Array, IntArray
from tpd.envs import Environment
from tpd.sources.exploration import random_actions
from tpd.sources.moments import Moment
from tpd.sources.random_sources import GLOBAL, reseed, take_over
from tpd.sources.worlds import Env, ForkedWorlds, LocalWorlds, WorldError, Worlds

DEPTHS = (0, 5, 20)  # at which forking is proved, each in an episode of its own
FUTURE = 30  # steps after the fork that are compared
FORK_PATIENCE = 20.0
"""Seconds after which a fork of the process that does not answer counts as hung, while that is proved."""
LIMITS_AND_CHECKS = gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker
WORTH_FORKING = 5
"""Work is shared among processes if it takes so many times as long as to fork them."""


class Start(NamedTuple):
    """Where forks start, and the seed of each."""

    moment: Moment
    seeds: IntArray
    """[fork]: the same seed has the same future"""


class Forks:
    """Forks an environment at moments of its episodes, once it is proved that this can be done.

    A fork is a new environment that takes over the state of the original, where its library has one
    (MuJoCo), or a deep copy, where either was proved to do what a replay does. Else it is a new
    environment led to the moment by the same seed and actions, or a fork of this process with one that
    was led there once, whichever takes less time. Its random generators are seeded anew, so that futures
    differ, and its time limit is lifted, for only termination ends what can be expected.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        rng = generator(0, "proof of forks")
        moments = [self._random_moment(seed, depth, rng) for seed, depth in enumerate(DEPTHS)]
        for moment in moments:
            self._prove_replay(moment, rng)
        ways = [self._take_over_state, self._deep_copy]
        self._copy = next(
            (way for way in ways if all(self._prove_copy(way, moment, rng) for moment in moments)), None
        )
        self._make_seconds, self._step_seconds = self._time_replay(moments)
        self._fork_seconds = np.inf
        if hasattr(os, "fork"):
            self._fork_seconds = max(self._prove_process(moment, rng) for moment in moments)
        for moment in moments:
            self._prove_seeding(moment, rng)
        self._prove_reach(rng)

    @property
    def by_copy(self) -> bool:
        """Whether forks are copies; else they are replays, or forks of this process."""
        return self._copy is not None

    @property
    def by_state(self) -> bool:
        """Whether these copies take over the state that the environment's library knows."""
        return self._copy == self._take_over_state

    def fork(self, moment: Moment, seeds: Sequence[int] | IntArray) -> list[Env]:
        """One environment for each seed, standing at the moment; the same seed has the same future."""
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
        """The forks of all starts, one start after the other, in as many processes as make it quick.

        steps: how many each is likely to go. The futures are the same, however they are forked.
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
        """Every fork in a process of its own, forked from this one after a single replay."""
        with contextlib.ExitStack() as standing:
            makers = []
            for start in starts:
                env = standing.enter_context(contextlib.closing(self._lead_to(start.moment)))
                makers += [functools.partial(_seeded, env, int(seed)) for seed in start.seeds]
            return ForkedWorlds(makers, [1] * len(makers), watched)

    def in_workers(self, starts: Sequence[Start], workers: int, watched: bool = False) -> ForkedWorlds:
        """The forks shared among processes, each of which makes its own."""
        shares = [share for share in _shares(starts, workers) if share]
        makers = [functools.partial(self._fork_all, share) for share in shares]
        return ForkedWorlds(makers, [sum(len(start.seeds) for start in share) for share in shares], watched)

    def _fork_all(self, starts: Sequence[Start]) -> list[Env]:
        return [env for start in starts for env in self.fork(start.moment, start.seeds)]

    def _new(self) -> Env:
        """An environment without time limit, and without what only checks how it is used."""
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
                raise ValueError(f"the episode of seed {moment.seed} ends with step {step}: nothing follows")
        if not moment.shows(self._env.observation_space, observation):
            raise ValueError(self._unrepeatable(f"shows something else after {len(moment.actions)} steps"))
        return env

    def _deep_copy(self, env: Env, moment: Moment) -> Env:
        shared = {}
        if self._env.model is not None:  # its table never changes, and takes long to copy
            table = env.unwrapped.P  # type: ignore[attr-defined]
            shared[id(table)] = table
        return copy.deepcopy(env, shared)

    def _take_over_state(self, env: Env, moment: Moment) -> Env:
        """A new environment with all that MuJoCo knows of the other: positions, warm starts, sensors."""
        new = self._new()
        new.reset(seed=moment.seed)  # what is drawn then and kept apart from the state
        inner, data = new.unwrapped, env.unwrapped.data  # type: ignore[attr-defined]
        sys.modules["mujoco"].mj_copyData(inner.data, inner.model, data)  # type: ignore[attr-defined]
        take_over(new, env)
        return new

    def _random_moment(self, seed: int, depth: int, rng: np.random.Generator) -> Moment:
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
        """[...]: as one array, and a copy: some environments write the next one into it."""
        return np.array(batch(self._env.observation_space, [observation])[0])

    def _random_action(self, observation: Array, rng: np.random.Generator) -> Any:
        return random_actions(self._env, observation[None], rng)[0]

    def _prove_replay(self, moment: Moment, rng: np.random.Generator) -> None:
        envs = [self._lead_to(moment), self._lead_to(moment)]
        before = pickle.dumps(GLOBAL)
        same = self._same_future(envs, moment.observation, rng)
        if pickle.dumps(GLOBAL) != before:
            raise ValueError(
                f"{self._env.id} draws from the global generator of numpy.random or random, which all "
                "environments share, so it cannot be forked; it should draw from its own np_random"
            )
        if not same:
            raise ValueError(self._unrepeatable("goes on differently"))

    def _unrepeatable(self, what: str) -> str:
        return (
            f"{self._env.id} cannot be forked: led by the same seed and actions it {what}, so there is "
            "randomness in it that reset(seed=...) does not reach, or something that two of it share"
        )

    def _prove_copy(
        self, way: Callable[[Env, Moment], Env], moment: Moment, rng: np.random.Generator
    ) -> bool:
        """Whether a copy, its original and a replay, stepped in turn, do the same."""
        original, replay = self._lead_to(moment), self._lead_to(moment)
        try:
            envs = [replay, way(original, moment), original]
            return self._same_future(envs, moment.observation, rng)
        except Exception:  # a copy that lacks a part fails in whatever way; a replay lacks none
            return False

    def _prove_process(self, moment: Moment, rng: np.random.Generator) -> float:
        """Seconds of CPU that a future in a fork of this process takes; inf if it is not that of a replay."""
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
        except WorldError:  # such as one that waits for a thread which was not forked
            return np.inf
        return _cpu_seconds() - began

    def _time_replay(self, moments: Sequence[Moment]) -> tuple[float, float]:
        """Seconds of CPU that it takes to make an environment, and to make a step."""
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

    def _prove_seeding(self, moment: Moment, rng: np.random.Generator) -> None:
        if not self._same_future(self.fork(moment, [1, 1]), moment.observation, rng):
            raise ValueError(
                f"{self._env.id} cannot be forked: two forks of one moment, seeded alike, go on "
                "differently, so there is randomness in it that cannot be seeded"
            )

    def _prove_reach(self, rng: np.random.Generator) -> None:
        """What still depends on the first seed after everything was seeded alike is out of reach."""
        envs, observations = list[Env](), list[Any]()
        for first_seed in (1, 2):
            env = self._new()
            env.reset(seed=first_seed)
            reseed(env, 0)
            observations.append(self._seen(env.reset()[0]))
            reseed(env, 0)  # once more, as a reset may have made new generators
            envs.append(env)
        if not np.array_equal(observations[0], observations[1]):
            return  # the starts differ, so the futures may
        if not self._same_future(envs, observations[0], rng):
            raise ValueError(
                f"{self._env.id} cannot be forked: its future depends on the seed of its reset, but not "
                "through a NumPy or Python random generator held in its attributes, so its forks would "
                "repeat one future"
            )

    def _same_future(self, envs: Sequence[Env], observation: Array, rng: np.random.Generator) -> bool:
        """Whether environments show the same when they take the same random steps in turn."""
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
    """The forks in so many parts of about the same size, in order."""
    place = np.repeat(np.arange(len(starts)), [len(start.seeds) for start in starts])
    seeds = np.concatenate([np.asarray(start.seeds) for start in starts])
    parts = zip(np.array_split(place, count), np.array_split(seeds, count), strict=True)
    return [[Start(starts[i].moment, part[where == i]) for i in np.unique(where)] for where, part in parts]


def _cores() -> int:
    """How many processes can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_seconds() -> float:
    """Of this process and of the children that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
