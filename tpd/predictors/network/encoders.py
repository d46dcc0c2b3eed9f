"""Encoders: from observations of any space to features."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from tpd.core.observations import unpack
from tpd.core.types import Array

UNSEEN = 50.0  # standard deviations from the mean; a flag that one step in a thousand sets is nearer
FARTHEST = 10.0  # standard deviations; what lies farther out looks as if it lay there

FeaturesExtractor = Callable[[spaces.Space[Any]], nn.Module]
"""Makes a module with `features_dim` for images and dicts, as Stable-Baselines3's extractors are."""


FINE = (1e-2, 1e-4, 1e-6)
"""Parts of a standard deviation below which numbers are still told apart near 0."""
LARGEST = 1e6  # standard deviations from 0; beyond it magnitudes are not told apart


class VectorEncoder(nn.Module):
    """Numbers, brought to zero mean and unit variance over what was seen, and once more by their magnitude.

    A small velocity may decide what happens, and a normaliser flattens it: `asinh` of a number in fine units
    grows like its logarithm, on both sides of 0.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.features_dim = size * (1 + len(FINE))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros(()))

    def see(self, observations: Tensor) -> None:
        """Take note of a batch [batch, ...]."""
        observations, count = observations.flatten(1), len(observations)
        mean = observations.mean(dim=0)
        variance = observations.var(dim=0, correction=0)
        total = self.count + count
        shift = mean - self.mean
        self.variance.copy_(
            (self.variance * self.count + variance * count + shift**2 * self.count * count / total) / total
        )
        self.mean.add_(shift * count / total)
        self.count.copy_(total)

    def forward(self, observations: Tensor) -> Tensor:
        whole = self._scaled(observations).clamp(-FARTHEST, FARTHEST)
        size = (observations.flatten(1) / (self.variance + 1e-8).sqrt()).clamp(-LARGEST, LARGEST)
        fine = [torch.asinh(size / unit) / math.asinh(1 / unit) for unit in FINE]
        return torch.cat([whole, *fine], dim=1)

    def unseen(self, observations: Tensor) -> Tensor:
        """[batch]: whether an observation lies nowhere near any that was seen."""
        return (self._scaled(observations).abs() > UNSEEN).any(dim=1) & (self.count > 0)

    def _scaled(self, observations: Tensor) -> Tensor:
        return (observations.flatten(1) - self.mean) / (self.variance + 1e-8).sqrt()


class NumberEncoder(nn.Module):
    """Numbered states, each with features of its own to be learned."""

    def __init__(self, size: int, features: int = 256) -> None:
        super().__init__()
        self.features_dim = features
        self.table = nn.Embedding(size, features)

    def forward(self, observations: Tensor) -> Tensor:
        return functional.relu(self.table(observations.long()))


class ExtractedEncoder(nn.Module):
    """Images or dicts, by a features extractor that expects channels first and values in [0, 1]."""

    def __init__(self, space: spaces.Space[Any], extractor: FeaturesExtractor) -> None:
        super().__init__()
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        self._parts = dict(parts)
        shown = {key: channels_first(part) if is_image(part) else part for key, part in parts.items()}
        self.extractor = extractor(spaces.Dict(shown) if isinstance(space, spaces.Dict) else shown[""])
        self.features_dim = int(self.extractor.features_dim)  # type: ignore[arg-type]

    def forward(self, observations: Tensor | dict[str, Tensor]) -> Tensor:
        if isinstance(observations, dict):
            shown = {key: self._shown(key, value) for key, value in observations.items()}
            return self.extractor(shown)  # type: ignore[no-any-return]
        return self.extractor(self._shown("", observations))  # type: ignore[no-any-return]

    def _shown(self, key: str, values: Tensor) -> Tensor:
        """As Stable-Baselines3 shows it to its extractors."""
        part = self._parts[key]
        if isinstance(part, spaces.Discrete):
            return functional.one_hot(values.long(), int(part.n)).float()
        if not is_image(part):
            return values.float()
        return (values.movedim(-1, -3) if channels_last(part) else values).float() / 255


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether observations are pictures."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def channels_last(space: spaces.Space[Any]) -> bool:
    """Whether the last axis of a picture is the shortest."""
    assert space.shape is not None
    return int(np.argmin(space.shape)) == len(space.shape) - 1


def channels_first(space: spaces.Space[Any]) -> spaces.Box:
    """The space of pictures with their channels in front."""
    assert space.shape is not None
    height, width, channels = space.shape
    shape = (channels, height, width) if channels_last(space) else space.shape
    return spaces.Box(0, 255, shape, np.uint8)


def make_encoder(
    space: spaces.Space[Any], hidden_state: int, extractor: FeaturesExtractor | None
) -> nn.Module:
    """What turns observations of a space, and the hidden state that they carry, into features."""
    if extractor is not None:
        if hidden_state:
            raise TypeError("a recurrent policy is explained for vectors, not with a features_extractor")
        return ExtractedEncoder(space, extractor)
    if isinstance(space, spaces.Discrete) and not hidden_state:
        return NumberEncoder(int(space.n))
    numbers = isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete)
    if numbers and not is_image(space):
        return VectorEncoder(math.prod(space.shape or ()) + hidden_state)
    kind = "NatureCNN" if is_image(space) else "CombinedExtractor"
    raise TypeError(
        f"observations of {space} need a features extractor: explainer.features_extractor="
        f"{{_target_: stable_baselines3.common.torch_layers.{kind}, _partial_: true}}"
    )


def describe_space(space: spaces.Space[Any]) -> dict[str, Any]:
    """A space as plain values, as far as a network depends on it."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n)}
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": {key: describe_space(part) for key, part in space.spaces.items()}}
    assert space.shape is not None
    return {"kind": "Box", "shape": list(space.shape), "dtype": str(space.dtype)}


def tensors(observations: Array, device: torch.device | None = None) -> Any:
    """A batch of observations as a tensor, or a dict of tensors."""
    plain = unpack(observations)
    if isinstance(plain, dict):
        return {key: torch.from_numpy(np.ascontiguousarray(value)).to(device) for key, value in plain.items()}
    tensor = torch.from_numpy(np.ascontiguousarray(plain))
    return (tensor.float() if tensor.dtype == torch.float64 else tensor).to(device)
