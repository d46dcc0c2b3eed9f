"""Commands that cannot be done are refused in one line, soon, and leave nothing behind."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import tpd_run
from tpd import __version__
from tpd.run.cli import sync
from tpd.store.fingerprints import code_version

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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["uri=nonsense"], "uri must name a store that MLflow knows"),
        (["uri=nonsense://x"], "uri must name a store that MLflow knows"),
        (["uri="], "usage: tpd-sync"),
        (["nowhere"], "usage: tpd-sync"),
    ],
)
def test_a_store_that_there_is_not_is_refused(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tpd-sync", *words])
    with pytest.raises(SystemExit, match=message):
        sync()
    assert {path.name for path in tmp_path.iterdir()} == {"outputs"}


@pytest.mark.parametrize("flags", [[], ["-m"]], ids=["run", "sweep"])
def test_a_folder_of_strangers_is_not_gone_on_in_when_its_files_lie_elsewhere(
    tmp_path: Path, flags: list[str]
) -> None:
    words = [*flags, "policy.steps=100", "tracking=none"]
    folder = tmp_path / "outputs" / ("sweeps" if flags else "runs") / "theirs"
    (folder / "0" / ".hydra").mkdir(parents=True)
    record = {"command": [*words, code_version()], "status": "running", "written_by": __version__}
    (folder / ("sweep.json" if flags else "status.json")).write_text(json.dumps(record))
    for place in (folder, folder / "0", folder / "0" / ".hydra"):
        for name in ("config.yaml", "run.log", "start.npz", "tracking.jsonl"):
            (tmp_path / name).write_text("mine")
            (place / name).symlink_to(tmp_path / name)
    done = tpd_run(tmp_path, *words, check=False)
    assert done.returncode != 0
    assert re.search(r"hydra\.(run|sweep)\.dir: .*theirs.* leads out of", done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert {path.read_text() for path in tmp_path.glob("*.*")} == {"mine"}
