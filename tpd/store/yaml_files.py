"""Reads YAML files written by Hydra and its sweepers, as plain values only."""

from pathlib import Path
from typing import Any

import yaml

from tpd.guards.files import brief, require_file

OVERRIDES = ".hydra/overrides.yaml"
LARGEST_CONFIG, DEEPEST_CONFIG = 2**20, 50


def read_overrides(folder: Path) -> list[str]:
    """The command-line overrides, as stored by Hydra in the folder of a run."""
    path = folder / OVERRIDES
    given = read_yaml(path)
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise ValueError(f"{path}: expected a list of strings")
    return given


def read_yaml(path: Path, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The plain values of a YAML file; refused if it has aliases or is nested too deep."""
    require_file(path, LARGEST_CONFIG)
    try:
        content = path.read_bytes()
        _check_growth(content)
        return yaml.load(content, loader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: expected YAML with plain values only ({brief(error)})") from error


def _check_growth(content: bytes) -> None:
    """Refuse aliases and deep nesting, which could take forever to load, before loading."""
    depth = 0
    for event in yaml.parse(content, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_CONFIG:
            raise ValueError(f"it is nested more than {DEEPEST_CONFIG} levels deep")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are not allowed")
