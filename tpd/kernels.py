"""The inner loops, compiled: the only home of numba.

Symbols follow the paper: s, a, s', the outcome o and the step size alpha.
"""

import numpy as np
from numba import njit

from tpd.types import BoolArray, FloatArray, IntArray


@njit(cache=True, error_model="numpy")
def fhtd_update(
    values: FloatArray,
    visits: IntArray,
    states: IntArray,
    actions: IntArray,
    next_states: IntArray,
    outcome: FloatArray,
    continuation: FloatArray,
    next_probabilities: FloatArray,
    step_scale: float,
    step_exponent: float,
    discount: float,
    cumulative: bool,
) -> None:
    """One pass of fixed-horizon TD over a batch, every horizon and outcome of a transition at once.

    values [S, A, K, H] and visits [S, A] are updated in place; outcome and continuation are
    [batch, K]; next_probabilities [S, A] is the policy explained. The target of horizon h is
    `o + discount * Q_{h-1}(s', pi)` if cumulative (FHGVF), else `O_{h-1}(s', pi)` (EFO), and `o`
    at h = 0. The step size of the n-th visit is `step_scale * n ** -step_exponent`.
    """
    num_actions, num_outcomes, horizon = values.shape[1:]
    v_next = np.empty((num_outcomes, horizon), values.dtype)
    for t in range(len(states)):
        s, a, s_next = states[t], actions[t], next_states[t]
        v_next[:] = 0
        for a_next in range(num_actions):
            p = next_probabilities[s_next, a_next]
            if p > 0:
                v_next += values.dtype.type(p) * values[s_next, a_next]
        visits[s, a] += 1
        alpha = values.dtype.type(step_scale * visits[s, a] ** -step_exponent)
        for k in range(num_outcomes):
            o = values.dtype.type(outcome[t, k])
            carry = values.dtype.type(discount * continuation[t, k])
            base = o if cumulative else values.dtype.type(0)
            q = values[s, a, k]
            q[0] += alpha * (o - q[0])
            for h in range(1, horizon):
                q[h] += alpha * (base + carry * v_next[k, h - 1] - q[h])


@njit(cache=True, error_model="numpy")
def q_learning_update(
    q: FloatArray,
    mask: BoolArray,
    states: IntArray,
    actions: IntArray,
    rewards: FloatArray,
    next_states: IntArray,
    terminated: BoolArray,
    learning_rate: float,
    discount: float,
) -> None:
    """One pass of Q-learning over a batch; q [S, A] is updated in place, mask [S, A] says what is valid."""
    for t in range(len(states)):
        target = rewards[t]
        if not terminated[t]:
            best = -np.inf
            for a_next in range(q.shape[1]):
                if mask[next_states[t], a_next] and q[next_states[t], a_next] > best:
                    best = q[next_states[t], a_next]
            target += discount * best
        q[states[t], actions[t]] += learning_rate * (target - q[states[t], actions[t]])
