"""Counts transitions, and solves the model estimated from the counts."""

import numpy as np

from tpd.core.types import FloatArray, IntArray
from tpd.kernels.compiler import njit


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
    """Count transitions by (pair, next state, outcome).

    Returns the index of the first transition that was not counted, and the number of edges. An edge is a row
    of edges [E, 2] (pair, next state) with its outcome [E, K]. `slots` is a hash table of edge numbers with
    open addressing, -1 if free. Counting stops when the arrays are full; the caller then enlarges them.
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
    """Solve a model given by weighted edges; the result is added to solution [pair, horizon, outcome].

    `O_0` is the mean outcome of a pair's edges, `O_h` the mean of `O_{h-1}(s', pi)` after them.
    next_of_edge indexes next_pairs [next state, action], the pair of each action there, and
    next_probabilities of the same shape. Pairs without edges are not changed.
    """
    horizon, num_outcomes = solution.shape[1:]
    v = np.empty((len(next_pairs), num_outcomes))
    for e in range(len(pair_of_edge)):
        for k in range(num_outcomes):
            solution[pair_of_edge[e], 0, k] += weight[e] * outcome[e, k]
    for h in range(1, horizon):
        v[:] = 0
        for s_next in range(len(next_pairs)):
            for a in range(next_pairs.shape[1]):
                p, pair = next_probabilities[s_next, a], next_pairs[s_next, a]
                if p > 0:
                    for k in range(num_outcomes):
                        v[s_next, k] += p * solution[pair, h - 1, k]
        for e in range(len(pair_of_edge)):
            pair, s_next = pair_of_edge[e], next_of_edge[e]
            for k in range(num_outcomes):
                solution[pair, h, k] += weight[e] * continuation[e, k] * v[s_next, k]


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
    """Categorical return distributions over h + 1 steps, from those over h steps.

    Each pair has its own atoms, evenly spaced from its smallest to its largest possible return, low and
    high [pair], with probabilities mass [pair, atom]; the last is the mass of unknown futures. Edges are
    those of `solve_backwards`, with their reward [edge]. A return between two atoms is split so that the mean
    is kept. Pairs without edges are not changed.
    """
    pairs, last = len(low), mass.shape[1] - 2
    lower, higher, new_mass = np.full(pairs, np.inf), np.full(pairs, -np.inf), np.zeros(mass.shape)
    has_edges = np.zeros(pairs, np.bool_)
    for e in range(len(pair_of_edge)):
        pair, s_next = pair_of_edge[e], next_of_edge[e]
        has_edges[pair] = True
        for a in range(next_pairs.shape[1]):
            next_pair = next_pairs[s_next, a]
            if next_probabilities[s_next, a] > 0 and mass[next_pair, -1] < 1:
                lower[pair] = min(lower[pair], reward[e] + discount * low[next_pair])
                higher[pair] = max(higher[pair], reward[e] + discount * high[next_pair])
    for pair in range(pairs):
        if not has_edges[pair]:
            lower[pair], higher[pair], new_mass[pair] = low[pair], high[pair], mass[pair]
        elif lower[pair] > higher[pair]:  # all futures are unknown
            lower[pair], higher[pair] = 0.0, 0.0
    for e in range(len(pair_of_edge)):
        pair, s_next = pair_of_edge[e], next_of_edge[e]
        spread = higher[pair] - lower[pair]
        per_atom = last / spread if spread > 0 else 0.0
        for a in range(next_pairs.shape[1]):
            p, next_pair = weight[e] * next_probabilities[s_next, a], next_pairs[s_next, a]
            if p > 0:
                new_mass[pair, -1] += p * mass[next_pair, -1]
                spacing = (high[next_pair] - low[next_pair]) / last
                for j in range(last + 1):
                    if mass[next_pair, j] > 0:
                        value = reward[e] + discount * (low[next_pair] + j * spacing)
                        place = min(max((value - lower[pair]) * per_atom, 0.0), float(last))
                        below = min(int(place), last - 1)
                        upwards = place - below
                        new_mass[pair, below] += p * mass[next_pair, j] * (1 - upwards)
                        new_mass[pair, below + 1] += p * mass[next_pair, j] * upwards
    return lower, higher, new_mass
