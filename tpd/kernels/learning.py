"""Tabular updates from batches of transitions: fixed-horizon TD and Q-learning."""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.kernels.compiler import njit


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
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
    """One pass of fixed-horizon TD over a batch; each transition updates all horizons and outcomes.

    values [S, A, K, H] and visits [S, A] are updated in place; outcome and continuation are
    [batch, K]; next_probabilities [S, A] is the policy explained. The target of horizon h is
    `o + discount * Q_{h-1}(s', pi)` if cumulative (FHGVF), else `O_{h-1}(s', pi)` (EFO), and `o`
    at h = 0. The step size of the n-th visit is `step_scale * n ** -step_exponent`.
    """
    real = values.dtype.type
    num_outcomes, horizon = values.shape[2:]
    expectation = np.empty((num_outcomes, horizon), values.dtype)
    for t in range(len(states)):
        s, a, s_next = states[t], actions[t], next_states[t]
        choices, a_next = 0, 0
        for other in range(values.shape[1]):
            if next_probabilities[s_next, other] > 0:
                choices, a_next = choices + 1, other
        if choices == 1 and (s_next != s or a_next != a):
            v_next = values[s_next, a_next]
        else:  # the expectation over actions, or a copy of the row that is updated
            v_next = expectation
            v_next[:] = 0
            for other in range(values.shape[1]):
                p = real(next_probabilities[s_next, other])
                if p > 0:
                    v_next += p * values[s_next, other]
        visits[s, a] += 1
        alpha = real(step_scale if step_exponent == 0 else step_scale * visits[s, a] ** -step_exponent)
        keep = real(1) - alpha
        for k in range(num_outcomes):
            o = alpha * real(outcome[t, k])
            carry = alpha * real(discount * continuation[t, k])
            base = o if cumulative else real(0)
            q, v = values[s, a, k], v_next[k]
            q[0] = keep * q[0] + o
            for h in range(1, horizon):
                q[h] = keep * q[h] + (base + carry * v[h - 1])


@njit(cache=True, nogil=True, error_model="numpy")
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
    """One pass of Q-learning over a batch; q [S, A] is updated in place; mask [S, A]: valid actions."""
    for t in range(len(states)):
        s, a, r, s_next = states[t], actions[t], rewards[t], next_states[t]
        target = r
        if not terminated[t]:
            best = -np.inf
            for a_next in range(q.shape[1]):
                if mask[s_next, a_next] and q[s_next, a_next] > best:
                    best = q[s_next, a_next]
            target += discount * best
        q[s, a] += learning_rate * (target - q[s, a])
