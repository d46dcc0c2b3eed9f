"""Stratified sampling: rare strata get more of a sample than their share, and weights make up for it."""

import numpy as np

from tpd.core.types import FloatArray, IntArray


def stratified(strata: IntArray, count: int) -> tuple[IntArray, FloatArray]:
    """[sample] both: sampled rows in ascending order, and how many rows of a uniform sample each stands for.

    strata [row, column]: the stratum of each row, in several independent groupings. Half of the sample is
    uniform. In the other half every stratum has about the same number of rows, as far as it has so many.
    Weighted means over the sample estimate means over all rows.
    """
    rows = len(strata)
    if count >= rows:
        return np.arange(rows), np.ones(rows)
    chance = np.minimum(1, count / (2 * rows) + _balanced(strata, count / 2))
    ends = np.cumsum(chance) * (count / chance.sum())  # evenly spaced rows, each taken with its chance
    chosen = np.searchsorted(ends, np.arange(count) + 0.5, side="right").clip(0, rows - 1)
    return chosen, chance.sum() / rows / chance[chosen]


def _balanced(strata: IntArray, count: float) -> FloatArray:
    """[row]: probabilities with sum `count` that give every stratum the same expected number of rows."""
    rate = np.zeros(len(strata))
    for column in strata.T:
        _, stratum, size = np.unique(column, return_inverse=True, return_counts=True)
        rate = np.maximum(rate, 1 / size[stratum])
    low, high = 0.0, float(len(strata))
    for _ in range(60):  # bisection
        middle = (low + high) / 2
        enough = np.minimum(1, middle * rate).sum() >= count
        low, high = (low, middle) if enough else (middle, high)
    return np.asarray(np.minimum(1, high * rate))
