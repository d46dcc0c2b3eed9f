"""The distribution of the return over the horizon, solved from the counts of a replayed table.

It cannot be computed from the per-step probabilities of bins, because the steps of an episode are dependent.
"""

from dataclasses import dataclass

import numpy as np

from tpd.core.distributions import BoundedDistribution, PredictsReturns, with_unknown
from tpd.core.efo import powers
from tpd.core.outcomes import UNACCOUNTED, Legend
from tpd.core.pairs import locate, pair_numbers
from tpd.core.types import Array, DiscretePolicy, FloatArray, IntArray
from tpd.guards.settings import whole_number
from tpd.guards.sizes import require_memory
from tpd.predictors.abilities import SolvingPredictor
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.posterior import CountedTable


@dataclass(frozen=True)
class ReturnTable:
    """A categorical distribution of the return, on evenly spaced atoms, for every known pair."""

    num_actions: int
    pairs: IntArray
    """[pair]: state * num_actions + action, ascending"""
    low: FloatArray
    """[pair]: the smallest possible return of the known futures"""
    high: FloatArray
    """[pair]: the largest possible return of the known futures"""
    mass: FloatArray
    """[pair, atom + 1]: the probabilities; the last is that of an unknown future"""
    bound: float
    """The largest possible |return|, of unknown futures too."""

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution:
        """The return after each pair [batch]; an unknown future may have any return within the bound.

        The lower and upper bounds cover unknown futures, not the projection onto atoms. The projection keeps
        the mean, but splits a return between its two neighbouring atoms. So ask `below` and `above` at least
        two spacings away from a return that has much probability by itself.
        """
        row, known = locate(self.pairs, pair_numbers(observations, actions, self.num_actions))
        mass, atoms = np.zeros((len(row), self.mass.shape[1])), self.mass.shape[1] - 1
        mass[:, -1] = 1
        values = np.zeros((len(row), atoms))
        if known.any():
            mass[known] = self.mass[row[known]]
            values[known] = np.linspace(self.low[row[known]], self.high[row[known]], atoms, axis=1)
        return with_unknown(values, mass, self.bound)


def predicts_returns(explainer: Explainer) -> PredictsReturns | None:
    """The object that predicts return distributions: the predictor itself, or one made from its counts."""
    predictor, policy = explainer.predictor, explainer.policy
    if isinstance(predictor, SolvingPredictor):
        predictor = predictor.solved()
    if isinstance(predictor, CountedTable) and isinstance(policy, DiscretePolicy):
        return return_table(predictor, policy, explainer.legend, horizon=predictor.horizon)
    return predictor if isinstance(predictor, PredictsReturns) else None


def return_table(
    table: PairTable, policy: DiscretePolicy, legend: Legend, *, horizon: int, atoms: int = 101
) -> ReturnTable:
    """Solve the counts behind a table backwards, for the policy's discounted return over the horizon.

    `atoms` are spaced evenly between the smallest and the largest return of each pair. Returns are projected
    onto them at each step, which is exact if dynamics and policy are deterministic.
    """
    whole_number("horizon", horizon, at_least=1)
    whole_number("atoms", atoms, at_least=2)
    if (edges := table.edges) is None:
        raise ValueError("return distributions need counts of transitions: use explainer=replayed")
    if legend.reward_bound is None:
        raise ValueError(UNACCOUNTED)
    over, unknown, size = len(table.pairs), len(table.pairs) + 1, len(table.pairs) + 2
    require_memory("distributions of returns", (2, size, atoms + 1), "float64", "use fewer atoms")
    row = np.searchsorted(table.pairs, edges.pair)
    share = edges.count / np.bincount(row, edges.count)[row]
    reward = edges.outcome[:, :-1] @ legend.rewards
    states, arrival = np.unique(edges.next_state, return_inverse=True)
    arrival = np.where(edges.outcome[:, -1] == 1, len(states), arrival)  # an extra state for ended episodes
    follower, tried = locate(table.pairs, states[:, None] * table.num_actions + np.arange(table.num_actions))
    followers = np.vstack([np.where(tried, follower, unknown), np.full(table.num_actions, over)])
    choices = np.vstack([policy.probabilities(states), np.eye(1, table.num_actions)])
    low: FloatArray = np.zeros(size)
    high: FloatArray = np.zeros(size)
    mass: FloatArray = np.zeros((size, atoms + 1))
    mass[:, 0] = 1
    from tpd.kernels.counts import returns_one_step_longer  # numba takes long to import

    for _ in range(horizon):
        low, high, mass = returns_one_step_longer(
            row, arrival, share, reward, followers, choices, policy.discount, low, high, mass
        )
        mass[unknown] = np.eye(atoms + 1)[-1]  # only now: with 0 steps left the return is known to be 0
    largest = legend.reward_bound * float(np.sum(powers(policy.discount, horizon)))
    return ReturnTable(table.num_actions, table.pairs, low[:over], high[:over], mass[:over], largest)
