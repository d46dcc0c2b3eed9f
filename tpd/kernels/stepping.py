"""Environments whose dynamics are a table, stepped many at a time."""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.kernels.compiler import njit


@njit(cache=True, nogil=True, error_model="numpy")
def draw(probabilities: FloatArray, threshold: float) -> int:
    """The index where the sum of the probabilities passes the threshold, which lies in [0, 1).

    An index of probability 0 is never drawn, whatever rounding does.
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
    """[batch]: from row `rows[i]` of probabilities [R, C] the column drawn by threshold i."""
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
    """One step from each state: the branch drawn [batch], and what the tables [S, A, B] say of it."""
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
    """Many steps in many copies, by the behaviour [S, A].

    Returns the transitions, a step of all copies at a time: s, a, s', r, terminated and truncated.

    states, elapsed and ended [copy] are updated in place: where each copy is, the steps of its episode, and
    whether that has ended. A copy whose episode has ended spends a step on the next of the starts, which is
    no transition. The draws [step, copy] lie in [0, 1); limit 0 is none.
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
