"""Steps many tabular environments at once."""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.kernels.compiler import njit


@njit(cache=True, nogil=True, error_model="numpy")
def draw(probabilities: FloatArray, threshold: float) -> int:
    """Sample an index by inverse CDF; the threshold is a uniform random number in [0, 1).

    An index of probability 0 is never drawn, even with rounding errors.
    """
    drawn, passed = 0, 0.0
    for i in range(len(probabilities)):
        if probabilities[i] > 0:
            drawn = i
            passed += probabilities[i]
            if threshold < passed:
                break
    return drawn


@njit(cache=True, nogil=True, error_model="numpy")
def draw_columns(probabilities: FloatArray, rows: IntArray, thresholds: FloatArray) -> IntArray:
    """[batch]: the column sampled from row `rows[i]` of probabilities [R, C] with threshold i."""
    drawn = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        drawn[i] = draw(probabilities[rows[i]], thresholds[i])
    return drawn


@njit(cache=True, nogil=True, error_model="numpy")
def step_table(
    probability: FloatArray,
    next_state: IntArray,
    reward: FloatArray,
    terminated: BoolArray,
    states: IntArray,
    actions: IntArray,
    thresholds: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray, BoolArray]:
    """One step from each state: sampled branch, next state, reward, terminated [batch]; tables [S, A, B]."""
    count = len(states)
    branch, s_next = np.empty(count, np.int64), np.empty(count, np.int64)
    r, terminated_t = np.empty(count, np.float64), np.empty(count, np.bool_)
    for i in range(count):
        s, a = states[i], actions[i]
        b = draw(probability[s, a], thresholds[i])
        branch[i] = b
        s_next[i], r[i], terminated_t[i] = next_state[s, a, b], reward[s, a, b], terminated[s, a, b]
    return branch, s_next, r, terminated_t


@njit(cache=True, nogil=True, error_model="numpy")
def roll_table(
    probability: FloatArray,
    next_state: IntArray,
    reward: FloatArray,
    terminated: BoolArray,
    behaviour: FloatArray,
    states: IntArray,
    elapsed: IntArray,
    ended: BoolArray,
    limit: int,
    starts: IntArray,
    action_draws: FloatArray,
    branch_draws: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray, BoolArray, BoolArray]:
    """Many steps in many environment copies, with actions sampled from the behaviour [S, A].

    Returns the transitions, ordered by step, then by copy: s, a, s', r, terminated and truncated.

    states, elapsed and ended [copy] are updated in place: the state of each copy, the steps of its episode,
    and whether that has ended. A copy whose episode has ended uses one step to reset to the next of `starts`,
    which is not a transition. The draws [step, copy] are uniform in [0, 1); limit 0 means no time limit.
    """
    steps, copies = action_draws.shape
    size, count, started = steps * copies, 0, 0
    s_t, a_t, s_next_t = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    r_t, terminated_t, truncated_t = np.empty(size), np.empty(size, np.bool_), np.empty(size, np.bool_)
    for t in range(steps):
        for i in range(copies):
            if ended[i]:
                states[i], elapsed[i], ended[i] = starts[started], 0, False
                started += 1
                continue
            s = states[i]
            a = draw(behaviour[s], action_draws[t, i])
            b = draw(probability[s, a], branch_draws[t, i])
            elapsed[i] += 1
            s_t[count], a_t[count], s_next_t[count] = s, a, next_state[s, a, b]
            r_t[count], terminated_t[count] = reward[s, a, b], terminated[s, a, b]
            truncated_t[count] = limit > 0 and elapsed[i] >= limit
            states[i], ended[i] = s_next_t[count], terminated_t[count] or truncated_t[count]
            count += 1
    made = slice(count)
    return s_t[made], a_t[made], s_next_t[made], r_t[made], terminated_t[made], truncated_t[made]
