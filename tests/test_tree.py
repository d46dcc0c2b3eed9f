"""The shape of the source tree: rooms, layers, sizes, and the page that describes them."""

import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {"tpd-run", "tpd-explain", "tpd-sync", "tpd-mcp"}
SCRIPT = ROOT / "scripts" / "tree.py"
tree = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_layers_are_the_rooms_and_nothing_lies_outside() -> None:
    assert sorted(tree.layers()) == sorted(tree.rooms())
    assert tree.loose_modules() == []


def test_files_and_functions_are_short() -> None:
    assert len(tree.long_functions()) <= 6, tree.long_functions()
    assert len(tree.long_files()) <= 14, tree.long_files()


def test_no_module_imports_itself_through_others() -> None:
    assert tree.longest_chain(tree.imports())[-1].startswith("tpd.")  # a cycle would have no end
    with pytest.raises(RecursionError):
        tree.longest_chain({"a": {"b"}, "b": {"a"}})


def test_contributing_names_every_module_in_its_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = {
        room: set(re.findall(r"`(\w+)/?`", cells)) for room, cells in re.findall(r"\| `(\w+)/` (.*)", page)
    }
    assert named.keys() == tree.rooms().keys()
    for room, names in named.items():
        files = [path for path in (ROOT / "tpd" / room).rglob("*.py") if path.stem != "__init__"]
        packages = {path.parent.name for path in files} - {room}
        modules = {path.stem for path in files if path.parent.name != "events"}  # one for each environment
        assert modules | packages <= names, room
        assert not {name for name in names if name.islower()} - modules - packages - COMMANDS, room


def test_the_script_prints_it() -> None:
    said = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True).stdout
    assert "loose modules: 0" in said
    assert "longest import chain: " in said
