"""Tabular dynamics, counted or the environment's own, propagated forwards from one pair."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.pairs import locate, pair_of
from tpd.core.types import DiscretePolicy, FloatArray, IntArray
from tpd.envs.tabular import TabularModel
from tpd.predictors.pair_table import Edges

Chooser = Callable[[int, IntArray], FloatArray]
"""(step, states [state]) -> action probabilities [state, action]."""


class Future(NamedTuple):
    """Expected outcomes after one pair."""

    expected: FloatArray
    """[horizon, outcome + 1]: the last outcome is termination"""
    unknown: FloatArray
    """[horizon]: probability of having reached an untried pair by step h"""


class Splits(NamedTuple):
    """Joint probabilities of conditions within the first t = 1, 2, ... steps and of an event after them.

    All are joint with "open": in the first t steps the event has not happened and the episode has not ended.
    """

    condition: FloatArray
    """[t, condition, event]: P(open, condition met in the first t steps)"""
    condition_then: FloatArray
    """[t, condition, event]: P(open, condition met, event happens later within the horizon)"""
    open: FloatArray
    """[t, event]: P(open)"""
    open_then: FloatArray
    """[t, event]: P(open, event happens later within the horizon)"""


@dataclass(frozen=True)
class TabularDynamics:
    """Transition probabilities of pairs, with the outcomes of each transition (edge)."""

    pair: IntArray
    """[edge]: state * num_actions + action"""
    next_state: IntArray
    """[edge]"""
    probability: FloatArray
    """[edge]: probability given the pair"""
    outcome: FloatArray
    """[edge, outcome + 1]"""
    continuation: FloatArray
    """[edge, outcome + 1]"""
    num_actions: int

    @classmethod
    def counted(cls, edges: Edges, num_actions: int) -> "TabularDynamics":
        """Dynamics estimated from counted transitions."""
        probability = edges.count / np.bincount(edges.pair, edges.count)[edges.pair]
        return cls(edges.pair, edges.next_state, probability, edges.outcome, edges.continuation, num_actions)

    @classmethod
    def known(cls, model: TabularModel, outcomes: OutcomeSet) -> "TabularDynamics":
        """The dynamics that the environment publishes."""
        transitions, probability = model.transitions()
        pair = pair_of(transitions.observation, transitions.action, model.num_actions)
        observed = outcomes.observe(transitions)
        return cls(pair, transitions.next_observation, probability, *observed, model.num_actions)

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """The tried pairs [pair], and the row of each edge's pair among them [edge]."""
        pairs, row = np.unique(self.pair, return_inverse=True)
        return pairs, row

    @cached_property
    def _next(self) -> tuple[IntArray, IntArray, IntArray]:
        """The states reached [state], the row of each edge's next state [edge], and the rows of the pairs
        there [state, action]. Untried pairs have the row after the last one.
        """
        states, row = np.unique(self.next_state, return_inverse=True)
        pairs, _ = self._pairs
        found, tried = locate(pairs, states[:, None] * self.num_actions + np.arange(self.num_actions))
        return states, row, np.where(tried, found, len(pairs))

    def follow(self, state: int, action: int, choose: Chooser, horizon: int) -> Future:
        """Expected outcomes after a pair if `choose` gives the action probabilities of later steps."""
        pairs, row_of_edge = self._pairs
        expected, unknown = np.zeros((horizon, self.outcome.shape[1])), np.zeros(horizon)
        (start,), (tried,) = locate(pairs, np.array([state * self.num_actions + action]))
        if not tried:
            return Future(expected, np.ones(horizon))
        mass: FloatArray = np.zeros((len(pairs) + 1, self.outcome.shape[1]))
        mass[start] = 1
        for h in range(horizon):
            edges = np.flatnonzero(mass[row_of_edge, -1] > 0)
            moved = mass[row_of_edge[edges]] * self.probability[edges, None]
            expected[h] = (moved * self.outcome[edges]).sum(axis=0)
            unknown[h] = mass[-1, -1]
            if h + 1 < horizon:
                arrived, total = self._arrive(edges, moved * self.continuation[edges]), mass[-1, -1]
                mass = self._chosen(arrived, partial(choose, h + 1))
                mass[-1, -1] += total
        return Future(expected, unknown)

    def splits(
        self, state: int, action: int, policy: DiscretePolicy, columns: IntArray, steps: int, horizon: int
    ) -> Splits:
        """Splits of a pair's future: each event of these columns is a condition for each other event.

        Conditions are checked within the first 1 to `steps` steps.
        """
        pairs, row_of_edge = self._pairs
        events, size = self.outcome[:, columns].astype(np.float64), len(columns)
        alive = self.continuation[:, -1].astype(np.float64)
        later = self._chances(policy, events, alive, horizon - 1)
        (start,), _ = locate(pairs, np.array([state * self.num_actions + action]))
        mass: FloatArray = np.zeros((len(pairs) + 1, size + 1, size))
        """[pair, condition + 1, event]: P(open, condition met); the last row is P(open)"""
        mass[start, -1] = 1
        found, then = np.zeros((2, steps, size + 1, size))
        for t in range(steps):
            edges = np.flatnonzero(mass[row_of_edge, -1].any(axis=1))
            before = mass[row_of_edge[edges]]
            now = events[edges]
            met = before.copy()  # its last row is all mass; the others grow where a condition is first met
            met[:, :-1] += (before[:, -1:] - before[:, :-1]) * now[:, :, None]
            goes_on = (self.probability * alive)[edges, None, None] * (1 - now)[:, None]
            arrived = self._arrive(edges, met * goes_on)
            found[t] = arrived.sum(axis=0)
            then[t] = np.einsum("sce,se->ce", arrived, later[horizon - 1 - t])
            mass = self._chosen(arrived, policy.probabilities)
        return Splits(found[:, :-1], then[:, :-1], found[:, -1], then[:, -1])

    def _chances(
        self, policy: DiscretePolicy, events: FloatArray, alive: FloatArray, steps: int
    ) -> list[FloatArray]:
        """For n = 0, 1, ... steps [state reached, event]: probability of each event within n steps."""
        states, next_of_edge, next_pairs = self._next
        pairs, row_of_edge = self._pairs
        probabilities = policy.probabilities(states)
        goes_on = (1 - events) * alive[:, None]
        order = np.argsort(row_of_edge, kind="stable")
        starts = np.flatnonzero(np.diff(row_of_edge[order], prepend=-1))
        chances: list[FloatArray] = [np.zeros((len(states), events.shape[1]))]
        for _ in range(steps):
            edge = self.probability[:, None] * (events + goes_on * chances[-1][next_of_edge])
            by_pair = np.zeros((len(pairs) + 1, events.shape[1]))
            by_pair[:-1] = np.add.reduceat(edge[order], starts, axis=0)
            chances.append(np.einsum("sa,sae->se", probabilities, by_pair[next_pairs]))
        return chances

    def _arrive(self, edges: IntArray, moved: FloatArray) -> FloatArray:
        """[state reached, ...]: the probability mass that these edges [edge] move there [edge, ...]."""
        states, next_of_edge, _ = self._next
        arrived = np.zeros((len(states), *moved.shape[1:]))
        np.add.at(arrived, next_of_edge[edges], moved)
        return arrived

    def _chosen(self, arrived: FloatArray, choose: Callable[[IntArray], FloatArray]) -> FloatArray:
        """[pair + 1, ...]: the mass [state reached, ...] after the next action; last row: untried pairs."""
        states, _, next_pairs = self._next
        mass = np.zeros((len(self._pairs[0]) + 1, *arrived.shape[1:]))
        here = np.flatnonzero(arrived.reshape(len(arrived), -1).any(axis=1))
        if len(here):
            probabilities = choose(states[here])
            for action in range(self.num_actions):
                share = probabilities[:, action].reshape(-1, *[1] * (arrived.ndim - 1))
                np.add.at(mass, next_pairs[here, action], arrived[here] * share)
        return mass
