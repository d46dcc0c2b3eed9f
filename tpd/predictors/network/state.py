"""What a network and its training have come to, as plain arrays."""

import json
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from tpd.core.types import Array, State


def prefixed(prefix: str, state: State) -> dict[str, Array]:
    """The same arrays, with the prefix before each name."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def unprefixed(prefix: str, state: State) -> dict[str, Array]:
    """The arrays that `prefixed` named, without the prefix."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}


def weights(module: nn.Module) -> State:
    """All that a module has learned."""
    return {name: value.numpy().copy() for name, value in module.state_dict().items()}


def put_weights(module: nn.Module, state: State) -> None:
    """Make a module as it was."""
    module.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """What an optimizer remembers of each parameter."""
    remembered: Mapping[int, Mapping[str, torch.Tensor | int]] = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).numpy().copy()
        for number, of_parameter in remembered.items()
        for name, value in of_parameter.items()
    }


def put_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Make an optimizer remember."""
    remembered: dict[int, dict[str, torch.Tensor | int]] = {}
    for key, value in state.items():
        number, _, name = key.partition(".")
        counted = value.dtype.kind == "i" and not value.ndim
        remembered.setdefault(int(number), {})[name] = int(value) if counted else torch.from_numpy(value)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": remembered})


def generator_state(rng: np.random.Generator) -> Array:
    """Where a random generator is."""
    return np.array(json.dumps(rng.bit_generator.state))


def put_generator_state(rng: np.random.Generator, state: Array) -> None:
    """Take a random generator there."""
    rng.bit_generator.state = json.loads(str(state))
