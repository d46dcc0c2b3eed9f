"""A base class for learners that fit a predictor to kept transitions: counters, checkpoints, prediction."""

from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from tpd.core.types import Array, FloatArray, IntArray, State, Transitions
from tpd.guards.files import CheckedArrays
from tpd.predictors.network.state import (
    generator_state,
    optimizer_state,
    prefixed,
    put_generator_state,
    put_optimizer_state,
    unprefixed,
)


class Fitted(Protocol):
    """A storable predictor that counts how often each action was tried."""

    tried: IntArray

    def predict(self, observations: Array, actions: Array) -> FloatArray: ...

    def support(self, observations: Array, actions: Array) -> FloatArray: ...

    def description(self) -> dict[str, Any]: ...

    def arrays(self) -> dict[str, Array]: ...


P = TypeVar("P", bound=Fitted)


class FittedLearner(Generic[P]):
    """Delegates prediction to its predictor; counts actions, updates and losses; saves checkpoints."""

    def __init__(
        self, predictor: P, optimizer: torch.optim.Optimizer, rng: np.random.Generator, fit_updates: int
    ) -> None:
        self.fit_updates = fit_updates
        self._predictor, self._optimizer, self._rng = predictor, optimizer, rng
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
        """Progress of the fit, counts, optimizer and random state."""
        return {
            "_fitted": np.array(self._fitted),
            "updates": np.array(self.updates),
            "tried": self._predictor.tried,
            "random": generator_state(self._rng),
            **prefixed("optimizer", optimizer_state(self._optimizer)),
        }

    def restore(self, state: State) -> None:
        """Continue from that state."""
        stored = CheckedArrays(state)
        self._fitted, self.updates = stored.number("_fitted", self.fit_updates), stored.number("updates")
        self._predictor.tried[:] = stored.like("tried", self._predictor.tried, low=0)
        put_generator_state(self._rng, state["random"])
        put_optimizer_state(self._optimizer, unprefixed("optimizer", state))

    def _mean_loss(self) -> float | None:
        """The mean loss since the last call; None without updates."""
        losses, self._losses = self._losses, []
        return float(np.mean(losses)) if losses else None

    def solved(self) -> P:
        """The current predictor."""
        return self._predictor

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        return self._predictor.predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often the action was tried in any state; single pairs are not counted."""
        return self._predictor.support(observations, actions)

    def description(self) -> dict[str, Any]:
        """The architecture of the predictor."""
        return self._predictor.description()

    def arrays(self) -> dict[str, Array]:
        """Its weights."""
        return self._predictor.arrays()
