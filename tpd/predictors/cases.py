"""Test cases for predictors: pairs with their true expected outcomes."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np

from tpd.core.pairs import pair_of
from tpd.core.types import Array, BoolArray, FloatArray, Index, IntArray, Rng, Transitions
from tpd.envs import Environment


@dataclass(frozen=True)
class Cases:
    """Pairs from episodes of the policy, and foils there, with their true expected outcomes."""

    observations: Array
    """[case, ...]"""
    actions: Array
    """[case, ...]"""
    own: BoolArray
    """[case]: whether the policy took the action; else it is a foil"""
    weight: FloatArray
    """[case]: how often the pair occurred"""
    expected: FloatArray
    """[case, horizon, outcome]: the true expectations; the last outcome is termination"""
    standard_error: FloatArray | None = None
    """[case, horizon, outcome]: standard error of the expectations; None if they are exact"""

    def __len__(self) -> int:
        return len(self.weight)

    def __getitem__(self, index: Index) -> Self:
        chosen: dict[str, Any] = {name: a[index] for name, a in vars(self).items() if a is not None}
        return replace(self, **chosen)


@dataclass(frozen=True)
class Visits:
    """The pairs visited in episodes, and their numbers of visits."""

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
        """The other valid actions of each visited pair, with the visit count of that pair."""
        valid = env.mask(self.state)
        valid[np.arange(len(valid)), self.action] = False
        row, action = np.nonzero(valid)
        return Visits(self.state[row], action, self.count[row])


@runtime_checkable
class Truth(Protocol):
    """A source of true expected outcomes: the exact solution, or rollouts."""

    def cases(self, episodes: int, rng: Rng) -> Cases:
        """Cases from episodes of the current policy."""
