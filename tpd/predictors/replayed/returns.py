"""The distribution of the return over the horizon, solved from the counts that a replayed table keeps.

The probabilities of bins at each step do not give it, for the steps of one episode depend on each other.
"""

from dataclasses import dataclass

import numpy as np

from tpd.core.distributions import BoundedDistribution, PredictsReturns, with_unknown
from tpd.core.efo import powers
from tpd.core.outcomes import Legend
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
    """A categorical distribution of the return for every pair known; its atoms are evenly spaced."""

    num_actions: int
    pairs: IntArray
    """[pair]: state * num_actions + action, ascending"""
    low: FloatArray
    """[pair]: the smallest return possible, as far as it is known"""
    high: FloatArray
    """[pair]: the largest one"""
    mass: FloatArray
    """[pair, atom + 1]: the probabilities, and last that of the unknown"""
    bound: float
    """The largest possible |return|, also of what is unknown."""

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution:
        """The return after each pair [batch]; what was never tried may be worth anything within the bound.

        Low and high are for what is unknown, not for the projection: that keeps the mean, but divides a
        return between the atoms on both sides of it, so ask `below` and `above` two spacings away from a
        return that is likely by itself.
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
    """What knows the distribution of the return: the predictor itself, or the counts that it keeps."""
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

    Between the smallest and the largest return of each pair there are so many atoms, onto which the
    returns are projected at each step. Where dynamics and policy leave no choice that loses nothing.
    """
    whole_number("horizon", horizon, at_least=1)
    whole_number("atoms", atoms, at_least=2)
    edges = table.edges
    if edges is None:
        raise ValueError("this table keeps no counts to solve returns from: use explainer=replayed")
    if legend.reward_bound is None:
        raise ValueError("these outcomes do not account for the reward")
    over, unknown, size = len(table.pairs), len(table.pairs) + 1, len(table.pairs) + 2
    require_memory("distributions of returns", (2, size, atoms + 1), "float64", "use fewer atoms")
    row = np.searchsorted(table.pairs, edges.pair)
    share = edges.count / np.bincount(row, edges.count)[row]
    reward = edges.outcome[:, :-1] @ legend.rewards
    states, arrival = np.unique(edges.next_state, return_inverse=True)
    arrival = np.where(edges.outcome[:, -1] == 1, len(states), arrival)  # one more, for all that has ended
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
        mass[unknown] = np.eye(atoms + 1)[-1]  # not before: with no step left there is nothing to know
    largest = legend.reward_bound * float(np.sum(powers(policy.discount, horizon)))
    return ReturnTable(table.num_actions, table.pairs, low[:over], high[:over], mass[:over], largest)
