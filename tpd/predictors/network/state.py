"""What a network and its training have come to, as plain arrays."""

import json
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from tpd.core.types import Array, State
from tpd.guards.files import REAL, CheckedArrays

STEP = "step"
REMEMBERED = {"betas": {STEP, "exp_avg", "exp_avg_sq"}, "alpha": {STEP, "square_avg"}}
"""What an optimizer remembers of a parameter at least, by a setting that tells Adam and RMSprop apart."""
SQUARES = (STEP, "exp_avg_sq", "max_exp_avg_sq", "square_avg")
"""Those of which a root or a power is taken."""
COUNTED, DIVIDED_BY = ("count", "variance"), ("deviation", "change_deviation", "scale", "unit")
"""Statistics that a network keeps beside its weights: from 0, and above 0."""
LARGEST_WEIGHT = 1e6
"""No training that goes well comes to such weights, and sums over some layers of them are no numbers."""


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
    check_weights(module, state)
    module.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})


def check_weights(module: nn.Module, state: State) -> None:
    """Refuse what are not the weights of such a module."""
    stored, due, trained = CheckedArrays(state), module.state_dict(), dict(module.named_parameters())
    for name in due.keys() | state.keys():
        if name not in due:
            raise ValueError(f"there are weights {name}, which the network has not")
        largest = LARGEST_WEIGHT if name in trained else math.inf  # else statistics, of whatever is observed
        value = stored.like(name, due[name].numpy(force=True), low=-largest, high=largest)
        if (kind := name.rpartition(".")[2]) in (*COUNTED, *DIVIDED_BY) and name not in trained:
            stored.check(name, value >= 0 if kind in COUNTED else value > 0)


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """What an optimizer remembers of each parameter."""
    remembered: Mapping[int, Mapping[str, torch.Tensor | int]] = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).numpy().copy()
        for number, of_parameter in remembered.items()
        for name, value in of_parameter.items()
    }


def put_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Make an optimizer remember; torch itself does not look at the shapes that it is to index."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    stored, names = CheckedArrays(state), dict.fromkeys(key.partition(".")[2] for key in state)
    due = next((names for setting, names in REMEMBERED.items() if setting in optimizer.defaults), {STEP})
    if state and not due <= names.keys():
        raise ValueError(f"an optimizer that remembers {sorted(names)}, and not {sorted(due)}")
    remembered: dict[int, dict[str, torch.Tensor | int]] = {}
    for number in sorted({_number(key.partition(".")[0], len(parameters)) for key in state}):
        parameter, of_parameter = parameters[number].numpy(force=True), remembered.setdefault(number, {})
        for name in names:
            key = f"{number}.{name}"
            value = stored.take(key, (), REAL) if name == STEP else stored.like(key, parameter)
            if name in SQUARES:
                stored.check(key, value >= 0)
            if name == STEP and value.dtype != np.float32 and "betas" in optimizer.defaults:
                raise ValueError(f"{key} is {value.dtype}, where float32 is due")
            counted = value.dtype.kind == "i" and not value.ndim
            of_parameter[name] = int(value) if counted else torch.from_numpy(value)
    optimizer.load_state_dict({**optimizer.state_dict(), "state": remembered})


def _number(word: str, count: int) -> int:
    """Which of so many parameters a word names."""
    if not word.isdecimal() or int(word) >= count:
        raise ValueError(f"there is no parameter {word!r}, but {count}")
    return int(word)


def generator_state(rng: np.random.Generator) -> Array:
    """Where a random generator is."""
    return np.array(json.dumps(rng.bit_generator.state))


def put_generator_state(rng: np.random.Generator, state: Array) -> None:
    """Take a random generator there."""
    rng.bit_generator.state = json.loads(str(state))
