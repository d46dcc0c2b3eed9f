"""Test cases for predictors: pairs with their true expected outcomes."""

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self, runtime_checkable

from tpd.core.types import Array, BoolArray, FloatArray, Index, Rng


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


@runtime_checkable
class Truth(Protocol):
    """A source of true expected outcomes: the exact solution, or rollouts."""

    def cases(self, episodes: int, rng: Rng) -> Cases:
        """Cases from episodes of the current policy."""
