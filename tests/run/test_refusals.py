"""Commands that cannot be done are refused in one line, soon, and leave nothing behind."""

import subprocess
import sys
from pathlib import Path

import pytest

STARTS = {
    "env=null": "env=null: env has to be one of its options",
    "hydra.run.dir=file/x": "hydra.run.dir: the folder of the run cannot be made",
    "training=dataset training.path=/": "training: / holds no dataset",
    "tracking.uri=sqlite:///file/x.db": "tracking: the store .* cannot be written",
    "tracking.uri=sqlite:///a?b.db": "tracking: MLflow cannot keep runs where a name has % or ?",
}


@pytest.mark.parametrize("words", STARTS)
def test_a_run_that_cannot_start_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", "from tpd.run.cli import run; run()", *words.split(), "policy.steps=100"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    start = STARTS[words].partition(" .*")[0]
    assert start in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.db"))
