"""Belief maps (Yau, Russell, Hadfield 2020, "What did you think would happen?", NeurIPS).

`H(s', a' | s, a) = E[sum_t discount^t 1{(s_t, a_t) = (s', a')}]`: the expected discounted number of visits of
every pair, over an infinite horizon. The total of an outcome is this map times the expected outcome of each
pair. A map has no time axis, so it predicts neither single steps nor first occurrences. Its size is the
number of pairs squared, so it needs discrete states.
"""

from typing import Any

import numpy as np

from tpd.core.pairs import locate, pair_of
from tpd.core.types import Array, BoolArray, FloatArray, IntArray
from tpd.predictors.replayed.pair_chain import PairChain
from tpd.predictors.rivals.discounted_totals import DiscountedTotals, Totals, visits_solver

AT_ONCE = 256
"""Maps that are kept in memory at the same time."""


class BeliefMap(DiscountedTotals):
    """Belief maps solved from counts, and totals of outcomes computed from them."""

    method = "a belief map"

    @property
    def tells(self) -> BoolArray:
        """[outcome + 1]: all except first occurrences, which depend on the past."""
        return np.array([*(not outcome.first for outcome in self.outcomes.outcomes), True])

    def maps(self, observations: Array, actions: Array) -> tuple[IntArray, FloatArray]:
        """The numbers [pair] of the tried pairs, and the maps [batch, pair]; NaN for untried pairs."""
        chain = self._chain()
        row, known = locate(chain.pairs, pair_of(observations, actions, chain.num_actions))
        maps = np.full((len(row), len(chain.pairs)), np.nan)
        solver, _ = visits_solver(chain, self.discount, chain.edges.continuation[:, -1])
        maps[known] = _maps(solver, row[known], len(chain.pairs))
        return chain.pairs, maps

    def _solve_totals(self, chain: PairChain) -> Totals:
        solver, into_unknown = visits_solver(chain, self.discount, chain.edges.continuation[:, -1])
        immediate = np.where(self.tells, chain.mean(chain.edges.outcome), 0)
        outcome, unknown = np.zeros_like(immediate), np.zeros(len(chain.pairs))
        for start in range(0, len(chain.pairs), AT_ONCE):
            rows = np.arange(start, min(start + AT_ONCE, len(chain.pairs)))
            maps = _maps(solver, rows, len(chain.pairs))
            outcome[rows], unknown[rows] = maps @ immediate, maps @ into_unknown
        return Totals(outcome, np.clip(unknown, 0, 1))


def _maps(solver: Any, rows: IntArray, pairs: int) -> FloatArray:
    """[row, pair]: the maps of a few pairs."""
    starts = np.zeros((pairs, len(rows)))
    starts[rows, np.arange(len(rows))] = 1
    return np.asarray(solver.solve(starts, trans="T").T)
