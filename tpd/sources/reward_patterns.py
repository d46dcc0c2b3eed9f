"""Patterns in rewards: numbers that add up to the reward, and final rewards that separate kinds of ending."""

import itertools
import math
import re
from collections.abc import Mapping

import numpy as np

from tpd.core.outcomes import REWARD_TOLERANCE
from tpd.core.types import Array, FloatArray

OF_REWARD = re.compile("reward|cost|penalty|bonus", re.IGNORECASE)
"""Names that suggest a term of the reward."""
MOST_CANDIDATES = 10
"""Upper bound on candidate terms: all 3 ** 10 signed sums are tried; with more candidates, none."""
TIGHTER = 0.1
"""Fraction of the usual tolerance that sums may use here, so that later checks do not fail by rounding."""
PROBED = 50
"""Transitions on which all sums are tried first; those that match are checked on all transitions."""
FEWEST = 3
"""Episodes needed for a kind of ending."""
CLEAR = 2.0
"""Two kinds of ending are separate if the gap between their rewards is this many times as wide as either."""


def find_terms(numbers: Mapping[str, Array], reward: FloatArray) -> dict[str, float]:
    """Find numbers [batch] with weights 1 or -1 that add up to the reward [batch] at every transition.

    Numbers named like rewards are tried first, then all that vary, if the reward varies: constants may add up
    to a constant reward by chance. Empty if there is no such sum.
    """
    nonzero = {key: values for key, values in numbers.items() if np.abs(values).max() > REWARD_TOLERANCE}
    named = {key: values for key, values in nonzero.items() if OF_REWARD.search(key)}
    found = _signs(named, reward)
    if not found and np.ptp(reward):
        found = _signs(named | {key: values for key, values in nonzero.items() if np.ptp(values)}, reward)
    return found


def _signs(numbers: Mapping[str, Array], reward: FloatArray) -> dict[str, float]:
    """The sum with the fewest terms; two or more are preferred to one copy of the reward, plus to minus."""
    if not 0 < len(numbers) <= MOST_CANDIDATES:
        return {}
    columns = np.column_stack([values.astype(np.float32) for values in numbers.values()]).astype(np.float64)
    signs = np.array(list(itertools.product((0.0, 1.0, -1.0), repeat=len(numbers)))[1:])
    count, negative = (signs != 0).sum(axis=1), (signs < 0).sum(axis=1)
    order = np.lexsort((negative, count, count == 1))
    probed = np.linspace(0, len(reward) - 1, min(PROBED, len(reward))).astype(np.int64)
    fit = _adds_up(signs[order] @ columns[probed].T, reward[probed]).all(axis=1)
    for weights in signs[order][fit]:
        if _adds_up(columns @ weights, reward).all():
            return {key: float(weight) for key, weight in zip(numbers, weights, strict=True) if weight}
    return {}


def _adds_up(sums: FloatArray, reward: FloatArray) -> Array:
    return np.asarray(np.abs(sums - reward) <= TIGHTER * REWARD_TOLERANCE * (1 + np.abs(sums)))


def reward_thresholds(last: FloatArray, others: FloatArray) -> list[float]:
    """Thresholds that split the rewards of last steps [episode] into clearly separate groups.

    Each gap must be wide compared with the groups and with most rewards [batch] of other steps, and each
    group must have several episodes; otherwise there are no thresholds.
    """
    ordered = np.sort(last)
    gaps = np.diff(ordered)
    if not len(gaps) or not gaps.max():
        return []
    cuts = np.flatnonzero(gaps > np.ptp(ordered) / 4) + 1
    groups = np.split(ordered, cuts)
    usual = float(np.ptp(np.quantile(others, [0.05, 0.95]))) if len(others) else 0.0
    needed = max(CLEAR * max(float(np.ptp(group)) for group in groups), usual)
    if min(map(len, groups)) < FEWEST or not (gaps[cuts - 1] > needed).all():
        return []
    return [roundest(float(ordered[cut - 1]), float(ordered[cut])) for cut in cuts]


def roundest(low: float, high: float) -> float:
    """A number near the middle of two others, with as few digits as possible."""
    middle, quarter = (low + high) / 2, (high - low) / 4
    digits = -math.ceil(math.log10(max(abs(low), abs(high))))
    while abs(round(middle, digits) - middle) > quarter:
        digits += 1
    return round(middle, digits) + 0.0  # avoids -0
