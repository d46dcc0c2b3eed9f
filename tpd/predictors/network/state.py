"""The state of networks, optimizers and random generators as plain arrays, for checkpoints."""

import json
import math
from collections import ChainMap
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from tpd.core.types import Array, Rng, State
from tpd.guards.files import REAL, CheckedArrays

STEP = "step"
REMEMBERED = {"betas": {STEP, "exp_avg", "exp_avg_sq"}, "alpha": {STEP, "square_avg"}}
"""Required optimizer state of a parameter, by the setting that identifies Adam or RMSprop."""
SQUARES = (STEP, "exp_avg_sq", "max_exp_avg_sq", "square_avg")
"""State of which a root or a power is taken, so it must not be negative."""
COUNTED, DIVIDED_BY = ("count", "variance"), ("deviation", "change_deviation", "scale", "unit")
"""Statistics in a network's buffers that must be at least 0, and those that must be above 0."""
LARGEST_WEIGHT = 1e6
"""Sane training never reaches such weights, and a few layers of them overflow."""


def prefixed(prefix: str, state: State) -> dict[str, Array]:
    """The arrays with a prefix before each name."""
    return {f"{prefix}.{name}": value for name, value in state.items()}


def unprefixed(prefix: str, state: State) -> dict[str, Array]:
    """The arrays that `prefixed` named, without the prefix."""
    start = f"{prefix}."
    return {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}


def weights(module: nn.Module) -> State:
    """The parameters and buffers of a module."""
    return {name: value.numpy(force=True).copy() for name, value in module.state_dict().items()}


def put_weights(module: nn.Module, state: State) -> None:
    """Load weights into a module, after checking them."""
    check_weights(module, state)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})


def fill(module: nn.Module, state: State) -> None:
    """Load weights into a module, and freeze it."""
    put_weights(module, state)
    module.requires_grad_(False)


def check_weights(module: nn.Module, state: State) -> None:
    """Refuse weights that do not fit the module."""
    stored, due, trained = CheckedArrays(state), module.state_dict(), dict(module.named_parameters())
    for name in due.keys() | state.keys():
        if name not in due:
            raise ValueError(f"unexpected weights {name}, which the network does not have")
        largest = LARGEST_WEIGHT if name in trained else math.inf  # buffers hold statistics of any size
        value = stored.like(name, due[name].numpy(force=True), low=-largest, high=largest)
        if (kind := name.rpartition(".")[2]) in (*COUNTED, *DIVIDED_BY) and name not in trained:
            stored.check(name, value >= 0 if kind in COUNTED else value > 0)


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """The optimizer state of each parameter."""
    remembered: Mapping[int, Mapping[str, torch.Tensor | int]] = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).numpy(force=True).copy()
        for number, of_parameter in remembered.items()
        for name, value in of_parameter.items()
    }


def put_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Load an optimizer's state after checking shapes, which torch does not check."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    stored, names = CheckedArrays(state), dict.fromkeys(key.partition(".")[2] for key in state)
    due = next((names for setting, names in REMEMBERED.items() if setting in optimizer.defaults), {STEP})
    if state and not due <= names.keys():
        raise ValueError(f"the optimizer state must have {sorted(due)}, got {sorted(names)}")
    remembered: dict[int, dict[str, torch.Tensor | int]] = {}
    for number in sorted({_number(key.partition(".")[0], len(parameters)) for key in state}):
        parameter, of_parameter = parameters[number].numpy(force=True), remembered.setdefault(number, {})
        for name in names:
            key = f"{number}.{name}"
            value = stored.take(key, (), REAL) if name == STEP else stored.like(key, parameter)
            if name in SQUARES:
                stored.check(key, value >= 0)
            if name == STEP and value.dtype != np.float32 and "betas" in optimizer.defaults:
                raise ValueError(f"{key}: expected float32, got {value.dtype}")
            counted = value.dtype.kind == "i" and not value.ndim
            of_parameter[name] = int(value) if counted else torch.from_numpy(value)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": remembered})


def _number(word: str, count: int) -> int:
    """The index of a parameter, parsed from text; there are `count` parameters."""
    if not word.isdecimal() or int(word) >= count:
        raise ValueError(f"the optimizer state is of parameter {word!r}, but the networks have {count}")
    return int(word)


def training_state(networks: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer) -> State:
    """The weights of networks, by their names, and the state of their optimizer."""
    named = [prefixed(name, weights(network)) for name, network in networks.items()]
    return dict(ChainMap(*named, prefixed("optimizer", optimizer_state(optimizer))))


def put_training_state(
    networks: Mapping[str, nn.Module], optimizer: torch.optim.Optimizer, state: State
) -> None:
    """Load what `training_state` returned, after checking it."""
    for name, network in networks.items():
        put_weights(network, unprefixed(name, state))
    put_optimizer_state(optimizer, unprefixed("optimizer", state))


def generator_state(rng: Rng) -> Array:
    """The state of a random generator, as JSON text."""
    return np.array(json.dumps(rng.bit_generator.state))


def put_generator_state(rng: Rng, state: Array) -> None:
    """Load the state of a random generator."""
    rng.bit_generator.state = json.loads(str(state))
