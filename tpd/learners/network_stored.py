"""Networks that predict outcomes, as plain values and arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from tpd.efo import decompose
from tpd.learners.network import Columns, FeaturesExtractor, Heads, OutcomeNetwork
from tpd.seeding import generator
from tpd.types import Array, FloatArray, IntArray, Policy

ROWS_AT_ONCE = 8192


class NetworkPredictor:
    """Predicts with a network that learns no more."""

    tie = 0.03  # networks are never exact

    def __init__(self, network: OutcomeNetwork, tried: IntArray, discount: float | None) -> None:
        self.network = network
        self.tried = tried
        """[num_actions]: how often each action was seen; all together where they are not numbered"""
        self.discount = discount
        """Of the value functions that the network holds; None if it holds outcomes."""

    @property
    def horizon(self) -> int:
        return self.network.horizon

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        self._check(actions)
        network = self.network
        parts = [np.empty((0, network.horizon, network.columns.width), dtype=np.float32)]
        for start in range(0, len(observations), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            with torch.no_grad():
                features = network.features(observations[rows], actions[rows])
                channels = network.channels(network.outputs(features, actions[rows]))
                parts.append(self._consistent(network.expected(channels).numpy(), channels.numpy()))
        values = np.concatenate(parts)
        return values if self.discount is None else decompose(values, self.discount, axis=1)

    def _consistent(self, expected: FloatArray, channels: FloatArray) -> FloatArray:
        """Terminations that add up to no more than one and, for a partition, to what is left of it."""
        if self.discount is not None:
            return expected
        ended = np.cumsum(expected[:, :, -1], axis=1)
        if self.network.columns.partition:
            before = channels[:, :, len(self.network.columns.partition)]
            ended[:, :-1] = before[:, 1:]
            ended[:, -1] = before[:, -1] + (1 - before[:, -1]) * expected[:, -1, -1]
        ended = np.minimum(np.maximum.accumulate(ended, axis=1), 1)
        expected[:, :, -1] = np.diff(ended, axis=1, prepend=0)
        return expected

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often an action was tried at all, as a network knows no single pairs; 0 for
        observations that lie nowhere near any that was seen.
        """
        numbers = actions if self.network.discrete else np.zeros(len(actions), dtype=np.int64)
        return np.where(self.network.unseen(observations), 0.0, self.tried[numbers])

    def _check(self, actions: Array) -> None:
        wrong = (actions < 0) | (actions >= len(self.tried))
        if self.network.discrete and wrong.any():
            last = len(self.tried) - 1
            raise ValueError(f"actions are numbered from 0 to {last}, got {actions[wrong][0]}")

    def description(self) -> dict[str, Any]:
        """How the network is built."""
        return {"discount": self.discount, **self.network.description()}

    def arrays(self) -> dict[str, Array]:
        """The weights, and what they stand on."""
        weights = {f"weight.{name}": value.numpy() for name, value in self.network.state_dict().items()}
        return weights | {"tried": self.tried}


