"""What some predictors can do besides predicting."""

from typing import Protocol, runtime_checkable

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, Policy, Predictor


@runtime_checkable
class SolvingPredictor(Predictor, Protocol):
    """A predictor that has to find out whether its answers still hold, which can take a while."""

    def solved(self) -> Predictor:
        """The answers as they are now, which take no further finding out."""


@runtime_checkable
class IncompletePredictor(Predictor, Protocol):
    """A stored predictor that may need the policy and the outcomes to predict."""

    @property
    def complete(self) -> bool:
        """Whether it has all that it needs."""

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> Predictor:
        """The same with these."""


@runtime_checkable
class SimulatingPredictor(Predictor, Protocol):
    """A predictor that may simulate what it predicts, which takes milliseconds for each pair."""

    @property
    def simulates(self) -> bool:
        """Whether it does."""

    @property
    def unsimulated(self) -> tuple[Predictor, BoolArray] | None:
        """What predicts some outcomes without simulating, and which [outcome]; None if all are simulated."""


@runtime_checkable
class TracksUnknown(Predictor, Protocol):
    """A predictor that knows how far into the future its data reaches."""

    def unknown(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon]: probability that by step h the future has come to what was never tried."""


@runtime_checkable
class DrawingPredictor(Predictor, Protocol):
    """A predictor that can draw samples of its expectations."""

    def draws(self, observations: Array, actions: Array, policy: Policy, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: equally plausible expectations; one draw is of all pairs."""
