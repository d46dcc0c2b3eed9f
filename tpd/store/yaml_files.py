"""YAML that Hydra and its sweepers leave in folders: read as plain values, of which nothing is made."""

from pathlib import Path
from typing import Any

import yaml

from tpd.guards.files import brief, require_file

OVERRIDES = ".hydra/overrides.yaml"
LARGEST_CONFIG, DEEPEST_CONFIG = 2**20, 50


def read_overrides(folder: Path) -> list[str]:
    """What was asked for on the command line, as Hydra keeps it in the folder of a run."""
    path = folder / OVERRIDES
    given = read_yaml(path)
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise ValueError(f"{path}: is no list of words")
    return given


def read_yaml(path: Path, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The plain values of a YAML file, without what could swell when it is read."""
    require_file(path, LARGEST_CONFIG)
    try:
        content = path.read_bytes()
        _check_growth(content)
        return yaml.load(content, loader)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: is no YAML of plain values ({brief(error)})") from error


def _check_growth(content: bytes) -> None:
    """Refuse YAML that takes for ever to be read, before it is."""
    depth = 0
    for event in yaml.parse(content, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_CONFIG:
            raise ValueError(f"it is nested more than {DEEPEST_CONFIG} deep")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it repeats parts of itself by aliases")
