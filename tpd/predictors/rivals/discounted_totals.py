"""Discounted totals over an infinite horizon, solved from counts: the fixed point of expected Sarsa.

`G_k(s, a) = E[o_k + discount * G_k(s', a')]` with `a' ~ pi`, for the fixed policy, from the counted model.
"""

from typing import Any, NamedTuple

import numpy as np

from tpd.core.outcomes import UNACCOUNTED, OutcomeSet
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray
from tpd.core.verdicts import Verdict, Verdicts
from tpd.envs import Environment
from tpd.predictors.pair_table import LimitedTable, PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.pair_chain import PairChain


class Totals(NamedTuple):
    """Discounted totals of all pairs."""

    outcome: FloatArray
    """[pair, outcome]"""
    unknown: FloatArray
    """[pair]: the discounted probability of reaching an untried pair, whose totals count as 0"""


def solve_totals(chain: PairChain, discount: float, outcome: FloatArray, continuation: FloatArray) -> Totals:
    """The totals of outcomes [edge, outcome] with their continuations [edge, outcome].

    The last outcome continues as long as the episode.
    """
    totals, immediate = np.zeros((len(chain.pairs), outcome.shape[1])), chain.mean(outcome)
    unknown = np.zeros(len(chain.pairs))
    kinds, kind = np.unique(continuation, axis=1, return_inverse=True)
    for number, goes_on in enumerate(kinds.T):
        solver, into_unknown = visits_solver(chain, discount, goes_on)
        columns = np.flatnonzero(kind.ravel() == number)
        totals[:, columns] = solver.solve(immediate[:, columns])
        if outcome.shape[1] - 1 in columns:
            unknown = solver.solve(into_unknown)
    return Totals(totals, np.clip(unknown, 0, 1))


def visits_solver(chain: PairChain, discount: float, goes_on: FloatArray) -> tuple[Any, FloatArray]:
    """Solves linear systems in the discounted visits of all pairs, which continue with `goes_on` [edge].

    Also returns [pair]: the discounted probability that the next pair is untried.
    """
    from scipy.sparse import identity
    from scipy.sparse.linalg import splu

    size = len(chain.pairs)
    matrix = discount * chain.transition_matrix(goes_on)
    solver = splu((identity(size, format="csc") - matrix[:, :size]).tocsc())
    return solver, matrix[:, size].toarray()[:, 0]


def limits(horizon: int, tells: BoolArray) -> Verdicts:
    """[1, ...]: the limits of a method that predicts totals over an infinite horizon, but no single steps.

    tells [outcome + 1]: the outcomes whose total it predicts.
    """
    at = np.full((1, horizon, len(tells)), Verdict.UNANSWERABLE, dtype=np.int8)
    by, returns = at.copy(), at[..., 0].copy()
    by[:, -1, :-1][:, tells[:-1]] = Verdict.ENDLESS
    returns[:, -1] = Verdict.ENDLESS
    return Verdicts(at, by, returns)


def check_discount(discount: float, method: str) -> float:
    """Refuse a discount of 1, for which totals over an infinite horizon may be infinite."""
    if not 0 < discount < 1:
        raise ValueError(
            f"{method} sums over an infinite horizon, so the policy's discount must lie between 0 and 1, "
            f"got {discount:g}"
        )
    return discount


class DiscountedTotals(ReplayedFHTD):
    """A baseline that predicts one total for each pair and outcome, from the same counts as `ReplayedFHTD`.

    `predict` puts the total at the last step, divided by the discount of that step, so that the return up to
    the last step is the total itself.
    """

    method = "this method"
    needs_reward = False
    """Whether the outcomes must account for the reward."""

    def __init__(
        self, env: Environment, policy: DiscretePolicy, outcomes: OutcomeSet, *, horizon: int
    ) -> None:
        if self.needs_reward and outcomes.legend.reward_bound is None:
            raise ValueError(f"{self.method}: {UNACCOUNTED}")
        super().__init__(env, policy, outcomes, horizon=horizon)
        self.discount = check_discount(policy.discount, self.method)
        self._totals: FloatArray = np.empty(0)

    @property
    def tells(self) -> BoolArray:
        """[outcome + 1]: the outcomes whose total the method predicts; the last is termination."""
        return np.ones(self.outcomes.width, dtype=np.bool_)

    @property
    def limits(self) -> Verdicts:
        """[1, ...]: single steps are not predicted."""
        return limits(self.horizon, self.tells)

    def totals(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, outcome + 1]: discounted totals over an infinite horizon; NaN where unknown."""
        found = self.table().look_up(self._totals, observations, actions, np.nan)
        found[:, ~self.tells] = np.nan
        return found

    def _solve_totals(self, chain: PairChain) -> Totals:
        return solve_totals(chain, self.discount, chain.edges.outcome, chain.edges.continuation)

    def _solve(self) -> PairTable:
        chain = self._chain()
        self._totals, unknown = self._solve_totals(chain)
        expected = np.zeros((len(chain.pairs), self.horizon, self.outcomes.width))
        expected[:, -1] = np.where(self.tells, self._totals, 0) / self.discount ** (self.horizon - 1)
        expected[:, -1, -1] = 1 - unknown  # nothing follows after an infinite horizon
        return LimitedTable(
            chain.num_actions,
            chain.pairs,
            expected,
            chain.visits,
            np.repeat(unknown[:, None], self.horizon, axis=1),
            limits=self.limits,
        )
