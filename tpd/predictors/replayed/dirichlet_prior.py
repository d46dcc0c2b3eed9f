"""The Dirichlet prior: what a pair may lead to, seen or not, as the counts that posterior samples come from.

What an action did in other states is expected of it in every state: to change the number of the state by as
much, with the same outcomes. Numbers that stand for rows, columns and the like make that a fair prior; where
it is not, the counts themselves say so, and the prior gets less weight.
"""

from typing import NamedTuple

import numpy as np

from tpd.core.pairs import locate
from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.predictors.pair_table import PairTable

WEIGHTS = np.geomspace(0.02, 2.5, 13)
"""How many visits the prior may count for: docs/results/uncertainty.md says why no more."""
MOST_PATTERNS = 128
"""How many things that an action did, the most frequent ones, are expected of it elsewhere.

Where an outcome is a field of the state, one change of the state is as many things as the field has values.
"""


class Successors(NamedTuple):
    """All that the pairs of a table may lead to, in the order of the pairs."""

    row: IntArray
    """[successor]: which pair of the table"""
    next_state: IntArray
    """[successor]"""
    outcome: FloatArray
    """[successor, outcome]"""
    continuation: FloatArray
    """[successor, outcome]"""
    amount: FloatArray
    """[successor]: how often it was seen, and what the prior adds to that"""


class _Led(NamedTuple):
    """What pairs led to, everything as a number."""

    row: IntArray
    """[led]: which pair of the table"""
    arrival: IntArray
    """[led]: which of the states ever seen"""
    kind: IntArray
    """[led]: which of the different outcomes with their continuations"""
    amount: FloatArray
    """[led]: how often, or which share"""


def successors(table: PairTable) -> Successors:
    """What was seen, and what may be expected since the same action did it elsewhere."""
    if table.edges is None:
        raise ValueError("this table holds no counts of what was seen, so nothing can be drawn from them")
    edges, width = table.edges, table.edges.outcome.shape[1]
    states = np.union1d(table.pairs // table.num_actions, edges.next_state)
    kinds, kind = np.unique(np.hstack([edges.outcome, edges.continuation]), axis=0, return_inverse=True)
    row, arrival = np.searchsorted(table.pairs, edges.pair), np.searchsorted(states, edges.next_state)
    seen = _Led(row, arrival, kind.ravel(), edges.count.astype(np.float64))
    from_prior = _prior(table, states, seen, ends=kinds[:, -1] == 0)
    shape = (len(table.pairs), len(states), len(kinds))
    codes = [np.ravel_multi_index(led[:3], shape) for led in (seen, from_prior)]
    every, place = np.unique(np.concatenate(codes), return_inverse=True)
    seen_here, prior_here = np.split(place, [len(edges.pair)])
    amount: FloatArray = np.bincount(seen_here, seen.amount, len(every)).astype(np.float64)
    share: FloatArray = np.bincount(prior_here, from_prior.amount, len(every)).astype(np.float64)
    row, arrival, kind = np.unravel_index(every, shape)
    amount += share * _weights(table, row, amount, share)
    return Successors(row, states[arrival], kinds[kind, :width], kinds[kind, width:], amount)


def _prior(table: PairTable, states: IntArray, seen: _Led, ends: BoolArray) -> _Led:
    """For every pair what its action did anywhere, where that leads to a state seen; shares that sum to 1."""
    own_state, own_action = np.divmod(table.pairs, table.num_actions)
    pattern_action, change, kind, frequency = _patterns(table, states, seen)
    begin = np.searchsorted(pattern_action, np.arange(table.num_actions + 1))
    choices = np.diff(begin)[own_action]
    row = np.repeat(np.arange(len(table.pairs)), choices)
    nth = np.arange(len(row)) - np.repeat(np.cumsum(choices) - choices, choices)
    pattern = begin[own_action[row]] + nth
    arrival, exists = locate(states, own_state[row] + change[pattern])
    row, arrival, pattern = row[exists], arrival[exists], pattern[exists]
    share = _as_met(_Led(row, arrival, kind[pattern], frequency[pattern]), seen, ends, len(states))
    total, kept = np.bincount(row, share, len(table.pairs)), share > 0
    return _Led(row[kept], arrival[kept], kind[pattern[kept]], share[kept] / total[row[kept]])


def _as_met(led: _Led, seen: _Led, ends: BoolArray, num_states: int) -> FloatArray:
    """[led]: the amounts, once the kind of each arrival is taken from the arrivals seen in the same state.

    What a pair leads to in one state counts as much as before in all. As many end the episode as there, and
    kinds never met there are left out, if another was.
    """
    arrivals = np.bincount(seen.arrival, seen.amount, num_states)
    ended = np.bincount(seen.arrival, seen.amount * ends[seen.kind], num_states) / np.maximum(1, arrivals)
    fits = led.amount * np.where(ends[led.kind], ended[led.arrival], 1 - ended[led.arrival])
    met = np.isin(led.arrival * len(ends) + led.kind, seen.arrival * len(ends) + seen.kind)
    way = np.unique(led.row * num_states + led.arrival, return_inverse=True)[1]
    fits = np.where(np.bincount(way, fits * met)[way] > 0, fits * met, fits)
    as_before, now = np.bincount(way, led.amount)[way], np.bincount(way, fits)[way]
    return np.asarray(fits * as_before / np.where(now > 0, now, 1))


def _patterns(
    table: PairTable, states: IntArray, seen: _Led
) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """What actions did: action, change of the state's number, kind and frequency among the pairs, [pattern].

    Ascending by action, for each the most frequent first.
    """
    own_state, own_action = np.divmod(table.pairs[seen.row], table.num_actions)
    did = np.stack([own_action, states[seen.arrival] - own_state, seen.kind])
    (action, change, kind), pattern = np.unique(did, axis=1, return_inverse=True)
    frequency = np.bincount(pattern.ravel(), seen.amount / table.visits[seen.row])
    order = np.lexsort([-frequency, action])
    rank = np.arange(len(order)) - np.searchsorted(action, action[order])
    order = order[rank < MOST_PATTERNS]
    return action[order], change[order], kind[order], frequency[order]


def _weights(table: PairTable, row: IntArray, amount: FloatArray, share: FloatArray) -> FloatArray:
    """[successor]: the weight of the prior that makes the counts of the action likeliest."""
    action = table.pairs % table.num_actions
    from_prior = np.flatnonzero(share * amount)
    n, q, of = amount[from_prior], share[from_prior], action[row[from_prior]]
    visits = np.bincount(row[from_prior], n, len(table.pairs))
    from scipy.special import gammaln  # takes long to import, and only draws need it

    likelihood = [
        np.bincount(of, gammaln(n + weight * q) - gammaln(weight * q), table.num_actions)
        + np.bincount(action, gammaln(weight) - gammaln(visits + weight), table.num_actions)
        for weight in WEIGHTS
    ]
    return np.asarray(WEIGHTS[np.argmax(likelihood, axis=0)][action[row]])
