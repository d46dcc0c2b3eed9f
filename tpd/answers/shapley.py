"""Shapley values of cooperative games, exact or from sampled permutations."""

import math
from collections.abc import Callable

import numpy as np

from tpd.core.types import BoolArray, FloatArray, Rng

PERMUTATIONS = 10
"""Number of sampled permutations; half of them are the reverses of the others."""

Worth = Callable[[BoolArray], FloatArray]
"""coalitions [coalition, player] -> [coalition, game]: their worth, in several games at once"""


def exact_values(worth: Worth, players: int) -> FloatArray:
    """[player, game]: sum over the coalitions S without i of |S|! (n - |S| - 1)! / n! (v(S + i) - v(S))."""
    coalitions = (np.arange(2**players)[:, None] >> np.arange(players)) % 2 > 0
    size = coalitions.sum(axis=1)
    weights = np.array([1 / (players * math.comb(players - 1, k)) for k in range(players)] + [0.0])
    joined, without = weights[size - 1][:, None], weights[size][:, None]
    return np.asarray(np.where(coalitions, joined, -without).T @ worth(coalitions))


def sampled_values(worth: Worth, players: int, rng: Rng) -> FloatArray:
    """[player, game]: mean marginal contributions over random permutations and their reverses."""
    orders = [rng.permutation(players) for _ in range(PERMUTATIONS // 2)]
    orders += [order[::-1] for order in orders]
    place = np.argsort(orders, axis=1)  # [order, player]
    before = place[:, None] < np.arange(players + 1)[:, None]  # [order, members, player]
    found = worth(before.reshape(-1, players)).reshape(len(orders), players + 1, -1)
    added = np.take_along_axis(np.diff(found, axis=1), place[..., None], axis=1)
    return np.asarray(added.mean(axis=0))
