"""The Dirichlet prior over successors of a pair, which posterior samples of the dynamics are drawn from.

The prior assumes that an action does in every state what it did in others: it changes the state's number by
the same amount, with the same outcomes. That fits state numbers that encode rows, columns and the like. The
weight of the prior is fitted to the counts, so it is small where the assumption is wrong.
"""

from typing import NamedTuple

import numpy as np

from tpd.core.pairs import locate
from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.predictors.pair_table import PairTable

WEIGHTS = np.geomspace(0.02, 2.5, 13)
"""Candidate weights of the prior, in visits; docs/results/uncertainty.md says why not more."""
MOST_PATTERNS = 128
"""The most frequent patterns (state change and outcomes) of an action that the prior uses.

If an outcome is a field of the state, one state change gives as many patterns as the field has values.
"""


class Successors(NamedTuple):
    """All possible successors of the pairs of a table, in the order of the pairs."""

    row: IntArray
    """[successor]: row of the pair in the table"""
    next_state: IntArray
    """[successor]"""
    outcome: FloatArray
    """[successor, outcome]"""
    continuation: FloatArray
    """[successor, outcome]"""
    amount: FloatArray
    """[successor]: its count plus the pseudo-count of the prior"""


class _Led(NamedTuple):
    """Successors of pairs, with states and outcomes as indices."""

    row: IntArray
    """[led]: row of the pair in the table"""
    arrival: IntArray
    """[led]: index of the next state among all states seen"""
    kind: IntArray
    """[led]: index among the distinct combinations of outcomes and continuations"""
    amount: FloatArray
    """[led]: count, or probability"""


def successors(table: PairTable) -> Successors:
    """The successors that were seen, and those that the prior adds."""
    if table.edges is None:
        raise ValueError(
            "posterior samples need counts of transitions, which this predictor lacks: use explainer=replayed"
        )
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
    """The prior of every pair: its action's patterns that lead to a known state; probabilities sum to 1."""
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
    """[led]: the amounts, redistributed among kinds by the kinds seen on arrival in the same state.

    The total amount of each (pair, next state) does not change. Kinds that end the episode get the fraction
    of arrivals in that state that ended. Kinds never seen there get 0 if another kind was seen.
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
    """The patterns of all actions: action, change of the state's number, kind and frequency, each [pattern].

    Ascending by action, and for each action the most frequent first.
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
    """[successor]: the prior weight that maximises the likelihood of the action's counts."""
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
