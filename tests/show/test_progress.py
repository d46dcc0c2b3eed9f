"""Progress: bars in a terminal, and only where work takes long."""

import io
import sys

import numpy as np
import pytest

import tpd
from tpd.api import explainer as front_door
from tpd.show.progress import ProgressBars


class Terminal(io.StringIO):
    """Keeps what is written to it."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


@pytest.mark.parametrize(
    ("wanted", "after", "shown"), [(True, 0, True), (True, 1e6, False), (False, 0, False)]
)
def test_bars_wait_until_work_takes_long(wanted: bool, after: float, shown: bool, terminal: Terminal) -> None:
    with ProgressBars(wanted, after) as bars:
        bars.counter("some work", 10)(5)
    assert ("some work" in terminal.getvalue()) == shown


@pytest.mark.parametrize("progress", [True, False])
def test_an_answer_shows_its_progress_unless_told_not_to(
    progress: bool, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_door, "PATIENCE", 1e-9)
    explainer = tpd.Explainer(lambda s: np.zeros(len(s)), env="FrozenLake-v1", horizon=3)
    explainer.why(explainer.play(seeds=[0])[0][0], rollouts=5, progress=progress)
    assert ("steps of the simulator" in terminal.getvalue()) == progress
