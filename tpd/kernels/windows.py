"""Windows of replayed transitions: what was observed from each on, as long as the policy itself acted."""

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
    """The outcomes observed from rows [batch] on, in windows of at most `longest` steps.

    A window goes on with the transition that follows, following [row] (-1: none), as long as the policy
    itself chose its action, own [row]. Outcomes [row, outcome] count as long as their continuation
    [row, outcome] lasts; the last outcome is termination, after which all that comes is known to be 0.

    Returns, with the outcomes in the given order [outcome], seen [batch, horizon, outcome], 0 beyond the
    window; going_on [batch, outcome]: how far each outcome goes on after the window; known [batch]: the steps
    of the window, the horizon if nothing is left to know; last [batch]: the row of its last transition.
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
    """Fill in what is expected once the windows of rows [open] are over: after [open, horizon, outcome]."""
    horizon, width = seen.shape[1:]
    for i in range(len(rows)):
        b = rows[i]
        for h in range(known[b], horizon):
            for k in range(width):
                seen[b, h, k] = going_on[b, k] * after[i, h - known[b], k]


@njit(cache=True)
def accumulate_windows(
    seen: FloatArray,
    going_on: FloatArray,
    known: IntArray,
    rows: IntArray,
    after: FloatArray,
    discount: float,
) -> None:
    """The same for value functions: discounted sums of what was seen up to each step, and those after it."""
    horizon, width = seen.shape[1:]
    for b in range(len(seen)):
        for h in range(1, horizon):
            for k in range(width):
                seen[b, h, k] = seen[b, h - 1, k] + discount**h * seen[b, h, k]
    for i in range(len(rows)):
        b = rows[i]
        for h in range(known[b], horizon):
            for k in range(width):
                seen[b, h, k] += discount ** known[b] * going_on[b, k] * after[i, h - known[b], k]
