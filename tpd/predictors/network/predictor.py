"""A trained network as a predictor, and its storage as plain values and arrays."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from tpd.core.distributions import BoundedDistribution
from tpd.core.efo import decompose
from tpd.core.first_occurrences import at_most_one
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, FloatArray, IntArray, Policy
from tpd.envs.spaces import from_plain
from tpd.guards.settings import boolean
from tpd.predictors.network.columns import Columns
from tpd.predictors.network.encoders import FeaturesExtractor
from tpd.predictors.network.fitted import check_actions, tries
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.returns import ReturnNetwork, ReturnSettings
from tpd.predictors.network.state import fill, prefixed, unprefixed, weights

ROWS_AT_ONCE = 8192
WEIGHT, RETURN = "weight", "return"


class NetworkPredictor:
    """Predicts with a network; it makes no updates itself."""

    tie = 0.03  # networks are never exact

    def __init__(
        self,
        network: OutcomeNetwork,
        tried: IntArray,
        discount: float | None,
        of_returns: ReturnNetwork | None = None,
    ) -> None:
        self.network = network
        self.tried = tried
        """[num_actions]: how often each action was seen; one total if actions are not discrete"""
        self.discount = discount
        """Discount of the value functions that the network predicts; None if it predicts outcomes."""
        self.of_returns = of_returns
        """Predicts return distributions; None if that was not asked for."""

    @property
    def horizon(self) -> int:
        return self.network.horizon

    @property
    def complete(self) -> bool:
        """Whether it has the agent, if the agent's action margins are an input."""
        return self.network.complete

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> "NetworkPredictor":
        """The same predictor with the agent."""
        if policy is not None:
            self.network.ask(policy)
        return self

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        check_actions(actions, self.tried, self.network.discrete)
        network = self.network
        parts = [np.empty((0, network.horizon, network.columns.width), dtype=np.float32)]
        for start in range(0, len(observations), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            with torch.no_grad():
                features = network.features(observations[rows], actions[rows])
                expected = network.expected(network.outputs(features, actions[rows]))
                parts.append(expected.numpy(force=True)[..., np.argsort(network.columns.order)])
        values = np.concatenate(parts)
        if self.discount is not None:
            return decompose(values, self.discount, axis=1)
        values = self._consistent(values) if network.columns.partition else values
        return at_most_one(values, network.columns.exclusive)

    def _consistent(self, expected: FloatArray) -> FloatArray:
        """Set termination so that it is consistent with the partition: what its events leave to 1."""
        before = 1 - expected[:, :, list(self.network.columns.partition)].sum(axis=2)
        ended = np.empty_like(before)
        ended[:, :-1] = before[:, 1:]
        ended[:, -1] = before[:, -1] + (1 - before[:, -1]) * expected[:, -1, -1]
        ended = np.clip(np.maximum.accumulate(ended, axis=1), 0, 1)
        expected[:, :, -1] = np.diff(ended, axis=1, prepend=0)
        return expected

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often the action was tried in any state, because a network does not count pairs; 0 for
        observations far from all training data.
        """
        return tries(actions, self.tried, self.network.discrete, self.network.unseen(observations))

    def returns(self, observations: Array, actions: Array) -> BoundedDistribution | None:
        """[batch]: the return distribution; any possible return if there is no support."""
        if self.of_returns is None:
            return None
        check_actions(actions, self.tried, self.network.discrete)
        unknown = np.asarray(self.support(observations, actions) == 0)
        return self.of_returns.distribution(observations, actions, unknown)

    def description(self) -> dict[str, Any]:
        """The architecture of the network, and of the return network if there is one."""
        returns = {} if self.of_returns is None else {"returns": asdict(self.of_returns.of_returns)}
        return {"discount": self.discount, **self.network.description(), **returns}

    def arrays(self) -> dict[str, Array]:
        """The weights, and the counts of actions."""
        arrays = prefixed(WEIGHT, weights(self.network)) | {"tried": self.tried}
        return arrays if self.of_returns is None else arrays | prefixed(RETURN, weights(self.of_returns))


def read(
    description: Mapping[str, Any],
    arrays: Mapping[str, Array],
    features_extractor: FeaturesExtractor | None = None,
) -> NetworkPredictor:
    """The predictor with this `description` and these `arrays`; features extractors are not stored."""
    if description["extracted"] and features_extractor is None:
        raise ValueError("this explainer has a features extractor of your own, which cannot be stored")
    both = from_plain(description["observation_space"]), from_plain(description["action_space"])
    alike = {name: description[name] for name in ("horizon", "hidden", "hidden_state")}
    alike["features_extractor"] = features_extractor
    columns = Columns.read(description["columns"])
    network = OutcomeNetwork(*both, columns, margin=boolean("margin", description["margin"]), **alike)
    fill(network, unprefixed(WEIGHT, arrays))
    of_returns = None
    if "returns" in description:
        of_returns = ReturnNetwork(*both, ReturnSettings(**description["returns"]), **alike)
        fill(of_returns, unprefixed(RETURN, arrays))
    tried, discount = arrays["tried"], description["discount"]
    return NetworkPredictor(network, tried, discount, of_returns)
