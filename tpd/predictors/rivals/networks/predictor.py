"""A trained network of a baseline as a predictor, and its storage as plain values and arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tpd.core.pairs import blocks
from tpd.core.types import Array, FloatArray, IntArray
from tpd.core.verdicts import Verdicts
from tpd.envs.spaces import from_plain
from tpd.predictors.network.fitted import check_actions, tries
from tpd.predictors.network.next_actions import ROWS_AT_ONCE
from tpd.predictors.network.pair_network import PairNetwork
from tpd.predictors.network.predictor import NetworkPredictor
from tpd.predictors.network.state import fill, prefixed, unprefixed, weights

KIND, WEIGHT, LIMIT = "rival", "weight", "limit_"


@dataclass(frozen=True)
class Places:
    """The position of each network output in the array of expected outcomes."""

    step: IntArray
    """[output]"""
    column: IntArray
    """[output]: index of the outcome"""
    factor: FloatArray
    """[output]: expected outcome = quantity * factor, which undoes the discount and weight of returns"""


class ScaledNetwork(nn.Module):
    """A pair network with a scale for each output."""

    scale: Tensor

    def __init__(self, pairs: PairNetwork, outputs: int) -> None:
        super().__init__()
        self.pairs = pairs
        self.register_buffer("scale", torch.ones(outputs))


class RivalPredictor:
    """Predicts a baseline's quantities, with the limits of the method."""

    tie = NetworkPredictor.tie

    def __init__(self, network: ScaledNetwork, tried: IntArray, places: Places, limits: Verdicts) -> None:
        self.network, self.tried, self.places, self.limits = network, tried, places, limits

    @property
    def horizon(self) -> int:
        return int(self.limits.returns.shape[1])

    def quantities(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, output]: the quantities of the method, in original units."""
        pairs, parts = self.network.pairs, [np.empty((0, len(self.places.step)), dtype=np.float32)]
        check_actions(actions, self.tried, pairs.discrete)
        for rows in blocks(len(observations), ROWS_AT_ONCE):
            with torch.no_grad():
                outputs = pairs.outputs(pairs.features(observations[rows], actions[rows]), actions[rows])
                parts.append((outputs * self.network.scale).numpy(force=True))
        return np.concatenate(parts)

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        expected = np.zeros((len(observations), *self.limits.at.shape[1:]))
        found = self.quantities(observations, actions) * self.places.factor
        expected[:, self.places.step, self.places.column] = found
        expected[:, -1, -1] = 1  # nothing follows after an infinite horizon
        return expected

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often the action was tried in any state; 0 far from all training data."""
        pairs = self.network.pairs
        return tries(actions, self.tried, pairs.discrete, pairs.unseen(observations))

    def description(self) -> dict[str, Any]:
        """The architecture of the network."""
        return {"kind": KIND, "horizon": self.horizon, **self.network.pairs.settings}

    def arrays(self) -> dict[str, Array]:
        """The weights, the counts of actions, the places of the outputs, and the limits."""
        return {
            **prefixed(WEIGHT, weights(self.network)),
            **vars(self.places),
            **{f"{LIMIT}{name}": values for name, values in vars(self.limits).items()},
            "tried": self.tried,
        }


def read(description: Mapping[str, Any], arrays: Mapping[str, Array], limits: Verdicts) -> RivalPredictor:
    """The predictor with this `description` and these `arrays`."""
    both = from_plain(description["observation_space"]), from_plain(description["action_space"])
    places = Places(arrays["step"], arrays["column"], arrays["factor"])
    outputs = len(places.step)
    sizes = {name: description[name] for name in ("hidden", "hidden_state")}
    network = ScaledNetwork(PairNetwork(*both, outputs, **sizes), outputs)
    fill(network, unprefixed(WEIGHT, arrays))
    return RivalPredictor(network, arrays["tried"], places, limits)
