"""Named, independent random generators from one seed."""

import math
import zlib

import numpy as np

from tpd.guards.settings import whole_number


def generator(seed: int, purpose: str) -> np.random.Generator:
    """The generator for a named purpose; the same seed and purpose always give the same stream."""
    entropy = [whole_number("seed", seed, at_least=0, at_most=math.inf), zlib.crc32(purpose.encode())]
    return np.random.default_rng(np.random.SeedSequence(entropy))


def reset_seed(rng: np.random.Generator) -> int:
    """An integer for `env.reset(seed=...)`."""
    return int(rng.integers(2**31))
