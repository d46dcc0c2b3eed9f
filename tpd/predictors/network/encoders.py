"""Encoders from observations to features. The observation space determines the encoder."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from tpd.core.observations import unpack
from tpd.core.types import Array

UNSEEN = 50.0  # standard deviations from the mean; a flag that is set in 1 of 1000 steps stays below
FARTHEST = 10.0  # standard deviations; inputs are clipped to this

CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Filters, kernel and stride of each layer."""
PICTURE_FEATURES = 256
SMALLEST_PICTURE = 36
"""Minimum side in pixels. Smaller uint8 arrays, such as maps of a few cells, are encoded as vectors."""
MOST_CATEGORIES = 4096
"""Maximum one-hot features of one part of an observation; larger parts are encoded as vectors."""

FINE = (1e-2, 1e-4, 1e-6)
"""Fine units, as fractions of a standard deviation, that resolve numbers close to 0."""
HIDDEN = 0.05
"""Dropout probability of a number of an observation."""
LARGEST = 1e6  # standard deviations from 0; magnitudes are clipped to this


class Encoder(nn.Module):
    """Encodes observations [batch, ...], or a dict of them, as `features_dim` features each."""

    features_dim: int

    def see(self, observations: Any) -> None:
        """Update running statistics with a batch, if the encoder has any."""

    def unseen(self, observations: Any) -> Tensor:
        """[batch]: whether an observation is far from all observations seen; False if it cannot tell."""
        some = next(iter(observations.values())) if isinstance(observations, dict) else observations
        return torch.zeros(len(some), dtype=torch.bool, device=some.device)


class VectorEncoder(Encoder):
    """Vectors: each number normalised to zero mean and unit variance, and again on logarithmic scales.

    A small velocity may be decisive, and normalisation flattens it. `asinh` of a number in fine units grows
    like its logarithm on both sides of 0. Its absolute value is a feature too: it says how close the number
    is to 0, so "at rest" is learned once, not for every direction.

    In training, dropout hides single numbers with all their features, so that the network does not memorise
    single places.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.features_dim = size * (2 + len(FINE))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))
        self.register_buffer("count", torch.zeros(()))

    def see(self, observations: Tensor) -> None:
        observations, count = observations.float().flatten(1), len(observations)
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
        observations = observations.float()
        whole = self._scaled(observations).clamp(-FARTHEST, FARTHEST)
        size = (observations.flatten(1) / (self.variance + 1e-8).sqrt()).clamp(-LARGEST, LARGEST)
        fine = [torch.asinh(size / unit) / math.asinh(1 / unit) for unit in FINE]
        features = torch.stack([whole, *fine, fine[-1].abs()], dim=2)
        return functional.dropout1d(features, HIDDEN, self.training).flatten(1)

    def unseen(self, observations: Tensor) -> Tensor:
        return (self._scaled(observations).abs() > UNSEEN).any(dim=1) & (self.count > 0)

    def _scaled(self, observations: Tensor) -> Tensor:
        return (observations.flatten(1) - self.mean) / (self.variance + 1e-8).sqrt()


class NumberEncoder(Encoder):
    """Numbered states: a learned embedding for each."""

    def __init__(self, size: int, features: int = 256) -> None:
        super().__init__()
        self.features_dim = features
        self.table = nn.Embedding(size, features)

    def forward(self, observations: Tensor) -> Tensor:
        return functional.relu(self.table(observations.long()))


class CategoryEncoder(Encoder):
    """Categorical numbers as one-hot vectors."""

    first: Tensor
    sizes: Tensor
    place: Tensor

    def __init__(self, sizes: Sequence[int], first: Sequence[int]) -> None:
        super().__init__()
        self.features_dim = sum(sizes)
        whole = torch.tensor(sizes, dtype=torch.int64)
        self.register_buffer("sizes", whole, persistent=False)
        self.register_buffer("place", torch.cumsum(whole, dim=0) - whole, persistent=False)
        self.register_buffer("first", torch.tensor(first, dtype=torch.int64), persistent=False)

    def forward(self, observations: Tensor) -> Tensor:
        values = self._from_zero(observations).clamp(min=0).minimum(self.sizes - 1)
        encoded = torch.zeros(len(values), self.features_dim, device=values.device)
        return encoded.scatter_(1, values + self.place, 1.0)

    def unseen(self, observations: Tensor) -> Tensor:
        values = self._from_zero(observations)
        return ((values < 0) | (values >= self.sizes)).any(dim=1)

    def _from_zero(self, observations: Tensor) -> Tensor:
        return observations.long().reshape(len(observations), -1) - self.first


class PictureEncoder(Encoder):
    """Images: the convolutional layers of DQN (Mnih et al., 2015)."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        super().__init__()
        assert space.shape is not None
        self._last = int(np.argmin(space.shape)) == 2  # the shortest axis has the channels
        channels, *sides = (*space.shape[2:], *space.shape[:2]) if self._last else space.shape
        self.features_dim = PICTURE_FEATURES
        layers: list[nn.Module] = []
        for filters, kernel, stride in CONVOLUTIONS:
            layers += [nn.Conv2d(channels, filters, kernel, stride), nn.ReLU()]
            channels = filters
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        self.linear = nn.Linear(math.prod(_convolved(side) for side in sides) * channels, PICTURE_FEATURES)

    def forward(self, observations: Tensor) -> Tensor:
        shown = (observations.movedim(-1, -3) if self._last else observations).float() / 255
        return functional.relu(self.linear(self.convolutions(shown)))


