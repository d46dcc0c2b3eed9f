"""Explanations made by hand."""

import numpy as np

from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend


def toy(
    expected: list[list[float]],
    *,
    names: tuple[str, ...] = ("goal", "crash"),
    weights: tuple[float | None, ...] = (10.0, -100.0),
    running: list[float] | None = None,
    unknown: list[float] | None = None,
    visits: float = np.inf,
    discount: float = 0.9,
) -> Explanation:
    """One pair, from what is expected at each step [horizon, outcome]."""
    steps = np.array([expected])
    bound = None if weights[0] is None else 100.0
    return Explanation(
        np.zeros(1, int),
        np.zeros(1, int),
        steps,
        1 - np.cumsum(steps.sum(axis=2), axis=1) if running is None else np.array([running]),
        np.array([visits]),
        Legend(names, weights, (), bound, names),
        discount,
        unknown=None if unknown is None else np.array([unknown]),  # type: ignore[arg-type]
    )
