"""The wrappers that an RL Zoo agent was trained with: which can be applied again, and why others cannot."""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import sb3_contrib.common.wrappers as contrib_wrappers
from stable_baselines3.common import atari_wrappers

from tpd.store.descriptions import described

Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]

PACKAGES: Mapping[str, Any] = {
    "gymnasium.wrappers": gym.wrappers,
    "gym.wrappers": gym.wrappers,
    "stable_baselines3.common.atari_wrappers": atari_wrappers,
    "sb3_contrib.common.wrappers": contrib_wrappers,
}
"""Packages whose wrappers can be applied, by their names in config.yml."""
UNFIT = {
    **dict.fromkeys(("NormalizeObservation", "NormalizeReward"), "its statistics are not in the folder"),
    **dict.fromkeys(("RecordVideo", "HumanRendering", "RenderCollection"), "it only renders or records"),
    **dict.fromkeys(("TransformAction", "TransformObservation", "TransformReward"), "it needs a function"),
    "ActionMasker": "it needs a function",
    "Autoreset": "episodes would not end",
}
"""Wrappers of these packages that are not applied, with the reason."""
LARGEST_ARGUMENT = 1000
"""Upper bound on numeric arguments: stacked frames, sides of a picture."""


@dataclass(frozen=True)
class Layer:
    """A wrapper that was applied to the environment in training."""

    name: str
    """Its name in config.yml."""
    arguments: Mapping[str, Any]
    wrapper: type[gym.Wrapper[Any, Any, Any, Any]] | None
    """None if it cannot be applied."""
    reason: str = ""
    """Why it cannot be applied."""

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name

    def made(self) -> Wrapper:
        assert self.wrapper is not None
        return partial(self.wrapper, **self.arguments) if self.arguments else self.wrapper


def layers_of(config: Mapping[str, Any]) -> list[Layer]:
    """All wrappers of the environment, innermost first."""
    found = [_layer(*_named(entry)) for entry in _listed(config.get("env_wrapper"))]
    for entry in _listed(config.get("vec_env_wrapper")):
        name, arguments = _named(entry)
        found.append(Layer(name, arguments, None, "a vec_env_wrapper"))
    frames = config.get("frame_stack")
    if frames not in (None, 0, 1):
        found.append(Layer(f"frame_stack={str(frames)[:20]}", {}, None))
    return found


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]


def _named(entry: Any) -> tuple[str, Mapping[str, Any]]:
    """Name and keyword arguments of an entry: a name, or a dict with one name."""
    name, arguments = (
        next(iter(entry.items())) if isinstance(entry, dict) and len(entry) == 1 else (entry, {})
    )
    arguments = {} if arguments is None else arguments
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError(f"{str(entry)[:80]!r} is not the name of a wrapper")
    return name[:200], arguments


def _layer(name: str, arguments: Mapping[str, Any]) -> Layer:
    """Find a wrapper by name among modules that are already imported."""
    module, _, last = name.rpartition(".")
    package = next((known for known in PACKAGES if module == known or module.startswith(f"{known}.")), None)
    if package is None:
        return Layer(name, arguments, None)
    found = vars(PACKAGES[package]).get(last)
    if not isinstance(found, type) or not issubclass(found, gym.Wrapper):
        return Layer(name, arguments, None, "there is no wrapper of this name")
    if last in UNFIT:
        return Layer(name, arguments, None, UNFIT[last])
    try:
        keywords = _modest(described(arguments))
        inspect.signature(found).bind(None, **keywords)
    except (ValueError, TypeError) as error:
        return Layer(name, arguments, None, str(error)[:120])
    return Layer(name, keywords, found)


def _modest(keywords: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments; refused if a number would take absurd memory (time limits are exempt)."""
    for key, value in keywords.items():
        values = value if isinstance(value, list) else [value]
        large = any(isinstance(v, int | float) and abs(v) > LARGEST_ARGUMENT for v in values)
        if large and key != "max_episode_steps":
            raise ValueError(f"{key} is more than {LARGEST_ARGUMENT}")
    return keywords


def class_of(wrapper: Any) -> Any:
    """The class or function that makes a wrapper."""
    while isinstance(wrapper, partial):
        wrapper = wrapper.func
    return wrapper


def is_same(layer: Layer, wrapper: Any) -> bool:
    """Whether a layer is this wrapper; unknown ones are compared by name."""
    if layer.wrapper is not None:
        return layer.wrapper is wrapper
    return layer.name == f"{getattr(wrapper, '__module__', '')}.{getattr(wrapper, '__qualname__', '')}"


def typed(layer: Layer) -> str:
    """A wrapper as command-line syntax."""
    assert layer.wrapper is not None
    target = f"{layer.wrapper.__module__}.{layer.wrapper.__qualname__}"
    words = [f"_target_: {target}", "_partial_: true"]
    return f"{{{', '.join(words + [f'{key}: {word(value)}' for key, value in layer.arguments.items()])}}}"


def word(value: Any) -> str:
    """A plain value as command-line syntax."""
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)
