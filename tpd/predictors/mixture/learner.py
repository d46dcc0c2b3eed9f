"""Trains a network and a learned model on the same transitions, and mixes them by their held-out score."""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import BoolArray, FloatArray, Policy, Predictor, State, Transitions
from tpd.envs import Environment
from tpd.guards.files import CheckedArrays
from tpd.predictors.mixture.predictor import MixturePredictor
from tpd.predictors.mixture.weights import fitted_weights, groups
from tpd.predictors.model.learner import LearnedModel
from tpd.predictors.model.predictor import ImpossibleModelError
from tpd.predictors.network.fitted import SolvingLearner
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.network.predictor import NetworkPredictor
from tpd.predictors.network.state import prefixed, unprefixed

log = logging.getLogger(__name__)
WINDOWS = 1000  # windows of the held-out episodes that the weights are fitted on


def network_and_model(
    env: Environment,
    policy: Policy,
    outcomes: OutcomeSet,
    *,
    model: Callable[..., LearnedModel],
    **network: Any,
) -> "NetworkFHTD | MixtureLearner":
    """A mixture of a network and a model; if no model is possible, the network alone, which is logged.

    network: settings of the network.
    """
    one = NetworkFHTD(env, policy, outcomes, **network)
    try:
        return MixtureLearner(one, model(env, policy, outcomes))
    except ImpossibleModelError as error:
        reason = str(error).removesuffix(": use explainer=network")
        log.info("no one-step model is learned, so only the network predicts: %s", reason)
        return one


class MixtureLearner(SolvingLearner[MixturePredictor]):
    """Trains both predictors, and fits a mixture weight for each outcome on held-out (select) episodes.

    Until both are fitted, it predicts with the network alone.
    """

    tie = NetworkPredictor.tie

    def __init__(self, network: NetworkFHTD, model: LearnedModel) -> None:
        if network.horizon != model.horizon:
            raise ValueError(
                f"network and model must have the same horizon, got {network.horizon} and {model.horizon}"
            )
        self.network, self.model = network, model
        self.policy, self.outcomes = network.policy, network.outcomes
        self.weights: FloatArray = np.zeros(self.outcomes.width)
        """[outcome]: the weight of the model"""
        self._fitted = 0

    @property
    def horizon(self) -> int:
        return self.network.horizon

    @property
    def simulates(self) -> bool:
        """Whether the model has a positive weight for any outcome."""
        return self.solved().simulates

    @property
    def unsimulated(self) -> tuple[Predictor, BoolArray]:
        """The network, and the outcomes [outcome] for which the model has weight 0."""
        return self.solved().unsimulated

    @property
    def updates(self) -> int:
        """The number of updates of both."""
        return self.network.updates + self.model.updates

    @property
    def fit_updates(self) -> int:
        """The updates of both, plus one for the weights."""
        return self.network.fit_updates + self.model.fit_updates + 1

    def update(self, transitions: Transitions) -> None:
        """Update both with a batch."""
        self.network.update(transitions)
        self.model.update(transitions)

    def fit(self, progress: Callable[[int], None] = lambda updates: None, at_most: int | None = None) -> None:
        """Fit the network, then the model, then the weights; `at_most` limits the updates of this call."""
        end = self.fit_updates if at_most is None else min(self.fit_updates, self._fitted + at_most)
        if self._fitted == self.fit_updates:
            return

        def advance(updates: int) -> None:
            self._fitted += updates
            progress(updates)

        for part in (self.network, self.model):
            if self._fitted < end:
                part.fit(advance, end - self._fitted)
        if self._fitted == self.fit_updates - 1 < end:
            self.weigh()
            advance(1)

    def weigh(self) -> None:
        """Fit the weights on the held-out episodes, after both are fitted."""
        windows = self.network.select_windows(WINDOWS)
        if not len(windows):
            return
        pairs = windows.observation, windows.action
        one, other = (part.predict(*pairs) for part in (self.network, self.model))
        names, columns = self.outcomes.legend.names, self.network.network.columns
        ending = [column for group in columns.ending for column in group]
        shared = groups(names, [*ending, *columns.partition])
        self.weights = fitted_weights(windows, one, other, names, shared)

    def state(self) -> State:
        """Both, and the weights."""
        return {
            "fitted": np.array(self._fitted),
            "weights": self.weights,
            **prefixed("network", self.network.state()),
            **prefixed("model", self.model.state()),
        }

    def restore(self, state: State) -> None:
        """Continue from that state."""
        stored = CheckedArrays(state)
        self._fitted = stored.number("fitted", self.fit_updates)
        self.weights = stored.like("weights", self.weights, low=0, high=1).copy()
        self.network.restore(unprefixed("network", state))
        self.model.restore(unprefixed("model", state))

    def solved(self) -> MixturePredictor:
        """The predictor with the current parameters."""
        return MixturePredictor(self.network.solved(), self.model.solved(), self.weights)

    def metrics(self) -> dict[str, float]:
        """Training metrics since the last call, and the weight of the model for each outcome."""
        names = (*self.outcomes.legend.names, "terminated")
        shares = {f"mixture/{name}": float(w) for name, w in zip(names, self.weights, strict=True)}
        return self.network.metrics() | self.model.metrics() | shares
