"""Groups seeds whose policies follow the same strategy, so that different strategies are never averaged."""

from collections.abc import Mapping

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from tpd.core.explanation import Explanation
from tpd.core.types import FloatArray

LARGEST_SHIFT = 0.1
"""Largest total-variation distance, averaged over steps, within one strategy."""
LARGEST_CHANGE = 0.25
"""Largest relative difference of expected counts within the horizon (relative to at least 1)."""


def group_by_strategy(explanations: Mapping[str, Explanation], row: int) -> list[list[str]]:
    """Groups of labels whose explanations predict nearly the same future, the largest group first."""
    labels = list(explanations)
    if len(labels) < 2:
        return [labels] if labels else []
    distance = squareform(distances(np.stack([explanations[label].expected[row] for label in labels])))
    number = fcluster(linkage(distance, "average"), 1.0, "distance")
    groups = [[label for label, n in zip(labels, number, strict=True) if n == k] for k in sorted(set(number))]
    return sorted(groups, key=len, reverse=True)


def distances(futures: FloatArray) -> FloatArray:
    """[future, future]: distances between futures [future, horizon, outcome]; above 1 if strategies differ.

    They differ if other outcomes are expected, or the same ones at other times, or more often.
    """
    scale = np.maximum(1, np.abs(futures).max(axis=(0, 1)))
    gaps = np.abs(futures[:, None] - futures[None]) / scale
    shift = gaps.sum(axis=3).mean(axis=2) / 2
    totals = futures.sum(axis=1)
    size = np.maximum(1, np.maximum(np.abs(totals[:, None]), np.abs(totals[None])))
    change = (np.abs(totals[:, None] - totals[None]) / size).max(axis=2)
    return np.asarray(np.maximum(shift / LARGEST_SHIFT, change / LARGEST_CHANGE))
