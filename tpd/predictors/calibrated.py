"""Bands for any predictor: it draws from errors that it is known to make."""

import zlib
from typing import Any, Protocol

import numpy as np

from tpd.core.distributions import BoundedDistribution
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, DiscretePolicy, FloatArray, IntArray, Policy, Predictor
from tpd.predictors.network.errors import KnownErrors

ERROR = "error."


class StoredPredictor(Predictor, Protocol):
    """A predictor that can be written down as plain values and arrays."""

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return over the horizon; None if that is not known."""

    def description(self) -> dict[str, Any]:
        """How it is built."""

    def arrays(self) -> dict[str, Array]:
        """Its weights."""


class CalibratedPredictor:
    """Draws samples from errors that the predictor is known to make."""

    def __init__(self, predictor: StoredPredictor, errors: KnownErrors) -> None:
        self.predictor = predictor
        self.errors = errors

    @property
    def horizon(self) -> int:
        return self.predictor.horizon

    @property
    def tie(self) -> float:
        return self.predictor.tie

    @property
    def complete(self) -> bool:
        """Whether the predictor has all that it needs."""
        return bool(getattr(self.predictor, "complete", True))

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> "CalibratedPredictor":
        """The same with these, if the predictor needs them."""
        complete = getattr(self.predictor, "completed", None)
        return self if complete is None else CalibratedPredictor(complete(policy, outcomes), self.errors)

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        return self.predictor.predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]"""
        return self.predictor.support(observations, actions)

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return over the horizon; None if that is not known."""
        return self.predictor.returns(observations, actions)

    def draws(self, observations: Array, actions: Array, policy: Policy, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: equally plausible expectations; one draw is of all pairs.

        Errors after two actions go together only where it is known which of them the policy takes.
        """
        if isinstance(policy, DiscretePolicy):
            places, foil = _numbers(observations), policy.action(observations) != actions
        else:
            places, foil = _numbers(observations, actions), np.arange(count)[:, None] % 2 == 1
        foil = np.broadcast_to(foil, (count, len(actions)))
        return self.errors.draws(self.predict(observations, actions), places, foil)

    def description(self) -> dict[str, Any]:
        """How the predictor is built."""
        return self.predictor.description()

    def arrays(self) -> dict[str, Array]:
        """Its weights, and the errors."""
        known = {f"{ERROR}{name}": values for name, values in self.errors.arrays().items()}
        return self.predictor.arrays() | known


def _numbers(*batches: Array) -> IntArray:
    """[batch]: a number for the rows of each, the same for the same."""
    numbers = np.zeros(len(batches[0]), dtype=np.int64)
    for batch in batches:
        rows = (np.ascontiguousarray(row).tobytes() for row in batch)
        found = [zlib.crc32(row, int(number)) for row, number in zip(rows, numbers, strict=True)]
        numbers = np.array(found, dtype=np.int64)
    return numbers
