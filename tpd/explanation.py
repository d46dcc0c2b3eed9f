"""Explanations and contrasts: pure data about expected future outcomes."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpd.efo import compose
from tpd.outcomes import Legend
from tpd.types import Array, BoolArray, FloatArray, Index


class Remainder(NamedTuple):
    """What lies beyond the horizon and is therefore not explained."""

    running: FloatArray
    """[batch]: probability that the episode still runs after the last step explained"""
    bound: FloatArray
    """[batch]: the largest possible |value| beyond; inf where nothing bounds it"""
    gap: FloatArray | None
    """[batch]: the agent's own value minus the explained return, where the agent has values"""


@dataclass(frozen=True)
class Explanation:
    """What is expected to happen h = 0, 1, ... steps after doing each action in each observation."""

    observations: Array
    """[batch, ...]"""
    actions: Array
    """[batch, ...]"""
    expected: FloatArray
    """[batch, horizon, outcome]: the expected future outcomes"""
    running: FloatArray
    """[batch, horizon]: probability that the episode goes on after step h"""
    support: FloatArray
    """[batch]: visits behind each pair; 0 means unknown, inf means exact"""
    legend: Legend
    discount: float
    """Weighs the returns; the agent's own."""
    agent_value: FloatArray | None = None
    """[batch]: what the agent itself thinks the pair is worth"""

    def __len__(self) -> int:
        return len(self.support)

    def __getitem__(self, index: Index) -> "Explanation":
        return Explanation(
            self.observations[index],
            self.actions[index],
            self.expected[index],
            self.running[index],
            self.support[index],
            self.legend,
            self.discount,
            None if self.agent_value is None else self.agent_value[index],
        )

    def __sub__(self, foil: "Explanation") -> "Contrast":
        return Contrast(self, foil)

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    @property
    def known(self) -> BoolArray:
        """[batch]: whether the pair was ever tried."""
        return np.asarray(self.support > 0)

    @property
    def ended(self) -> FloatArray:
        """[batch, horizon]: probability that no event happens at step h, by exclusion.

        The episode has terminated by then or, where too little was learned, it is unknown.
        """
        if not self.legend.partition:
            raise ValueError("termination follows by exclusion only from a partition of events")
        members = [self.legend.names.index(name) for name in self.legend.partition]
        return np.asarray(1 - self.expected[:, :, members].sum(axis=2))

    @property
    def component_names(self) -> tuple[str, ...]:
        """The outcomes that are part of the reward."""
        pairs = zip(self.legend.names, self.legend.weights, strict=True)
        return tuple(name for name, weight in pairs if weight is not None)

    @property
    def reward_components(self) -> FloatArray:
        """[batch, horizon, component]: expected reward at step h from each outcome."""
        if self.legend.reward_bound is None:
            raise ValueError("these outcomes do not account for the reward")
        columns = [k for k, weight in enumerate(self.legend.weights) if weight is not None]
        weights = np.array([self.legend.weights[k] for k in columns], dtype=np.float64)
        return np.asarray(self.expected[:, :, columns] * weights)

    @property
    def expected_reward(self) -> FloatArray:
        """[batch, horizon]"""
        return np.asarray(self.reward_components.sum(axis=2))

    @property
    def component_returns(self) -> FloatArray:
        """[batch, horizon, component]: discounted reward accumulated up to step h."""
        return compose(self.reward_components, self.discount, axis=1)

    @property
    def expected_return(self) -> FloatArray:
        """[batch, horizon]: discounted reward accumulated up to step h."""
        return np.asarray(self.component_returns.sum(axis=2))

    @property
    def remainder(self) -> Remainder:
        """What the horizon cuts off."""
        running = np.clip(self.running[:, -1], 0, 1)
        largest = np.inf if self.legend.reward_bound is None else self.legend.reward_bound
        steps = np.inf if self.discount == 1 else 1 / (1 - self.discount)
        worst = self.discount**self.horizon * largest * steps
        bound = np.zeros(len(self))
        bound[running > 0] = running[running > 0] * worst
        gap = None
        if self.agent_value is not None and self.legend.reward_bound is not None:
            gap = self.agent_value - self.expected_return[:, -1]
        return Remainder(running, bound, gap)


@dataclass(frozen=True)
class Contrast:
    """Fact against foil: how two explanations, pair by pair, differ."""

    fact: Explanation
    foil: Explanation

    def __post_init__(self) -> None:
        if self.fact.expected.shape != self.foil.expected.shape:
            raise ValueError(
                f"cannot compare explanations of shapes {self.fact.expected.shape} "
                f"and {self.foil.expected.shape}"
            )
        if self.fact.legend.names != self.foil.legend.names:
            raise ValueError(f"cannot compare outcomes {self.fact.legend.names} and {self.foil.legend.names}")

    @property
    def expected(self) -> FloatArray:
        """[batch, horizon, outcome]"""
        return np.asarray(self.fact.expected - self.foil.expected)

    @property
    def component_returns(self) -> FloatArray:
        """[batch, horizon, component]: difference accumulated up to step h."""
        return np.asarray(self.fact.component_returns - self.foil.component_returns)

    @property
    def expected_return(self) -> FloatArray:
        """[batch, horizon]: difference accumulated up to step h."""
        return np.asarray(self.fact.expected_return - self.foil.expected_return)
