"""Confidence intervals of means over rollouts: exact for events, Student's t for other outcomes.

Two actions rolled out with the same random streams are compared in pairs of rollouts. The difference of two
probabilities has Tango's score interval (T. Tango, Statistics in Medicine 17, 1998), which keeps its level
even if few or no pairs differ. The mean of other differences has Student's t.
"""

from typing import Any

import numpy as np

from tpd.core.bands import LEVEL, Band
from tpd.core.types import BoolArray, FloatArray
from tpd.guards.settings import number

BISECTIONS = 40
Binary = BoolArray | np.bool_
"""Which samples are 0 or 1."""


def _special() -> Any:
    """SciPy's special functions, imported late: that is slow, and learned explanations do not need them."""
    from scipy import special

    return special


def clopper_pearson(happened: FloatArray, trials: FloatArray, level: float = LEVEL) -> Band:
    """The exact (Clopper-Pearson) interval of a probability, from successes in a number of trials."""
    outside = (1 - number("level", level, 0, 1)) / 2
    happened, trials = np.broadcast_arrays(np.asarray(happened, float), np.asarray(trials, float))
    never, always = happened <= 0, happened >= trials
    low = _special().betaincinv(np.where(never, 1, happened), trials - happened + 1, outside)
    high = _special().betaincinv(happened + 1, np.where(always, 1, trials - happened), 1 - outside)
    return Band(np.where(never, 0.0, low), np.where(always, 1.0, high))


def student(samples: FloatArray, level: float = LEVEL) -> Band:
    """[...]: Student's t interval of the mean of samples [sample, ...], if many or nearly normal."""
    count = len(samples)
    if count < 2:
        raise ValueError(f"a band needs at least 2 samples, got {count}")
    reach = _special().stdtrit(count - 1, (1 + number("level", level, 0, 1)) / 2)
    mean, error = samples.mean(axis=0), samples.std(axis=0, ddof=1) / np.sqrt(count)
    return Band(mean - reach * error, mean + reach * error)


def tango(only_first: FloatArray, only_second: FloatArray, trials: int, level: float = LEVEL) -> Band:
    """[...]: Tango's interval of P(first) - P(second), from counts of paired trials that saw only one."""
    z = float(_special().ndtri((1 + number("level", level, 0, 1)) / 2))
    first, second = np.broadcast_arrays(np.asarray(only_first, float), np.asarray(only_second, float))
    middle = (first - second) / trials
    low = _crossing(first, second, trials, z, np.full(middle.shape, -1.0), middle)
    return Band(low, -_crossing(second, first, trials, z, np.full(middle.shape, -1.0), -middle))


def _crossing(
    first: FloatArray, second: FloatArray, trials: int, z: float, low: FloatArray, high: FloatArray
) -> FloatArray:
    """[...]: the difference below the estimate at which the score reaches z, by bisection."""
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_far = _score(first, second, trials, middle) > z
        low, high = np.where(too_far, middle, low), np.where(too_far, high, middle)
    return low


def _score(first: FloatArray, second: FloatArray, trials: int, difference: FloatArray) -> FloatArray:
    """[...]: the score: by how many standard errors the observed difference exceeds a hypothesised one."""
    b = -first - second + (2 * trials - first + second) * difference
    c = -second * difference * (1 - difference)
    second_only = (np.sqrt(np.maximum(b * b - 8 * trials * c, 0)) - b) / (4 * trials)  # constrained MLE
    variance = trials * (2 * second_only + difference * (1 - difference))
    above = first - second - trials * difference
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(variance > 1e-12, above / np.sqrt(np.maximum(variance, 1e-300)), np.inf * above)


def mean_band(samples: FloatArray, binary: Binary, certain: BoolArray, level: float = LEVEL) -> Band:
    """[batch, horizon, ...]: the band of the mean of samples [rollout, batch, horizon, ...].

    binary: which samples are 0 or 1 in every rollout, broadcast to [batch, horizon, ...].
    certain [batch]: which pairs are deterministic, so that their band has no width.
    """
    mean = samples.mean(axis=0)
    if certain.all():
        return Band(mean, mean)
    exact = clopper_pearson(samples.sum(axis=0), np.array(len(samples)), level)
    return _chosen(binary, exact, student(samples, level), mean, certain)


def difference_band(
    fact: FloatArray, foil: FloatArray, binary: Binary, certain: BoolArray, level: float = LEVEL
) -> Band:
    """[batch, horizon, ...]: the band of the mean of fact minus foil, paired rollout by rollout."""
    apart = paired(fact, foil)
    mean = apart.mean(axis=0)
    if certain.all():
        return Band(mean, mean)
    exact = tango((apart > 0).sum(axis=0), (apart < 0).sum(axis=0), len(apart), level)
    return _chosen(binary, exact, student(apart, level), mean, certain)


def paired(fact: FloatArray, foil: FloatArray) -> FloatArray:
    """[rollout, ...]: fact minus foil; a single rollout (deterministic) is paired with every other one."""
    if len(fact) != len(foil) and 1 not in (len(fact), len(foil)):
        raise ValueError(
            f"cannot pair {len(fact)} rollouts with {len(foil)}: request the same number for fact and foil"
        )
    return np.asarray(fact - foil, dtype=np.float64)


def _chosen(binary: Binary, exact: Band, other: Band, mean: FloatArray, certain: BoolArray) -> Band:
    """The exact band of binary samples, else the other; without width for deterministic pairs [batch]."""
    fixed = certain.reshape(-1, *[1] * (mean.ndim - 1))
    pairs = zip(exact, other, strict=True)
    return Band(*(np.where(fixed, mean, np.where(binary, one, another)) for one, another in pairs))


def trials_for(chance: float, half_width: float, level: float, most: int) -> int:
    """Trials needed for an exact band of this half-width at a given probability; at most `most`."""
    trials = np.arange(1.0, most + 1)
    wide = clopper_pearson(np.rint(chance * trials), trials, level).width > 2 * half_width
    return int(min(np.flatnonzero(wide).max(initial=-1) + 2, most))
