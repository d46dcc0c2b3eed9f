"""Names are shown as text, whatever they hold."""

import os
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT, fork_server
from tpd.guards.terminal import as_text, only_text

RED, TITLE, LEFT = "\x1b[31m", "\x1b]0;owned\x07", "\u202e"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain, ä, 漢, 😀, a\tb\n", "plain, ä, 漢, 😀, a\tb\n"),
        (f"{RED}red", r"\x1b[31mred"),
        (f"{TITLE}x", r"\x1b]0;owned\x07x"),
        (f"a{LEFT}b", r"a\u202eb"),
        ("\x9b2J", r"\x9b2J"),
        ("\x08\x7f", r"\x08\x7f"),
        ("forged\rline", r"forged\rline"),
    ],
)
def test_what_a_terminal_would_obey_is_shown(
    name: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert as_text(name) == shown
    with only_text("stdout", "stderr"):
        print(name)
        print(name, file=sys.stderr)
    assert capsys.readouterr() == (f"{shown}\n", f"{shown}\n")
    with pytest.raises(SystemExit) as left, only_text("stdout"):
        sys.exit(name)
    assert left.value.code == shown


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("explain", [f"run={RED}x"]),
        ("explain", ["run=x", f"{TITLE}"]),
        ("sync", [f"{RED}nowhere"]),
        ("ui", [f"store={RED}x"]),
        ("run", [f"experiment={RED}x"]),
        ("run", ["env=cliff_walking", "outcomes=cliff_walking", f"training.path={TITLE}"]),
        (
            "run",
            ["experiment=cart_pole", f"policy.path={TITLE}.zip", f"hydra.run.dir=a{RED}b", "tracking=none"],
        ),
    ],
)
def test_commands_say_what_they_were_given_as_text(command: str, words: list[str], tmp_path: Path) -> None:
    script = tmp_path / "command.py"
    script.write_text(f"from tpd.run.cli import {command}; {command}()")
    done = fork_server().run(script, words, tmp_path, {**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode != 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "\x07" not in done.stdout + done.stderr
