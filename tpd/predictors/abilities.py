"""Optional protocols of predictors: solving first, simulating, tracking the unknown, posterior samples."""

from typing import Protocol, runtime_checkable

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, Policy, Predictor

ONE_TRAJECTORY = (
    "it predicts only the most likely trajectory after each action, so probabilities are 0 or 100 %"
)
"""The remark of methods that predict one trajectory."""


@runtime_checkable
class SolvingPredictor(Predictor, Protocol):
    """A predictor that may have to solve its model again before it predicts, which can be slow."""

    def solved(self) -> Predictor:
        """A predictor with the current solution, which never solves again."""


@runtime_checkable
class IncompletePredictor(Predictor, Protocol):
    """A stored predictor that may need the policy and the outcomes to predict."""

    @property
    def complete(self) -> bool:
        """Whether it has everything it needs to predict."""

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> Predictor:
        """The same predictor with this policy and these outcomes."""


@runtime_checkable
class SimulatingPredictor(Predictor, Protocol):
    """A predictor that may predict by rollouts of a model, which takes milliseconds for each pair."""

    @property
    def simulates(self) -> bool:
        """Whether it predicts by rollouts of a model."""

    @property
    def unsimulated(self) -> tuple[Predictor, BoolArray] | None:
        """A predictor without simulation, and which outcomes [outcome] it predicts; None if there is none."""


@runtime_checkable
class TracksUnknown(Predictor, Protocol):
    """A predictor that tracks the probability of leaving the data it was learned from."""

    def unknown(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon]: probability of having reached an untried pair by step h."""


@runtime_checkable
class DrawingPredictor(Predictor, Protocol):
    """A predictor that can draw posterior samples of its expectations."""

    def draws(self, observations: Array, actions: Array, policy: Policy, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: posterior samples; each sample is joint over all pairs."""
