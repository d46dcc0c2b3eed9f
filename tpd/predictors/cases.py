"""What explanations are judged by: pairs, and what is true of them."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from tpd.core.pairs import pair_of
from tpd.core.types import Array, BoolArray, FloatArray, Index, IntArray, Transitions
from tpd.envs import Environment


@dataclass(frozen=True)
class Cases:
    """Pairs that came up in episodes of the policy, or could have."""

    observations: Array
    """[case, ...]"""
    actions: Array
    """[case, ...]"""
    own: BoolArray
    """[case]: whether the policy took the action; else it is a foil"""
    weight: FloatArray
    """[case]: how often it came up"""
    expected: FloatArray
    """[case, horizon, outcome]: the true expectations, the last outcome being termination"""
    standard_error: FloatArray | None = None
    """[case, horizon, outcome]: of the expectations, where they are estimates"""

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, index: Index) -> "Cases":
        return Cases(
            self.observations[index],
            self.actions[index],
            self.own[index],
            self.weight[index],
            self.expected[index],
            None if self.standard_error is None else self.standard_error[index],
        )


@dataclass(frozen=True)
class Visits:
    """The pairs met in episodes, each with the number of times it was met."""

    state: IntArray
    """[pair]"""
    action: IntArray
    """[pair]"""
    count: IntArray
    """[pair]"""

    @classmethod
    def of(cls, transitions: Transitions, num_actions: int) -> "Visits":
        """Count the pairs of a batch."""
        code = pair_of(transitions.observation, transitions.action, num_actions)
        pairs, count = np.unique(code, return_counts=True)
        return cls(*np.divmod(pairs, num_actions), count)

    def foils(self, env: Environment) -> "Visits":
        """The valid actions not taken, counted as often as they were passed over."""
        valid = env.mask(self.state)
        valid[np.arange(len(valid)), self.action] = False
        row, action = np.nonzero(valid)
        return Visits(self.state[row], action, self.count[row])


@runtime_checkable
class Truth(Protocol):
    """Knows or finds out what is true."""

    def cases(self, episodes: int, rng: np.random.Generator) -> Cases:
        """Pairs from episodes of the policy as it is now."""
