"""Finds, seeds and copies the random generators inside an environment."""

import gc
import pickle
import random
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

RandomSource = np.random.Generator | np.random.RandomState | random.Random

GLOBAL = (random._inst, np.random.mtrand._rand)  # global generators, shared by all modules


def random_sources(env: gym.Env[Any, Any]) -> Iterator[RandomSource]:
    """Yield every random generator that an environment holds, at any depth, each once."""
    seen = {id(source) for source in GLOBAL} | {id(getattr(env.unwrapped, "P", None))}  # P holds only numbers
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
            ahead.extend(held.__closure__ or ())  # not its globals, which are shared
        elif not isinstance(held, type | ModuleType):
            ahead.extend(gc.get_referents(held))


def reseed(env: gym.Env[Any, Any], seed: int) -> None:
    """Reseed every generator in place: parts of an environment often share one."""
    for number, source in enumerate(random_sources(env)):
        sequence = np.random.SeedSequence([seed, number])
        if isinstance(source, np.random.Generator):
            source.bit_generator.state = type(source.bit_generator)(sequence).state
        elif isinstance(source, np.random.RandomState):
            source.seed(sequence.generate_state(8))
        else:
            source.seed(sequence.generate_state(8).tobytes())


def take_over(env: gym.Env[Any, Any], other: gym.Env[Any, Any]) -> None:
    """Set every generator of an environment to the state of the same generator in another environment."""
    for source, like in zip(random_sources(env), random_sources(other), strict=True):
        if isinstance(source, np.random.Generator) and isinstance(like, np.random.Generator):
            source.bit_generator.state = like.bit_generator.state
        elif isinstance(source, np.random.RandomState) and isinstance(like, np.random.RandomState):
            source.set_state(like.get_state())
        elif isinstance(source, random.Random) and isinstance(like, random.Random):
            source.setstate(like.getstate())
        else:
            raise TypeError(
                f"random states cannot be copied from a {type(like).__name__} to a {type(source).__name__}"
            )


def random_state(env: gym.Env[Any, Any]) -> bytes:
    """The states of all generators; unchanged as long as nothing is drawn."""
    return pickle.dumps(list(random_sources(env)))
