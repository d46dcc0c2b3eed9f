"""Fingerprints of settings, code and input files: the same work has the same fingerprint."""

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
"""What they compute is part of what a run finds."""
TARGET, INPUTS = "_target_", ("path", "vec_normalize")
AGENT, LARGEST_AGENT_FILE = (".zip", ".yml", ".pkl"), 64 * 2**20
PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code_version() -> str:
    """Another one whenever the code, its configs or the libraries change, tracked by git or not."""
    digest = hashlib.sha256(json.dumps([version(name) for name in LIBRARIES]).encode())
    for root in (PACKAGE, *(PACKAGE.parent / name for name in SOURCES[1:])):
        _add(digest, root, (".py", ".yaml"))
    return digest.hexdigest()[:16]


def fingerprint(settings: Mapping[str, Any]) -> str:
    """The same for the same settings, code and files: so that what was done need not be done again.

    The code is ours and that of the modules that the settings name, with what these import; the files are
    those to be read.
    """
    digest = hashlib.sha256(json.dumps([settings, code_version()], sort_keys=True, default=str).encode())
    for key, value in _named(settings):
        if key in INPUTS:
            _add(digest, Path(value).expanduser(), None)
        else:
            for source in _sources(re.split("[.:]", value)[0]):
                _add(digest, source, (".py",))
    return digest.hexdigest()[:16]


def _named(settings: Any, under: str = "") -> Iterator[tuple[str, str]]:
    """Settings that name a module or a file to read, wherever they are."""
    if isinstance(settings, Mapping):
        for key, value in sorted(settings.items()):
            yield from _named(value, str(key))
    elif isinstance(settings, list):
        for value in settings:
            yield from _named(value)
    elif isinstance(settings, str) and (under in (*INPUTS, TARGET) or (under == "id" and ":" in settings)):
        yield under, settings


def _sources(module: str) -> list[Path]:
    """Where a module of a target or of an environment lies, and all that it imports of the user's."""
    found, waiting = dict[str, Path | None](), {module}
    while waiting:
        name = waiting.pop()
        path = found[name] = _source(name)
        if path is not None:
            waiting |= _imported(path) - found.keys()
    return [path for _, path in sorted(found.items()) if path is not None]


def _imported(path: Path) -> set[str]:
    """The modules that a file imports, or the files of a package, which is whole by itself."""
    names = set[str]()
    for each in [path] if path.is_file() else path.rglob("*.py"):
        try:
            tree = ast.parse(each.read_bytes())
        except (SyntaxError, ValueError):
            continue  # whoever imports it will be told
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    return names


def _source(top: str) -> Path | None:
    """Where a module lies, unless it is installed or ours."""
    if top in SOURCES or top in sys.stdlib_module_names:
        return None
    spec = find_spec(top) if top.isidentifier() else None
    if spec is None or spec.origin is None or "site-packages" in Path(spec.origin).parts:
        return None
    return Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)


def _add(digest: "hashlib._Hash", path: Path | None, suffixes: tuple[str, ...] | None) -> None:
    """Take a file into account, or those of a folder.

    Without suffixes it is only how large those in it are, except for the files of an agent: its zip, and
    settings and statistics, which may lie in a folder there.
    """
    if path is None or not path.exists():
        return
    # a folder of data may be /
    inside = path.rglob("*") if suffixes else [*path.glob("*"), *path.glob("*/*.yml"), *path.glob("*/*.pkl")]
    files = [path] if path.is_file() else sorted(each for each in inside if each.is_file())
    for each in files:
        small = suffixes is None and each.suffix in AGENT and each.stat().st_size <= LARGEST_AGENT_FILE
        if path.is_file() or small or (suffixes and each.suffix in suffixes):
            digest.update(str(each.relative_to(path.parent)).encode() + each.read_bytes())
        elif suffixes is None:
            digest.update(f"{each.relative_to(path)} {each.stat().st_size}".encode())


def kind_of(settings: Mapping[str, Any], seed: int) -> str:
    """A digest of settings without the seed, wherever it is handed on to."""
    return hashlib.sha256(json.dumps(_without_seed(settings, seed), sort_keys=True).encode()).hexdigest()


def _without_seed(plain: Any, seed: int) -> Any:
    if not isinstance(plain, Mapping):
        return plain
    kept = {key: value for key, value in plain.items() if (key, value) != ("seed", seed)}
    return {str(key): _without_seed(value, seed) for key, value in kept.items()}
