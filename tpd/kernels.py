"""The inner loops, compiled: the only home of numba.

They let other threads run meanwhile, as the one that delivers what was tracked.

Symbols follow the paper: s, a, s', the outcome o and the step size alpha.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numba import njit

from tpd.types import BoolArray, FloatArray, IntArray


@contextmanager
def interruptible() -> Iterator[None]:
    """Around these: compiled code hides in an error of its own that somebody has pressed Ctrl-C."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


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
    """One pass of fixed-horizon TD over a batch, every horizon and outcome of a transition at once.

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
        else:  # an average, or a copy of the row that is about to change
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


@njit(cache=True, nogil=True, error_model="numpy")
def count_edges(
    slots: IntArray,
    edges: IntArray,
    edge_outcome: FloatArray,
    edge_continuation: FloatArray,
    counts: IntArray,
    num_edges: int,
    pairs: IntArray,
    next_states: IntArray,
    outcome: FloatArray,
    continuation: FloatArray,
    begin: int,
) -> tuple[int, int]:
    """Count transitions by (pair, next state, outcome); the first not counted, and the number of edges.

    An edge is a row of edges [E, 2] (pair, next state) with its outcome [E, K]. `slots` is a hash
    table of edge numbers with open addressing, -1 where free; counting stops where the arrays are
    full, for the caller to grow them.
    """
    mask = len(slots) - 1
    bits = outcome.view(np.uint32)
    for t in range(begin, len(pairs)):
        h = np.uint64(pairs[t]) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(next_states[t])
        for k in range(outcome.shape[1]):
            h = (h ^ np.uint64(bits[t, k])) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
        slot = np.int64(h & np.uint64(mask))
        while True:
            edge = slots[slot]
            if edge < 0:
                if num_edges == len(counts):
                    return t, num_edges
                edge, slots[slot] = num_edges, num_edges
                edges[edge, 0], edges[edge, 1] = pairs[t], next_states[t]
                edge_outcome[edge] = outcome[t]
                edge_continuation[edge] = continuation[t]
                num_edges += 1
                break
            same = edges[edge, 0] == pairs[t] and edges[edge, 1] == next_states[t]
            for k in range(outcome.shape[1]):
                same = same and edge_outcome[edge, k] == outcome[t, k]
            if same:
                break
            slot = (slot + 1) & mask
        counts[edge] += 1
    return len(pairs), num_edges


@njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
def solve_backwards(
    pair_of_edge: IntArray,
    next_of_edge: IntArray,
    weight: FloatArray,
    outcome: FloatArray,
    continuation: FloatArray,
    next_pairs: IntArray,
    next_probabilities: FloatArray,
    solution: FloatArray,
) -> None:
    """Add the solution of a model given by weighted edges to solution [pair, horizon, outcome].

    `O_0` is the mean outcome of a pair's edges, `O_h` the mean of `O_{h-1}(s', pi)` after them.
    next_of_edge points into next_pairs [next state, action], the pair of each action there, and into
    next_probabilities of the same shape. A pair without edges keeps what solution holds of it.
    """
    horizon, num_outcomes = solution.shape[1:]
    v = np.empty((len(next_pairs), num_outcomes))
    for e in range(len(pair_of_edge)):
        for k in range(num_outcomes):
            solution[pair_of_edge[e], 0, k] += weight[e] * outcome[e, k]
    for h in range(1, horizon):
        v[:] = 0
        for u in range(len(next_pairs)):
            for a in range(next_pairs.shape[1]):
                p, pair = next_probabilities[u, a], next_pairs[u, a]
                if p > 0:
                    for k in range(num_outcomes):
                        v[u, k] += p * solution[pair, h - 1, k]
        for e in range(len(pair_of_edge)):
            pair, u = pair_of_edge[e], next_of_edge[e]
            for k in range(num_outcomes):
                solution[pair, h, k] += weight[e] * continuation[e, k] * v[u, k]


@njit(cache=True, nogil=True, error_model="numpy")
def keep_extremes(values: FloatArray, smallest: FloatArray, largest: FloatArray) -> None:
    """Put each of the values [cell] among the smallest and largest [cell, rank] so far, if it belongs there.

    Both are in order from the most extreme to the least, and updated in place.
    """
    last = smallest.shape[1] - 1
    for c in range(len(values)):
        x = values[c]
        if x < smallest[c, last]:
            r = last
            while r > 0 and x < smallest[c, r - 1]:
                smallest[c, r] = smallest[c, r - 1]
                r -= 1
            smallest[c, r] = x
        if x > largest[c, last]:
            r = last
            while r > 0 and x > largest[c, r - 1]:
                largest[c, r] = largest[c, r - 1]
                r -= 1
            largest[c, r] = x


@njit(cache=True, nogil=True, error_model="numpy")
def returns_one_step_longer(
    pair_of_edge: IntArray,
    next_of_edge: IntArray,
    weight: FloatArray,
    reward: FloatArray,
    next_pairs: IntArray,
    next_probabilities: FloatArray,
    discount: float,
    low: FloatArray,
    high: FloatArray,
    mass: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The categorical distributions of the return over one step more, from those over the steps so far.

    Each pair has atoms of its own, evenly spaced from the smallest to the largest return that it can
    have, low and high [pair], with the probabilities mass [pair, atom], of which the last is that of
    the unknown. The edges are those of `solve_backwards`, with their reward [edge]. What comes between
    two atoms is divided so that the mean is kept. A pair without edges keeps what it has.
    """
    pairs, last = len(low), mass.shape[1] - 2
    lower, higher, new_mass = np.full(pairs, np.inf), np.full(pairs, -np.inf), np.zeros(mass.shape)
    has_edges = np.zeros(pairs, np.bool_)
    for e in range(len(pair_of_edge)):
        pair, u = pair_of_edge[e], next_of_edge[e]
        has_edges[pair] = True
        for a in range(next_pairs.shape[1]):
            follower = next_pairs[u, a]
            if next_probabilities[u, a] > 0 and mass[follower, -1] < 1:
                lower[pair] = min(lower[pair], reward[e] + discount * low[follower])
                higher[pair] = max(higher[pair], reward[e] + discount * high[follower])
    for pair in range(pairs):
        if not has_edges[pair]:
            lower[pair], higher[pair], new_mass[pair] = low[pair], high[pair], mass[pair]
        elif lower[pair] > higher[pair]:  # all that follows is unknown
            lower[pair], higher[pair] = 0.0, 0.0
    for e in range(len(pair_of_edge)):
        pair, u = pair_of_edge[e], next_of_edge[e]
        spread = higher[pair] - lower[pair]
        per_atom = last / spread if spread > 0 else 0.0
        for a in range(next_pairs.shape[1]):
            p, follower = weight[e] * next_probabilities[u, a], next_pairs[u, a]
            if p > 0:
                new_mass[pair, -1] += p * mass[follower, -1]
                spacing = (high[follower] - low[follower]) / last
                for j in range(last + 1):
                    if mass[follower, j] > 0:
                        value = reward[e] + discount * (low[follower] + j * spacing)
                        place = min(max((value - lower[pair]) * per_atom, 0.0), float(last))
                        below = min(int(place), last - 1)
                        upwards = place - below
                        new_mass[pair, below] += p * mass[follower, j] * (1 - upwards)
                        new_mass[pair, below + 1] += p * mass[follower, j] * upwards
    return lower, higher, new_mass