class EnsemblePredictor(NetworkPredictor):
    """Knows what else could be expected: by members that each learned from its own resample of the data.

    A draw is the prediction plus a mixture of how the members deviate from their mean: to first order in
    the outputs of the network, so that a few members tell the spread. The weights of a mixture are normal
    and the same for all pairs, so that draws vary together as the members do, and there can be more of them
    than members. Events stay within [0, 1].
    """

    def __init__(
        self,
        network: OutcomeNetwork,
        tried: IntArray,
        discount: float | None,
        members: Heads,
        factor: FloatArray | None = None,
    ) -> None:
        super().__init__(network, tried, discount)
        self.members = members
        self.factor = factor
        """[outcome]: by how much deviations are too small, as calibration found; None before that"""

    def calibrate(self, factor: FloatArray) -> None:
        """Widen what is drawn from now on by a factor [outcome] for each outcome."""
        self.factor = factor

    def draws(self, observations: Array, actions: Array, policy: Policy, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: equally plausible expectations; one draw is of all pairs."""
        drawn = self.deviations(observations, actions, count)
        if self.factor is not None:
            drawn *= self.factor.astype(drawn.dtype)
        drawn += self.predict(observations, actions)
        for column in (*self.network.columns.partition, *self.network.columns.events):
            np.clip(drawn[..., column], 0, 1, out=drawn[..., column])
        return drawn

    def deviations(self, observations: Array, actions: Array, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: mixtures of how the members deviate from their mean."""
        self._check(actions)
        network, columns = self.network, self.network.columns
        members = self.members.bias.shape[1] // (network.horizon * columns.channels)
        mixture = generator(0, "mixtures of members").standard_normal((count, members)) / np.sqrt(members - 1)
        mixed = np.empty((count, len(observations), network.horizon, columns.width), dtype=np.float32)
        rows_at_once = max(1, ROWS_AT_ONCE // members)
        for start in range(0, len(observations), rows_at_once):
            rows = slice(start, start + rows_at_once)
            with torch.no_grad():
                features = network.features(observations[rows], actions[rows])
                channels = network.channels(network.outputs(features, actions[rows]))[:, None]
                outputs = network.member_outputs(self.members, features, actions[rows])
                deviations = network.changes(channels, outputs - outputs.mean(dim=1, keepdim=True))
                changes = network.expected(deviations).numpy()
            if self.discount is not None:
                changes = decompose(changes, self.discount, axis=2)
            mixed[:, rows] = np.tensordot(mixture.astype(np.float32), changes, axes=(1, 1))
        return mixed

    def description(self) -> dict[str, Any]:
        """How the network is built, and how its draws are calibrated."""
        factor = None if self.factor is None else [float(value) for value in self.factor]
        return super().description() | {"calibration": factor}

    def arrays(self) -> dict[str, Array]:
        """The weights, also of the members."""
        members = {f"member.{name}": value.numpy() for name, value in self.members.state_dict().items()}
        return super().arrays() | members


def read(
    description: Mapping[str, Any],
    arrays: Mapping[str, Array],
    features_extractor: FeaturesExtractor | None = None,
) -> NetworkPredictor:
    """What `description` and `arrays` of a predictor say; features extractors are not stored."""
    if description["extracted"] and features_extractor is None:
        raise ValueError("this explainer was made with a features extractor, which is not stored with it")
    network = OutcomeNetwork(
        space_from(description["observation_space"]),
        space_from(description["action_space"]),
        Columns(**{kind: tuple(columns) for kind, columns in description["columns"].items()}),
        horizon=description["horizon"],
        hidden=description["hidden"],
        memory=description["memory"],
        features_extractor=features_extractor,
    )
    network.load_state_dict(_tensors(arrays, "weight."))
    network.requires_grad_(False)
    if "member.weight" not in arrays:
        return NetworkPredictor(network, arrays["tried"], description["discount"])
    kept = _tensors(arrays, "member.")
    num_actions, outputs, features = kept["weight"].shape
    members = Heads(features, num_actions, outputs).requires_grad_(False)
    members.load_state_dict(kept)
    factor = description["calibration"]
    return EnsemblePredictor(
        network,
        arrays["tried"],
        description["discount"],
        members,
        None if factor is None else np.array(factor),
    )


def _tensors(arrays: Mapping[str, Array], prefix: str) -> dict[str, torch.Tensor]:
    """The arrays whose names start so, by the rest of their names."""
    return {
        name.removeprefix(prefix): torch.from_numpy(value)
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def space_from(description: Mapping[str, Any]) -> spaces.Space[Any]:
    """The space that was described; the bounds are among the weights."""
    if description["kind"] == "Discrete":
        return spaces.Discrete(description["n"])
    if description["kind"] == "Dict":
        return spaces.Dict({key: space_from(part) for key, part in description["spaces"].items()})
    dtype = np.dtype(description["dtype"])
    low, high = (0, 255) if dtype == np.uint8 else (-1, 1)
    return spaces.Box(low, high, tuple(description["shape"]), dtype.type)
