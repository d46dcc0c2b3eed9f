"""Which seeds follow the same strategy: never average explanations of policies that differ."""

from collections.abc import Mapping

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from tpd.explanation import Explanation

SAME_STRATEGY = 0.1


def group_by_strategy(explanations: Mapping[str, Explanation], row: int) -> list[list[str]]:
    """Labels of explanations that expect much the same future, the largest group first.

    The distance of two futures is the share of probability, averaged over the horizon, with which
    something different happens.
    """
    labels = list(explanations)
    if len(labels) < 2:
        return [labels]
    futures = np.stack([explanations[label].expected[row] for label in labels])
    scale = np.maximum(1, np.abs(futures).max(axis=(0, 1)))
    gaps = np.abs(futures[:, None] - futures[None]) / scale
    distance = gaps.sum(axis=3).mean(axis=2) / 2
    number = fcluster(linkage(squareform(distance, checks=False), "average"), SAME_STRATEGY, "distance")
    groups = [[label for label, n in zip(labels, number, strict=True) if n == k] for k in sorted(set(number))]
    return sorted(groups, key=len, reverse=True)
