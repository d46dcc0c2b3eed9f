"""Known dynamics over numbered states, followed forwards from one pair: counted, or the environment's own."""

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
"""A step and states [state] -> the probabilities of the actions then [state, action]."""


class Future(NamedTuple):
    """What is expected after one pair."""

    expected: FloatArray
    """[horizon, outcome + 1]: last whether the episode terminates"""
    unknown: FloatArray
    """[horizon]: probability that the future has come to an untried pair by step h"""


class Splits(NamedTuple):
    """How a condition within the first t = 1, 2, ... steps divides the futures in which an event is still to
    come: probabilities, of futures in which neither the event nor the end of the episode came before.
    """

    condition: FloatArray
    """[t, condition, event]: that the condition was met"""
    condition_then: FloatArray
    """[t, condition, event]: that it was met, and that the event then happens within the horizon"""
    open: FloatArray
    """[t, event]: that the event is still to come"""
    open_then: FloatArray
    """[t, event]: that it then happens within the horizon"""


@dataclass(frozen=True)
class TabularDynamics:
    """Where each pair leads, how likely, and with which outcomes."""

    pair: IntArray
    """[edge]: state * num_actions + action"""
    next_state: IntArray
    """[edge]"""
    probability: FloatArray
    """[edge]: given the pair"""
    outcome: FloatArray
    """[edge, outcome + 1]"""
    continuation: FloatArray
    """[edge, outcome + 1]"""
    num_actions: int

    @classmethod
    def counted(cls, edges: Edges, num_actions: int) -> "TabularDynamics":
        """As transitions were counted."""
        visits = np.bincount(edges.pair, edges.count)
        probability = edges.count / visits[edges.pair]
        return cls(edges.pair, edges.next_state, probability, edges.outcome, edges.continuation, num_actions)

    @classmethod
    def known(cls, model: TabularModel, outcomes: OutcomeSet) -> "TabularDynamics":
        """As the environment publishes them."""
        transitions, probability = model.transitions()
        pair = pair_of(transitions.observation, transitions.action, model.num_actions)
        observed = outcomes.observe(transitions)
        return cls(pair, transitions.next_observation, probability, *observed, model.num_actions)

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray]:
        """[pair], and [edge]: the tried pairs, and which of them each edge belongs to."""
        pairs, row = np.unique(self.pair, return_inverse=True)
        return pairs, row

    @cached_property
    def _next(self) -> tuple[IntArray, IntArray, IntArray]:
        """[state], [edge] and [state, action]: states reached, each edge's, and the pairs there.

        A pair that was never tried has the number after the last one.
        """
        states, row = np.unique(self.next_state, return_inverse=True)
        pairs, _ = self._pairs
        found, tried = locate(pairs, states[:, None] * self.num_actions + np.arange(self.num_actions))
        return states, row, np.where(tried, found, len(pairs))

    def follow(self, state: int, action: int, choose: Chooser, horizon: int) -> Future:
        """What is expected after a pair, if the actions of later steps are chosen so."""
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
        """How the events of these columns, each as a condition, divide the future of a pair.

        They are asked for within the first 1 to `steps` steps.
        """
        pairs, row_of_edge = self._pairs
        events, size = self.outcome[:, columns].astype(np.float64), len(columns)
        alive = self.continuation[:, -1].astype(np.float64)
        later = self._chances(policy, events, alive, horizon - 1)
        (start,), _ = locate(pairs, np.array([state * self.num_actions + action]))
        mass: FloatArray = np.zeros((len(pairs) + 1, size + 1, size))
        """[pair, condition and last all, event]: of futures in which the event is still to come"""
        mass[start, -1] = 1
        found, then = np.zeros((2, steps, size + 1, size))
        for t in range(steps):
            edges = np.flatnonzero(mass[row_of_edge, -1].any(axis=1))
            before = mass[row_of_edge[edges]]
            now = events[edges]
            met = before + _now_met(before, now)
            goes_on = (self.probability * alive)[edges, None, None] * (1 - now)[:, None]
            arrived = self._arrive(edges, met * goes_on)
            found[t] = arrived.sum(axis=0)
            then[t] = np.einsum("sce,se->ce", arrived, later[horizon - 1 - t])
            mass = self._chosen(arrived, policy.probabilities)
        return Splits(found[:, :-1], then[:, :-1], found[:, -1], then[:, -1])

    def _chances(
        self, policy: DiscretePolicy, events: FloatArray, alive: FloatArray, steps: int
    ) -> list[FloatArray]:
        """Of 0, 1, ... steps [state reached, event]: how likely each event happens within so many."""
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
        """[state reached, ...]: the mass that these edges [edge] carry there [edge, ...]."""
        states, next_of_edge, _ = self._next
        arrived = np.zeros((len(states), *moved.shape[1:]))
        np.add.at(arrived, next_of_edge[edges], moved)
        return arrived

    def _chosen(self, arrived: FloatArray, choose: Callable[[IntArray], FloatArray]) -> FloatArray:
        """[pair and last what was never tried, ...]: the mass [state reached, ...] after the next choice."""
        states, _, next_pairs = self._next
        mass = np.zeros((len(self._pairs[0]) + 1, *arrived.shape[1:]))
        here = np.flatnonzero(arrived.reshape(len(arrived), -1).any(axis=1))
        if len(here):
            probabilities = choose(states[here])
            for action in range(self.num_actions):
                share = probabilities[:, action].reshape(-1, *[1] * (arrived.ndim - 1))
                np.add.at(mass, next_pairs[here, action], arrived[here] * share)
        return mass


def _now_met(before: FloatArray, now: FloatArray) -> FloatArray:
    """[edge, condition and last all, event]: the mass for which a condition is met at this step first.

    before: the mass so far, in which a condition was met before or, last, whether or not; now [edge, event]:
    which events happen at this step.
    """
    met = np.zeros_like(before)
    met[:, :-1] = (before[:, -1:] - before[:, :-1]) * now[:, :, None]
    return met
