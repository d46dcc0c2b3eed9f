"""The code and the commands of Start, Tutorials and How-to run, in the order of each page.

Blocks of `python`, `pycon` (with the output that is shown) and `sh` run. Comments above a block say how:

    <!-- tests: add evaluation=none -->          to the commands of this block
    <!-- tests: replace 20_000 by 1_000 -->      here and further down the page
    <!-- tests: run tpd-run env=taxi -->         before this block
    <!-- not run: needs a cluster -->            why this block does not run
"""

import doctest
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import stores
from tests.support.commands import ROOT, fork_server

DOCS = ROOT / "docs"
PAGES = [DOCS / "start.md", *sorted(DOCS.glob("tutorials/*.md")), *sorted(DOCS.glob("how_to/*.md"))]
SCRIPTS = {"tpd-run": "run.py", "tpd-explain": "explain.py", "tpd-sync": "sync.py"}
PART = re.compile(r"^<!-- (tests|not run): ([^\n]+) -->$|^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEWEST = "outputs/runs/..."


@dataclass
class Block:
    """A block of a page, and what the comments above it say."""

    kind: str
    text: str
    added: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)
    not_run: str = ""


def blocks(page: str) -> Iterator[Block]:
    """All blocks of a page, in order, with what is to be replaced in them replaced."""
    replaced: list[tuple[str, str]] = []
    block = Block("", "")
    for mark, note, kind, text in PART.findall(page):
        if mark == "not run":
            block.not_run = note
        elif mark == "tests":
            verb, _, rest = note.partition(" ")
            if verb == "replace":
                replaced.append(tuple(rest.split(" by ", 1)))
            else:
                {"add": block.added, "run": block.before}[verb].append(rest)
        else:
            block.kind, block.text = kind, text
            for old, new in replaced:
                block.text = block.text.replace(old, new)
            yield block
            block = Block("", "")


class Reader:
    """Somebody who types what a page says, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: dict[str, object] = {"__name__": "__main__"}

    def follow(self, block: Block) -> None:
        for line in block.before:
            self.type(line)
        if block.kind == "python":
            exec(compile(block.text, "<page>", "exec"), self.names)
        elif block.kind == "pycon":
            examples = doctest.DocTestParser().get_doctest(block.text, self.names, "page", None, 0)
            said: list[str] = []
            flags = doctest.NORMALIZE_WHITESPACE
            failed, _ = doctest.DocTestRunner(optionflags=flags).run(
                examples, out=said.append, clear_globs=False
            )
            assert not failed, "".join(said)
            self.names.update(examples.globs)
        else:
            for line in block.text.splitlines():
                self.type(line, *block.added)

    def type(self, line: str, *added: str) -> None:
        """Run a command to its end."""
        words = shlex.split(" ".join([line, *added]))
        given = dict(word.split("=", 1) for word in words[: [*map(_is_command, words)].index(True)])
        command, *arguments = words[len(given) :]
        arguments = [word.replace(NEWEST, str(self.newest)) if NEWEST in word else word for word in arguments]
        environment = {**os.environ, "CI": "true", **given, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"}
        script = ROOT / "scripts" / SCRIPTS[command]
        done = fork_server().run(script, arguments, self.folder, environment, together=True)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}"

    @property
    def newest(self) -> Path:
        return max((self.folder / "outputs" / "runs").iterdir(), key=lambda run: run.stat().st_mtime)


def _is_command(word: str) -> bool:
    return word.startswith("tpd-")


@pytest.mark.no_cover
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_says_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tpd.sources.trials.SECONDS", 600.0)  # the page shows what a fast machine detects
    stores.copy(tmp_path / "mlflow.db")
    reader = Reader(tmp_path)
    for block in blocks(page.read_text()):
        if block.kind in ("python", "pycon", "sh") and not block.not_run:
            reader.follow(block)


def test_most_blocks_run_and_what_others_name_in_their_place_is_there() -> None:
    found = [block for page in PAGES for block in blocks(page.read_text())]
    assert {block.kind for block in found} <= {"python", "pycon", "sh", "text", "json", "yaml"}
    code = [block for block in found if block.kind in ("python", "pycon", "sh")]
    left_out = [block for block in code if block.not_run]
    assert len(code) > 2 * len(left_out)
    named = re.findall(r"tests/\S+\.py", " ".join(block.not_run for block in left_out))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_page_that_is_wrong_is_noticed(tmp_path: Path) -> None:
    for text in (
        "```python\nnothing_of_this_name\n```\n",
        "```pycon\n>>> 1 + 1\n3\n```\n",
        "```sh\ntpd-run emv=taxi\n```\n",
    ):
        (block,) = blocks(text)
        with pytest.raises((NameError, AssertionError)):
            Reader(tmp_path).follow(block)
