"""Environments whose dynamics are a table, stepped many at a time."""

import numpy as np
from numba import njit

from tpd.core.types import BoolArray, FloatArray, IntArray


@njit(cache=True, nogil=True, error_model="numpy")
def draw_columns(probabilities: FloatArray, rows: IntArray, thresholds: FloatArray) -> IntArray:
    """[batch]: from row `rows[i]` of probabilities [R, C] the column where the sum passes the threshold.

    Thresholds lie in [0, 1); a column of probability 0 is never drawn, whatever rounding does.
    """
    drawn = np.empty(len(rows), np.int64)
    for i in range(len(rows)):
        passed = 0.0
        for column in range(probabilities.shape[1]):
            p = probabilities[rows[i], column]
            if p > 0:
                drawn[i] = column
                passed += p
                if thresholds[i] < passed:
                    break
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
    branch, arrived = np.zeros(count, np.int64), np.empty(count, np.int64)
    rewards, ended = np.empty(count, np.float64), np.empty(count, np.bool_)
    for i in range(count):
        s, a = states[i], actions[i]
        passed = 0.0
        for b in range(probability.shape[2]):
            if probability[s, a, b] > 0:
                branch[i] = b
                passed += probability[s, a, b]
                if thresholds[i] < passed:
                    break
        arrived[i] = next_state[s, a, branch[i]]
        rewards[i] = reward[s, a, branch[i]]
        ended[i] = terminated[s, a, branch[i]]
    return branch, arrived, rewards, ended


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
    choices: FloatArray,
    chances: FloatArray,
) -> tuple[IntArray, IntArray, IntArray, FloatArray, BoolArray, BoolArray]:
    """Many steps in many copies, by the behaviour [S, A]: what each saw, did and met, a step at a time.

    Of each copy its state, the steps of its episode and whether that has ended [copy] go on where they
    are and are updated in place. A copy whose episode has ended spends a step on the next of the
    starts, which is no transition. Choices and chances [step, copy] lie in [0, 1); limit 0 is none.
    """
    steps, copies = choices.shape
    seen, done = np.empty(steps * copies, np.int64), np.empty(steps * copies, np.int64)
    met, gained = np.empty(steps * copies, np.int64), np.empty(steps * copies, np.float64)
    dead, cut = np.empty(steps * copies, np.bool_), np.empty(steps * copies, np.bool_)
    count, started = 0, 0
    for t in range(steps):
        for i in range(copies):
            if ended[i]:
                states[i], elapsed[i], ended[i] = starts[started], 0, False
                started += 1
                continue
            s, a, branch = states[i], 0, 0
            passed = 0.0
            for other in range(behaviour.shape[1]):
                if behaviour[s, other] > 0:
                    a = other
                    passed += behaviour[s, other]
                    if choices[t, i] < passed:
                        break
            passed = 0.0
            for b in range(probability.shape[2]):
                if probability[s, a, b] > 0:
                    branch = b
                    passed += probability[s, a, b]
                    if chances[t, i] < passed:
                        break
            elapsed[i] += 1
            seen[count], done[count], met[count] = s, a, next_state[s, a, branch]
            gained[count], dead[count] = reward[s, a, branch], terminated[s, a, branch]
            cut[count] = limit > 0 and elapsed[i] >= limit
            states[i], ended[i] = met[count], dead[count] or cut[count]
            count += 1
    return seen[:count], done[:count], met[:count], gained[:count], dead[:count], cut[:count]
