"""A trained mixture that can be stored as plain values and arrays."""

from typing import Any

from tpd.core.distributions import BoundedDistribution
from tpd.core.first_occurrences import at_most_one
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, Policy, Predictor
from tpd.predictors.mixture.weights import mixed
from tpd.predictors.model.predictor import ModelPredictor
from tpd.predictors.network.predictor import NetworkPredictor
from tpd.predictors.network.state import prefixed

KIND = "mixture"
NETWORK, MODEL, WEIGHTS = "network", "model", "weights"


class MixturePredictor:
    """Mixes the predictions of a network and a learned model, with one weight for each outcome."""

    tie = NetworkPredictor.tie

    def __init__(self, network: NetworkPredictor, model: ModelPredictor, weights: FloatArray) -> None:
        self.network, self.model = network, model
        self.weights = weights
        """[outcome]: the weight of the model, in [0, 1]; the last outcome is termination"""

    @property
    def horizon(self) -> int:
        return self.network.horizon

    @property
    def simulates(self) -> bool:
        """Whether the model has a positive weight for any outcome."""
        return bool(self.weights.any())

    @property
    def unsimulated(self) -> tuple[Predictor, BoolArray]:
        """The network, and the outcomes [outcome] for which the model has weight 0."""
        return self.network, self.weights == 0

    @property
    def complete(self) -> bool:
        """Whether network and model have the policy and outcomes that they need."""
        return self.network.complete and self.model.complete

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> "MixturePredictor":
        """The same mixture with this policy and these outcomes; without them it may not predict."""
        network = self.network.completed(policy, outcomes)
        return MixturePredictor(network, self.model.completed(policy, outcomes), self.weights)

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        one = self.network.predict(observations, actions)
        if not self.simulates:
            return one
        both = mixed(one, self.model.predict(observations, actions), self.weights)
        return at_most_one(both, self.network.network.columns.exclusive)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often the action was tried in any state; 0 far from all training data."""
        return self.network.support(observations, actions)

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return distribution of the network alone; None if it did not learn one."""
        return self.network.returns(observations, actions)

    def description(self) -> dict[str, Any]:
        """The architecture of network and model."""
        return {"kind": KIND, NETWORK: self.network.description(), MODEL: self.model.description()}

    def arrays(self) -> dict[str, Array]:
        """Their parameters, and the mixture weights."""
        return {
            WEIGHTS: self.weights,
            **prefixed(NETWORK, self.network.arrays()),
            **prefixed(MODEL, self.model.arrays()),
        }
