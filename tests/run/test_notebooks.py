"""The example notebooks run as they are, and hold the outputs of a run."""

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
LARGEST = 300_000
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|root|tmp|usr|work|Users)/")
SECONDS_PER_CELL = 120

SLOW = (
    "explain_an_sb3_agent",  # its parts are tested one by one in tests/sb3_ext/test_callback.py
    "why_did_it_do_that",  # tests/docs runs the same steps, of docs/start.md
    "ask_a_run",  # tests/docs runs the same questions, of docs/tutorials/questions.md
)


def read(path: Path) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(path, nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]
    return notebook


def shown(notebook: NotebookNode) -> list[list[str]]:
    """What kinds of output each cell has, but for progress and warnings, which depend on the machine."""
    outputs = [
        [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
        for cell in notebook.cells
    ]
    return [
        sorted(kind for output in some for kind in output.get("data", {"stream": ""})) for some in outputs
    ]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in SLOW else [])
        for path in NOTEBOOKS
    ],
)
def test_it_runs_and_shows_what_it_holds(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    notebook = read(path)
    held = shown(notebook)
    NotebookClient(notebook, timeout=SECONDS_PER_CELL, resources={"metadata": {"path": tmp_path}}).execute()
    assert shown(notebook) == held
    assert any(held)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_it_is_small_and_names_no_machine(path: Path) -> None:
    text = path.read_text()
    assert len(text) < LARGEST
    assert MACHINE_PATH.search(re.sub(r'"image/png": ".*?"', "", text)) is None
    numbers = [cell.execution_count for cell in read(path).cells if "outputs" in cell]
    assert numbers == list(range(1, len(numbers) + 1))
