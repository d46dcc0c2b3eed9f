"""n-step windows in the replay buffer: outcomes observed while the policy chose the actions."""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.kernels.compiler import njit


@njit(cache=True)
def read_windows(
    rows: IntArray,
    following: IntArray,
    own: BoolArray,
    outcome: FloatArray,
    continuation: FloatArray,
    order: IntArray,
    horizon: int,
    longest: int,
) -> tuple[FloatArray, FloatArray, IntArray, IntArray]:
    """The outcomes observed in windows that start at rows [batch], of at most `longest` steps.

    A window continues with the next transition, following [row] (-1: none), while the policy chose its
    action, own [row]. Outcomes [row, outcome] are multiplied by the continuations [row, outcome] before them.
    The last outcome is termination, after which all outcomes are known to be 0.

    Returns, with the outcomes in the given order [outcome]: seen [batch, horizon, outcome], 0 beyond the
    window; going_on [batch, outcome], the product of continuations in the window; known [batch], the number
    of steps in the window, or the horizon after termination; last [batch], the row of its last transition.
    """
    batch, width = len(rows), outcome.shape[1]
    seen = np.zeros((batch, horizon, width), dtype=np.float32)
    going_on = np.ones((batch, width), dtype=np.float32)
    known = np.full(batch, horizon, dtype=np.int64)
    last = rows.copy()
    for b in range(batch):
        row = rows[b]
        for h in range(horizon):
            for k in range(width):
                seen[b, h, k] = going_on[b, k] * outcome[row, order[k]]
                going_on[b, k] *= continuation[row, order[k]]
            last[b] = row
            if outcome[row, width - 1] > 0:
                break
            after = following[row]
            if h + 1 < horizon and (h + 1 >= longest or after < 0 or not own[after]):
                known[b] = h + 1
                break
            row = after
    return seen, going_on, known, last


@njit(cache=True)
def continue_windows(
    seen: FloatArray, going_on: FloatArray, known: IntArray, rows: IntArray, after: FloatArray
) -> None:
    """Bootstrap the steps beyond the windows of rows [open] from after [open, horizon, outcome]."""
    horizon, width = seen.shape[1:]
    for i in range(len(rows)):
        b = rows[i]
        for h in range(known[b], horizon):
            for k in range(width):
                seen[b, h, k] = going_on[b, k] * after[i, h - known[b], k]


@njit(cache=True)
def accumulate_windows(
    seen: FloatArray, going_on: FloatArray, known: IntArray, rows: IntArray, after: FloatArray, gamma: float
) -> None:
    """The same for value functions: discounted sums of observed outcomes, plus the bootstrapped values."""
    horizon, width = seen.shape[1:]
    for b in range(len(seen)):
        for h in range(1, horizon):
            for k in range(width):
                seen[b, h, k] = seen[b, h - 1, k] + gamma**h * seen[b, h, k]
    for i in range(len(rows)):
        b = rows[i]
        for h in range(known[b], horizon):
            for k in range(width):
                seen[b, h, k] += gamma ** known[b] * going_on[b, k] * after[i, h - known[b], k]
