"""Forks of a running environment: the same moment, with another future each."""

import copy
import gc
import pickle
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import data_equivalence

from tpd.core.observations import batch
from tpd.core.seeding import generator
from tpd.core.types import IntArray
from tpd.envs import Environment
from tpd.sources.exploration import random_actions

Env = gym.Env[Any, Any]
RandomSource = np.random.Generator | np.random.RandomState | random.Random

DEPTHS = (0, 5, 20)  # at which forking is proved, each in an episode of its own
FUTURE = 30  # steps after the fork that are compared
GLOBAL = (random._inst, np.random.mtrand._rand)  # the generators that modules share


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of an episode, known by the way that leads there."""

    seed: int
    """The seed of the reset."""
    actions: Sequence[Any]
    """[time]: the actions since then."""
    observation: Any
    """What the environment shows now, as it gave it."""


class Forks:
    """Forks an environment at moments of its episodes, once it is proved that this can be done.

    A fork is a deep copy where copies do what the original does, else a new environment led to the
    moment by the same seed and actions. Its random generators are seeded anew, so that futures
    differ, and its time limit is lifted, for only termination ends what can be expected.
    """

    def __init__(self, env: Environment) -> None:
        self._env = env
        rng = generator(0, "proof of forks")
        moments = [self._random_moment(seed, depth, rng) for seed, depth in enumerate(DEPTHS)]
        for moment in moments:
            self._prove_replay(moment, rng)
        self.by_copy = all(self._prove_copy(moment, rng) for moment in moments)
        """Whether forks are deep copies; else they are replays."""
        for moment in moments:
            self._prove_seeding(moment, rng)
        self._prove_reach(rng)

    def fork(self, moment: Moment, seeds: Sequence[int] | IntArray) -> list[Env]:
        """One environment for each seed, standing at the moment; the same seed has the same future."""
        if self.by_copy:
            standing = self._lead_to(moment)
            envs = [self._copy(standing) for _ in seeds]
            standing.close()
        else:
            envs = [self._lead_to(moment) for _ in seeds]
        for env, seed in zip(envs, seeds, strict=True):
            reseed(env, int(seed))
        return envs

    def _new(self) -> Env:
        env = layer = self._env.make()
        while isinstance(layer, gym.Wrapper):
            if isinstance(layer, gym.wrappers.TimeLimit):
                layer._max_episode_steps = sys.maxsize
            layer = layer.env
        return env

    def _lead_to(self, moment: Moment) -> Env:
        env = self._new()
        observation, _ = env.reset(seed=moment.seed)
        for action in moment.actions:
            observation, *_ = env.step(action)
        if not data_equivalence(observation, moment.observation, exact=True):
            raise ValueError(self._unrepeatable(f"shows something else after {len(moment.actions)} steps"))
        return env

    def _copy(self, env: Env) -> Env:
        shared = {}
        if self._env.model is not None:  # its table never changes, and takes long to copy
            table = env.unwrapped.P  # type: ignore[attr-defined]
            shared[id(table)] = table
        return copy.deepcopy(env, shared)

    def _random_moment(self, seed: int, depth: int, rng: np.random.Generator) -> Moment:
        env = self._new()
        observation = copy.deepcopy(env.reset(seed=seed)[0])
        actions = list[Any]()
        for _ in range(depth):
            action = self._random_action(observation, rng)
            arrived, _, terminated, *_ = env.step(action)
            if terminated:
                break
            actions.append(action)
            observation = copy.deepcopy(arrived)  # some environments write the next one into it
        env.close()
        return Moment(seed, actions, observation)

    def _random_action(self, observation: Any, rng: np.random.Generator) -> Any:
        return random_actions(self._env, batch(self._env.observation_space, [observation]), rng)[0]

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

    def _prove_copy(self, moment: Moment, rng: np.random.Generator) -> bool:
        """Whether a copy, its original and a replay, stepped in turn, do the same."""
        original, replay = self._lead_to(moment), self._lead_to(moment)
        try:
            envs = [replay, self._copy(original), original]
            return self._same_future(envs, moment.observation, rng)
        except Exception:  # a copy that lacks a part fails in whatever way; a replay lacks none
            return False

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
            observations.append(copy.deepcopy(env.reset()[0]))
            reseed(env, 0)  # once more, as a reset may have made new generators
            envs.append(env)
        if not data_equivalence(observations[0], observations[1], exact=True):
            return  # the starts differ, so the futures may
        if not self._same_future(envs, observations[0], rng):
            raise ValueError(
                f"{self._env.id} cannot be forked: its future depends on the seed of its reset, but not "
                "through a NumPy or Python random generator held in its attributes, so its forks would "
                "repeat one future"
            )

    def _same_future(self, envs: Sequence[Env], observation: Any, rng: np.random.Generator) -> bool:
        """Whether environments show the same when they take the same random steps in turn."""
        for _ in range(FUTURE):
            action = self._random_action(observation, rng)
            first, *others = [copy.deepcopy(env.step(action)[:3]) for env in envs]
            if not all(data_equivalence(first, other, exact=True) for other in others):
                return False
            observation, _, terminated = first
            if terminated:
                break
        for env in envs:
            env.close()
        return True


def random_sources(env: Env) -> Iterator[RandomSource]:
    """Every random generator that an environment holds, at any depth, each once."""
    seen = {id(source) for source in GLOBAL} | {id(getattr(env.unwrapped, "P", None))}  # P is but numbers
    ahead: list[Any] = [env]
    while ahead:
        held = ahead.pop()
        if id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, RandomSource):
            if not isinstance(held, random.SystemRandom):
                yield held
        elif isinstance(held, FunctionType):
            ahead.extend(held.__closure__ or ())  # not its globals: they belong to everyone
        elif not isinstance(held, type | ModuleType):
            ahead.extend(gc.get_referents(held))


def reseed(env: Env, seed: int) -> None:
    """Seed every generator anew, in place: parts of an environment often share one."""
    for number, source in enumerate(random_sources(env)):
        sequence = np.random.SeedSequence([seed, number])
        if isinstance(source, np.random.Generator):
            source.bit_generator.state = type(source.bit_generator)(sequence).state
        elif isinstance(source, np.random.RandomState):
            source.seed(sequence.generate_state(8))
        else:
            source.seed(sequence.generate_state(8).tobytes())


def random_state(env: Env) -> bytes:
    """The state of every generator; unchanged as long as nothing is drawn from any."""
    return pickle.dumps(list(random_sources(env)))