class PartsEncoder(Encoder):
    """Dict observations: one encoder for each part, features concatenated."""

    def __init__(self, parts: Mapping[str, Encoder]) -> None:
        super().__init__()
        self._keys = tuple(parts)
        self.parts = nn.ModuleList(parts.values())
        self.features_dim = sum(part.features_dim for part in parts.values())

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(values) for part, values in self._each(observations)], dim=1)

    def see(self, observations: dict[str, Tensor]) -> None:
        for part, values in self._each(observations):
            part.see(values)

    def unseen(self, observations: dict[str, Tensor]) -> Tensor:
        return torch.stack([part.unseen(values) for part, values in self._each(observations)]).any(dim=0)

    def _each(self, observations: dict[str, Tensor]) -> list[tuple[Any, Tensor]]:
        return [(part, observations[key]) for key, part in zip(self._keys, self.parts, strict=True)]


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether observations are images: uint8 with three axes."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def _convolved(side: int) -> int:
    """The side length of an image after the convolutions."""
    for _, kernel, stride in CONVOLUTIONS:
        side = (side - kernel) // stride + 1
    return side


def make_encoder(space: spaces.Space[Any], hidden_state: int) -> Encoder:
    """The encoder for observations of a space and the hidden state appended to them."""
    if hidden_state:
        if isinstance(space, spaces.Dict) or is_image(space):
            raise TypeError(f"recurrent policies need vector observations, got {space}")
        return VectorEncoder(math.prod(space.shape or ()) + hidden_state)
    return NumberEncoder(int(space.n)) if isinstance(space, spaces.Discrete) else _part_encoder(space)


def _part_encoder(space: spaces.Space[Any]) -> Encoder:
    """The encoder of one part of the observations, or of whole observations without parts."""
    match space:
        case spaces.Dict():
            return PartsEncoder({key: _part_encoder(part) for key, part in space.spaces.items()})
        case spaces.Discrete() if space.n <= MOST_CATEGORIES:
            return CategoryEncoder([int(space.n)], [int(space.start)])
        case spaces.MultiDiscrete() if space.nvec.sum() <= MOST_CATEGORIES:
            return CategoryEncoder(space.nvec.ravel().tolist(), space.start.ravel().tolist())
        case spaces.Box() if is_image(space) and min(sorted(space.shape)[1:]) >= SMALLEST_PICTURE:
            return PictureEncoder(space)
    return VectorEncoder(math.prod(space.shape or ()))


def encoded_size(space: spaces.Space[Any], part: bool = False) -> tuple[int, int]:
    """Lower bounds of the numbers of features and weights of an encoder, before it is built."""
    match space:
        case spaces.Dict():
            parts = [encoded_size(one, part=True) for one in space.spaces.values()]
            return sum(features for features, _ in parts), sum(weights for _, weights in parts)
        case spaces.Discrete():
            count = int(space.n)
            return (count if count <= MOST_CATEGORIES else 1, 0) if part else (1, count)
        case spaces.MultiDiscrete():
            total = sum(space.nvec.ravel().tolist())
            return total if total <= MOST_CATEGORIES else space.nvec.size, 0
    shape = space.shape or ()
    sides = sorted(shape)[1:]
    if is_image(space) and min(sides) >= SMALLEST_PICTURE:
        return PICTURE_FEATURES, PICTURE_FEATURES * math.prod(_convolved(side) for side in sides)
    return math.prod(shape), math.prod(shape)


def tensors(observations: Array, device: torch.device | None = None) -> Any:
    """A batch of observations as a tensor, or a dict of tensors."""
    plain = unpack(observations)
    if isinstance(plain, dict):
        return {key: torch.from_numpy(np.array(value)).to(device) for key, value in plain.items()}
    tensor = torch.from_numpy(np.ascontiguousarray(plain))
    return (tensor.float() if tensor.dtype == torch.float64 else tensor).to(device)
