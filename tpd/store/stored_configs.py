"""Stored configs: plain YAML, whose names are called only if tpd defines them or the user trusts them."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import yaml
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tpd.envs import Environment
from tpd.guards.files import brief, require_file

OVERRIDES = ".hydra/overrides.yaml"
OURS = ("tpd.envs", "tpd.core.outcomes")
LARGEST_CONFIG, DEEPEST_CONFIG = 2**20, 50


class UntrustedError(ValueError):
    """A stored config that wants code of strangers to run."""


def read_config(path: Path) -> DictConfig:
    """A stored config: plain YAML, without what could swell when it is read."""
    config = _read_yaml(path)
    if not isinstance(config, DictConfig):
        raise ValueError(f"{path}: is no config, but a {type(config).__name__}")
    return config


def read_overrides(folder: Path) -> list[str]:
    """What was asked for on the command line, as Hydra keeps it in the folder of a run."""
    path = folder / OVERRIDES
    given = _read_yaml(path)
    if not isinstance(given, ListConfig) or not all(isinstance(word, str) for word in given):
        raise ValueError(f"{path}: is no list of words")
    return list(given)


def _read_yaml(path: Path) -> DictConfig | ListConfig:
    require_file(path, LARGEST_CONFIG)
    try:
        _check_growth(path.read_bytes())
        return OmegaConf.load(path)
    except (ValueError, RecursionError, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ValueError(f"{path}: is no config ({brief(error)})") from error


def _check_growth(content: bytes) -> None:
    """Refuse YAML that takes for ever to be read, before it is."""
    depth = 0
    for event in yaml.parse(content, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_CONFIG:
            raise ValueError(f"it is nested more than {DEEPEST_CONFIG} deep")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it repeats parts of itself by aliases")


def make_env(
    config: DictConfig, trusted: Sequence[str] | None = (), named: Collection[str] | None = None
) -> Environment:
    """Make the environment of a stored config, if that needs no code of strangers."""
    env = instantiate_group(config, "env", trusted, named)
    if not isinstance(env, Environment):
        raise ValueError(f"the env of this run is a {type(env).__name__}, not an environment")
    with _blame("env"):
        env.check()
    return env


def imported_names(group: DictConfig) -> set[str]:
    """What making this group of the user's own config imports."""
    return set(_imported(OmegaConf.to_container(group, resolve=True)))


def instantiate_group(
    config: DictConfig,
    group: str,
    trusted: Sequence[str] | None = (),
    named: Collection[str] | None = None,
) -> Any:
    """Make a group of a stored config, if that needs no code of strangers.

    named: what the user's own config names, if it was composed just now.
    """
    stored = config.get(group)
    if not isinstance(stored, DictConfig):
        raise ValueError(f"the config of this run has no {group}, but {stored!r}")
    with _blame(group):
        plain = OmegaConf.to_container(stored, resolve=True)  # what is made is what was looked at
        for name in _imported(plain):
            if trusted is None or name in (named or ()) or _ours(name, trusted):
                continue
            advice = f"which is not of tpd; if you trust it, say so: trust=[{name.split('.')[0]}]"
            if named is not None:
                advice = "which is neither of tpd nor in the config that you run"
            raise UntrustedError(f"the {group} of this run needs {name!r}, {advice}")
        return instantiate(plain, _convert_="all")


@contextmanager
def _blame(group: str) -> Iterator[None]:
    """Say of which part of a stored config an error is."""
    try:
        yield
    except UntrustedError:
        raise
    except Exception as error:  # of whatever is made
        raise ValueError(f"the {group} of this run cannot be made: {brief(error)}") from error


def _imported(plain: Any, named: bool = False) -> Iterator[str]:
    """What making this would import; `named` where it may name an environment."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            if key == "_target_":
                yield str(value)
            yield from _imported(value, key in ("id", "env_id", "_args_"))
    elif isinstance(plain, list):
        for value in plain:
            yield from _imported(value, named)
    elif isinstance(plain, str):
        if "${" in plain:  # which would be followed once more
            raise ValueError(f"it has {plain!r} in it")
        if named and ":" in plain:  # Gymnasium imports what stands before the colon
            yield plain.split(":")[0]


def _ours(name: str, trusted: Sequence[str]) -> bool:
    """Whether the name lies in a module of ours or trusted, and so does what it stands for."""
    if not _within(name, (*OURS, *trusted)):
        return False
    found = get_object(name)  # perhaps not of the module, but what the module imported
    if isinstance(found, ModuleType):  # that registers an environment
        return _within(found.__name__, (*OURS, *trusted))
    if not isinstance(found, type | FunctionType):
        found = type(found)
    return _within(str(found.__module__), (*OURS, *trusted))


def _within(name: str, modules: Sequence[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)
