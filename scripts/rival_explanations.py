"""What other methods make of their quantities: a surrogate of the agent's value, minimal explanations.

Lin, Lam and Fern (2021) predict the agent's value from GVFs in a second stage. In the original the agent acts
by it. Here the agent is given, so it is a surrogate of its values, and its R² says how faithful it is. A
contrast is explained by integrated gradients between the GVFs of both actions (IGX). Juozapaitis et al.
(2019) explain a choice by the fewest terms of the reward (MSX).
"""

from dataclasses import dataclass

import numpy as np

from tpd.core.types import BoolArray, FloatArray

RIDGE = 1e-6
HELD_OUT = 0.2
"""Fraction of the pairs that R² is measured on."""


@dataclass(frozen=True)
class Surrogate:
    """Predicts the agent's values from GVFs by a quadratic function, fitted by least squares.

    Its gradient is linear along a straight path, so integrated gradients are exact and sum to the difference.
    """

    centre: FloatArray
    """[outcome]"""
    scale: FloatArray
    """[outcome]"""
    constant: float
    linear: FloatArray
    """[outcome]"""
    quadratic: FloatArray
    """[outcome, outcome], symmetric"""
    r_squared: float
    """R² on held-out pairs; 1 is perfect, 0 is no better than their mean."""

    @classmethod
    def fitted(cls, gvfs: FloatArray, values: FloatArray, rng: np.random.Generator) -> "Surrogate":
        """Fit to GVFs [pair, outcome] and the agent's values of the same pairs [pair]."""
        if len(gvfs) < 10:
            raise ValueError(f"{len(gvfs)} pairs are too few for a surrogate of the agent's values")
        order = rng.permutation(len(gvfs))
        tested, learned = np.split(order, [max(2, int(HELD_OUT * len(order)))])
        centre, spread = gvfs[learned].mean(axis=0), gvfs[learned].std(axis=0)
        scale = np.where(spread > 0, spread, 1)
        features = _features((gvfs - centre) / scale)
        mean = values[learned].mean()
        gram = features[learned].T @ features[learned] + RIDGE * len(learned) * np.eye(features.shape[1])
        found = np.linalg.solve(gram, features[learned].T @ (values[learned] - mean))
        outcomes = gvfs.shape[1]
        quadratic = np.zeros((outcomes, outcomes))
        quadratic[np.triu_indices(outcomes)] = found[1 + outcomes :]
        quadratic = (quadratic + quadratic.T) / 2
        residual = values[tested] - mean - features[tested] @ found
        variance = float(np.mean((values[tested] - values[tested].mean()) ** 2))
        r_squared = 1 - float(np.mean(residual**2)) / variance if variance > 0 else float("nan")
        linear = found[1 : 1 + outcomes]
        return cls(centre, scale, float(mean + found[0]), linear, quadratic, r_squared)

    def values(self, gvfs: FloatArray) -> FloatArray:
        """[pair]: predicted values for GVFs [pair, outcome]."""
        x = (gvfs - self.centre) / self.scale
        return np.asarray(self.constant + x @ self.linear + np.einsum("pi,ij,pj->p", x, self.quadratic, x))

    def integrated_gradients(self, fact: FloatArray, foil: FloatArray) -> FloatArray:
        """[pair, outcome]: contribution of each outcome to the value difference, fact minus foil (IGX)."""
        middle = ((fact + foil) / 2 - self.centre) / self.scale
        gradient = (self.linear + 2 * middle @ self.quadratic) / self.scale
        return np.asarray((fact - foil) * gradient)


def _features(x: FloatArray) -> FloatArray:
    """[pair, feature]: 1, every outcome, and every product of two."""
    one, other = np.triu_indices(x.shape[1])
    return np.column_stack([np.ones(len(x)), x, x[:, one] * x[:, other]])


def minimal_sufficient(differences: FloatArray) -> tuple[BoolArray, BoolArray]:
    """[component] both: the minimal sufficient explanation of a choice (MSX+), and why it is needed (MSX-).

    differences [component]: the value of each reward term for the chosen action, minus its value for the
    other action (RDX); their sum is positive. MSX+ is the smallest set of advantages that together outweigh
    all disadvantages. MSX- is the smallest set of disadvantages that outweigh MSX+ without its smallest
    member.
    """
    differences = np.asarray(differences, dtype=np.float64)
    if (total := differences.sum()) <= 0:
        raise ValueError(f"the chosen action is not the better one: the differences sum to {total:g}")
    gains, losses = np.maximum(differences, 0), np.maximum(-differences, 0)
    advantages = _fewest(gains, losses.sum())
    needed = gains[advantages].sum() - gains[advantages].min()
    return advantages, _fewest(losses, needed) if needed < losses.sum() else losses > 0


def _fewest(amounts: FloatArray, limit: float) -> BoolArray:
    """[component]: the smallest set of amounts whose sum exceeds the limit, largest first."""
    order = np.argsort(-amounts, kind="stable")
    count = int(np.argmax(np.cumsum(amounts[order]) > limit)) + 1
    chosen = np.zeros(len(amounts), dtype=np.bool_)
    chosen[order[:count]] = True
    return chosen
