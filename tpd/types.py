"""The records and contracts that every part of tpd speaks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
Index = slice | BoolArray | IntArray


@dataclass(frozen=True)
class Transitions:
    """A batch of environment steps, written once by a source and read by learners.

    Only `terminated` ends what can be expected of the future; a time limit sets `truncated`,
    and `next_observation` is then the real last observation, not the first of the next episode.
    """

    observation: Array
    """[batch, ...]"""
    action: Array
    """[batch, ...]"""
    next_observation: Array
    """[batch, ...]"""
    reward: FloatArray
    """[batch]"""
    terminated: BoolArray
    """[batch]"""
    truncated: BoolArray
    """[batch]"""
    info: Mapping[str, Array] = field(default_factory=dict)
    """[batch, ...] for each key that an outcome asked the source to keep"""

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, index: Index) -> "Transitions":
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "info"}
        return Transitions(**columns, info={key: value[index] for key, value in self.info.items()})

    def describe(self, row: int) -> str:
        """One transition in words, for error messages."""
        return (
            f"observation={self.observation[row]}, action={self.action[row]}, "
            f"next_observation={self.next_observation[row]}, reward={self.reward[row]}, "
            f"terminated={bool(self.terminated[row])}"
        )


def concatenate(parts: Sequence[Transitions]) -> Transitions:
    """Join batches, in order."""
    columns = {
        f.name: np.concatenate([getattr(part, f.name) for part in parts])
        for f in fields(Transitions)
        if f.name != "info"
    }
    info = {key: np.concatenate([part.info[key] for part in parts]) for key in parts[0].info}
    return Transitions(**columns, info=info)


class Policy(Protocol):
    """The policy being explained, as a black box."""

    @property
    def discount(self) -> float:
        """The discount of the returns that the policy was trained for."""

    def probabilities(self, observations: Array) -> FloatArray:
        """[batch, num_actions]: how likely each action is."""

    def action(self, observations: Array) -> IntArray:
        """[batch]: the most likely action."""

    def action_values(self, observations: Array) -> FloatArray | None:
        """[batch, num_actions]: the agent's own value estimates, where it has them."""


@runtime_checkable
class Predictor(Protocol):
    """Anything that predicts outcomes: a learner, the exact solution, a stored table."""

    @property
    def horizon(self) -> int:
        """How many steps ahead it predicts."""

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]: the expected future outcomes."""

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how much data stands behind each pair; 0 means unknown, inf means exact."""


@runtime_checkable
class Learner(Predictor, Protocol):
    """A predictor that improves with transitions, at any time."""

    def update(self, transitions: Transitions) -> None:
        """Learn from a batch. Its next actions come from the policy, never from the batch."""


TransitionsCallback = Callable[[Transitions], None]


class Trainer(Protocol):
    """A policy source: trains a policy and shows its transitions to whoever listens."""

    @property
    def policy(self) -> Policy:
        """The policy as it is now; it improves while `train` runs."""

    @property
    def steps(self) -> int:
        """How many transitions `train` goes through."""

    def train(self, callbacks: Iterable[TransitionsCallback] = (), info_keys: Sequence[str] = ()) -> None:
        """Train, showing every callback each batch of transitions, with the info they ask for."""
