"""A mixture that learns no more, as plain values and arrays."""

from typing import Any

from tpd.core.distributions import BoundedDistribution
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, Policy, Predictor
from tpd.predictors.mixture.weights import mixed
from tpd.predictors.model.predictor import ModelPredictor
from tpd.predictors.network.predictor import NetworkPredictor
from tpd.predictors.network.state import prefixed

KIND = "mixture"
NETWORK, MODEL, WEIGHTS = "network", "model", "weights"


class MixturePredictor:
    """Predicts with a network and a learned model, each outcome with a weight of its own."""

    tie = NetworkPredictor.tie

    def __init__(
        self,
        network: NetworkPredictor,
        model: ModelPredictor,
        weights: FloatArray,
    ) -> None:
        self.network, self.model = network, model
        self.weights = weights
        """[outcome]: the share of the model, in [0, 1]; the last outcome is termination"""

    @property
    def horizon(self) -> int:
        return self.network.horizon

    @property
    def simulates(self) -> bool:
        """Whether the model takes part at all."""
        return bool(self.weights.any())

    @property
    def unsimulated(self) -> tuple[Predictor, BoolArray]:
        """The network, and the outcomes [outcome] in which the model has no share."""
        return self.network, self.weights == 0

    @property
    def complete(self) -> bool:
        """Whether network and model have what they need of policy and outcomes."""
        return self.network.complete and self.model.complete

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> "MixturePredictor":
        """The same with these; without one of them it does not predict."""
        network = self.network.completed(policy, outcomes)
        return MixturePredictor(network, self.model.completed(policy, outcomes), self.weights)

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        one = self.network.predict(observations, actions)
        if not self.simulates:
            return one
        return mixed(one, self.model.predict(observations, actions), self.weights)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often an action was tried at all; 0 far from all that was seen."""
        return self.network.support(observations, actions)

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return over the horizon, by the network alone; None if it learned none."""
        return self.network.returns(observations, actions)

    def description(self) -> dict[str, Any]:
        """How network and model are built."""
        return {"kind": KIND, NETWORK: self.network.description(), MODEL: self.model.description()}

    def arrays(self) -> dict[str, Array]:
        """Their weights, and those of the mixture."""
        return {
            WEIGHTS: self.weights,
            **prefixed(NETWORK, self.network.arrays()),
            **prefixed(MODEL, self.model.arrays()),
        }
