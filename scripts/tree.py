"""Print the shape of the source tree: rooms, layers, import chains, long files and long functions.

Usage: python scripts/tree.py
"""

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("tpd", "sb3_ext", "scripts")
LONG_FILE, LONG_FUNCTION = 300, 50


def rooms() -> dict[str, int]:
    """The packages of tpd, and the number of modules in each."""
    found = (path for path in sorted((ROOT / "tpd").iterdir()) if (path / "__init__.py").exists())
    return {
        path.name: len([file for file in path.rglob("*.py") if file.name != "__init__.py"]) for path in found
    }


def loose_modules() -> list[str]:
    """Modules outside of any room."""
    return sorted(path.name for path in (ROOT / "tpd").glob("*.py") if path.name != "__init__.py")


def layers() -> list[str]:
    """The layers that import-linter checks, from highest to lowest."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(list(contract["layers"]) for contract in contracts if contract["type"] == "layers")


def imports() -> dict[str, set[str]]:
    """The modules of tpd, and the modules that each imports anywhere."""
    files = {_module(path): path for path in sorted((ROOT / "tpd").rglob("*.py"))}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        for node in _run(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in files:
                named = {f"{node.module}.{alias.name}" for alias in node.names} & files.keys()
                graph[name] |= named or {node.module}  # a module of a package, or a name in a module
    return graph


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if not (
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        ):
            yield node
            yield from _run(node)


def longest_chain(graph: dict[str, set[str]]) -> list[str]:
    """The longest chain of modules in which each imports the next."""

    @cache
    def chain(module: str) -> tuple[str, ...]:
        chains: list[tuple[str, ...]] = [chain(other) for other in sorted(graph[module])]
        longest = max(chains, key=len, default=())
        return (module, *longest)

    chains: list[tuple[str, ...]] = [chain(module) for module in sorted(graph)]
    longest = max(chains, key=len)
    return list(longest)


def long_files() -> dict[str, int]:
    """Files of more than 300 lines."""
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in _sources()}
    return {name: size for name, size in sizes.items() if size > LONG_FILE}


def long_functions() -> dict[str, int]:
    """Functions of more than 50 lines, from `def` to the last line."""
    found = {}
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONG_FUNCTION:
                    found[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    return found


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def _module(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def main() -> None:
    """Print everything."""
    chain = longest_chain(imports())
    print("rooms:", ", ".join(f"{room} ({count})" for room, count in rooms().items()))
    print("layers:", " > ".join(layers()))
    print("loose modules:", len(loose_modules()), *loose_modules())
    print(f"longest import chain: {len(chain)} modules:", " > ".join(chain))
    for title, found in (
        ("functions over 50 lines", long_functions()),
        ("files over 300 lines", long_files()),
    ):
        print(f"{title}: {len(found)}")
        for name, lines in sorted(found.items(), key=lambda item: -item[1]):
            print(f"    {lines:4d} {name}")


if __name__ == "__main__":
    main()
