"""Fingerprints of settings, code and input files: equal fingerprints mean the same run."""

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SOURCES = ("tpd", "sb3_ext", "conf")
LIBRARIES = ("gymnasium", "numba", "numpy", "stable-baselines3", "torch")
"""Libraries whose versions affect the results of a run."""
TARGET, INPUTS = "_target_", ("path", "vec_normalize")
AGENT, LARGEST_AGENT_FILE = (".zip", ".yml", ".pkl"), 64 * 2**20
PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code_version() -> str:
    """A digest of the code, its configs and library versions, whether or not git tracks them."""
    digest = hashlib.sha256(json.dumps([version(name) for name in LIBRARIES]).encode())
    for root in (PACKAGE, *(PACKAGE.parent / name for name in SOURCES[1:])):
        _add(digest, root, (".py", ".yaml"))
    return digest.hexdigest()[:16]


def fingerprint(settings: Mapping[str, Any]) -> str:
    """A digest of settings, code and input files; a finished run with the same one is not repeated.

    The code is that of tpd and of the modules that the settings name, with their imports. The files are those
    that the settings name as input.
    """
    digest = hashlib.sha256(json.dumps([settings, code_version()], sort_keys=True, default=str).encode())
    for key, value in _named(settings):
        if key in INPUTS:
            _add(digest, Path(value).expanduser(), None)
        else:
            for source in _sources(re.split("[.:]", value)[0]):
                _add(digest, source, (".py",))
    return digest.hexdigest()[:16]


def digest_of(path: Path) -> str:
    """A digest of a file, or of the names and sizes of the files in a folder."""
    digest = hashlib.sha256()
    _add(digest, path, None)
    return digest.hexdigest()[:16]


def _named(settings: Any, under: str = "") -> Iterator[tuple[str, str]]:
    """All settings, at any depth, that name a module or an input file."""
    if isinstance(settings, Mapping):
        for key, value in sorted(settings.items()):
            yield from _named(value, str(key))
    elif isinstance(settings, list):
        for value in settings:
            yield from _named(value)
    elif isinstance(settings, str) and (under in (*INPUTS, TARGET) or (under == "id" and ":" in settings)):
        yield under, settings


def _sources(module: str) -> list[Path]:
    """The files of a module that a target or environment names, and of all user modules that it imports."""
    found, waiting = dict[str, Path | None](), {module}
    while waiting:
        name = waiting.pop()
        path = found[name] = _source(name)
        if path is not None:
            waiting |= _imported(path) - found.keys()
    return [path for _, path in sorted(found.items()) if path is not None]


def _imported(path: Path) -> set[str]:
    """The modules imported by a file, or by the files of a package."""
    names = set[str]()
    for each in [path] if path.is_file() else path.rglob("*.py"):
        try:
            tree = ast.parse(each.read_bytes())
        except (SyntaxError, ValueError):
            continue  # importing it will report the error
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names


def _source(top: str) -> Path | None:
    """The file or folder of a module; None if it is installed or part of tpd."""
    if top in SOURCES or top in sys.stdlib_module_names:
        return None
    spec = find_spec(top) if top.isidentifier() else None
    if spec is None or spec.origin is None or "site-packages" in Path(spec.origin).parts:
        return None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _add(digest: "hashlib._Hash", path: Path | None, suffixes: tuple[str, ...] | None) -> None:
    """Add a file, or the files of a folder, to the digest.

    Without suffixes only the sizes of files in a folder are added, except for the files of an agent (its zip,
    settings and statistics, possibly in a subfolder), whose contents are added.
    """
    if path is None or not path.exists():
        return
    # not recursive: a data folder may be /
    inside = path.rglob("*") if suffixes else [*path.glob("*"), *path.glob("*/*.yml"), *path.glob("*/*.pkl")]
    files = [path] if path.is_file() else sorted(each for each in inside if each.is_file())
    for each in files:
        small = suffixes is None and each.suffix in AGENT and each.stat().st_size <= LARGEST_AGENT_FILE
        if path.is_file() or small or (suffixes and each.suffix in suffixes):
            digest.update(str(each.relative_to(path.parent)).encode() + each.read_bytes())
        elif suffixes is None:
            digest.update(f"{each.relative_to(path)} {each.stat().st_size}".encode())


def kind_of(settings: Mapping[str, Any], seed: int) -> str:
    """A digest of the settings without the seed, at any depth."""
    return hashlib.sha256(json.dumps(_without_seed(settings, seed), sort_keys=True).encode()).hexdigest()


def _without_seed(plain: Any, seed: int) -> Any:
    if not isinstance(plain, Mapping):
        return plain
    kept = {key: value for key, value in plain.items() if (key, value) != ("seed", seed)}
    return {str(key): _without_seed(value, seed) for key, value in kept.items()}
