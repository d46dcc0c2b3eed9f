"""Base classes of learners that fit a predictor to kept transitions: counters, checkpoints, prediction."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from torch import nn

from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, FloatArray, IntArray, Rng, State, Transitions
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import numbered
from tpd.predictors.network.device import seed_torch
from tpd.predictors.network.state import (
    generator_state,
    put_generator_state,
    put_training_state,
    training_state,
)


class Storable(Protocol):
    """A predictor that can be stored."""

    def predict(self, observations: Array, actions: Array) -> FloatArray: ...

    def support(self, observations: Array, actions: Array) -> FloatArray: ...

    def description(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, Array]: ...


class Fitted(Storable, Protocol):
    """A storable predictor that counts how often each action was tried."""

    tried: IntArray


S = TypeVar("S", bound=Storable)
P = TypeVar("P", bound=Fitted)


class SolvingLearner(Generic[S]):
    """Delegates prediction and storage to its current predictor."""

    def solved(self) -> S:
        """The current predictor."""
        raise NotImplementedError

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        return self.solved().predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often the action was tried in any state; single pairs are not counted."""
        return self.solved().support(observations, actions)

    def description(self) -> dict[str, Any]:
        """The architecture of the predictor."""
        return self.solved().description()

    def arrays(self) -> dict[str, Array]:
        """Its weights."""
        return self.solved().arrays()


class FittedLearner(SolvingLearner[P]):
    """Counts actions, updates and losses; saves checkpoints of the `networks`, given by name."""

    def __init__(
        self,
        predictor: P,
        networks: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        rng: Rng,
        fit_updates: int,
    ) -> None:
        self.fit_updates = fit_updates
        self._predictor, self._networks, self._optimizer, self._rng = predictor, networks, optimizer, rng
        self._losses: list[float] = []
        self._fitted, self.updates = 0, 0

    def _count_tries(self, transitions: Transitions, discrete: bool) -> None:
        """Count the actions of a batch; as one total if they are not discrete."""
        actions = transitions.action if discrete else np.zeros(len(transitions), dtype=np.int64)
        tried = self._predictor.tried
        tried += np.bincount(actions, minlength=len(tried))

    def _end(self, at_most: int | None) -> int:
        """The number of updates after which a call of `fit` returns."""
        return self.fit_updates if at_most is None else min(self.fit_updates, self._fitted + at_most)

    def _step(self, loss: torch.Tensor) -> None:
        """One optimizer step."""
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.updates += 1

    def state(self) -> State:
        """Networks, progress of the fit, counts, optimizer and random state."""
        return {
            "_fitted": np.array(self._fitted),
            "updates": np.array(self.updates),
            "tried": self._predictor.tried,
            "random": generator_state(self._rng),
            **training_state(self._networks, self._optimizer),
        }

    def restore(self, state: State) -> None:
        """Continue from that state."""
        stored = CheckedArrays(state)
        self._fitted, self.updates = stored.number("_fitted", self.fit_updates), stored.number("updates")
        self._predictor.tried[:] = stored.like("tried", self._predictor.tried, low=0)
        put_generator_state(self._rng, state["random"])
        put_training_state(self._networks, self._optimizer, state)

    def _mean_loss(self) -> float | None:
        """The mean loss since the last call; None without updates."""
        losses, self._losses = self._losses, []
        return float(np.mean(losses)) if losses else None

    def solved(self) -> P:
        """The current predictor."""
        return self._predictor


def check_actions(actions: Array, tried: IntArray, discrete: bool) -> None:
    """Refuse numbered actions that are not among those counted in `tried`."""
    if discrete:
        numbered("actions", actions, len(tried))


def tries(actions: Array, tried: IntArray, discrete: bool, unseen: BoolArray) -> FloatArray:
    """[batch]: how often the action was tried in any state; 0 where the observation is unseen [batch]."""
    numbers = actions if discrete else np.zeros(len(actions), dtype=np.int64)
    return np.where(unseen, 0.0, tried[numbers])


@torch.no_grad()
def follow(target: nn.Module, network: nn.Module, rate: float) -> None:
    """Move the weights of a target network towards those of a network (Polyak averaging)."""
    torch._foreach_lerp_(list(target.parameters()), list(network.parameters()), rate)


@contextmanager
def seeded(seed: int, purpose: str) -> Iterator[None]:
    """Seed torch's random numbers within the block from a seed and a named purpose."""
    with torch.random.fork_rng():
        seed_torch(int(generator(seed, purpose).integers(2**31)))
        yield
