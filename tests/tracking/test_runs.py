"""What a run leaves in the store, and how it is told there."""

import contextlib
import json
import math
import os
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest
from mlflow import MlflowClient
from PIL import Image

from tpd.run.summary import missing_jobs
from tpd.run.sweep import varied_keys
from tpd.store.tables import write_table
from tpd.tracking import downloads, mlflow_runs, notes
from tpd.tracking.backend_store import KIND, absolute, prepare
from tpd.tracking.mlflow_runs import LONGEST_NOTE, TABLES, WIDEST_PICTURE, MlflowTracking
from tpd.tracking.runs import PROGRAM, Tracking
from tpd.tracking.ui import serve


@pytest.fixture
def tracking(tmp_path: Path) -> MlflowTracking:
    return MlflowTracking(uri=f"sqlite:///{tmp_path}/mlflow.db", experiment="small")


def note_of(tracking: MlflowTracking, run_id: str | None) -> str:
    assert run_id is not None
    return str(MlflowClient(tracking.uri).get_run(run_id).data.tags["mlflow.note.content"])


def test_pictures_of_a_note_are_kept_as_wide_as_the_page(tracking: MlflowTracking, tmp_path: Path) -> None:
    Image.new("RGB", (2000, 1000)).save(tmp_path / "a & b.png")
    with tracking.open("run", {}, {}) as run:
        run.describe(["first", tmp_path / "a & b.png", "last"])
    first, picture, last = note_of(tracking, run.id).split("\n\n")
    assert (first, last) == ("first", "last")
    assert picture == f"![a &amp; b](get-artifact?path=note%2F1_a+%26+b.png&run_uuid={run.id})"
    kept = MlflowClient(tracking.uri).download_artifacts(str(run.id), "note/1_a & b.png")
    with Image.open(kept) as shown:
        assert shown.size == (WIDEST_PICTURE, WIDEST_PICTURE // 2)


def test_a_note_ends_where_the_store_can_hold_no_more(tracking: MlflowTracking) -> None:
    with tracking.open("run", {}, {}) as run:
        run.describe(["first", "x" * LONGEST_NOTE, "last"])
    assert note_of(tracking, run.id) == "first"


def test_pictures_beyond_what_a_note_holds_are_not_opened(
    tracking: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("L", (200, 100)).save(tmp_path / "large.png")
    with tracking.open("run", {}, {}) as run:
        run.describe(["x" * (LONGEST_NOTE - 3), *[tmp_path / "absent.png"] * 60])
        monkeypatch.setattr(mlflow_runs, "MOST_PIXELS_OF_NOTE", 3 * 20_000)
        run.describe([tmp_path / "large.png"] * 3)
        with pytest.raises(ValueError, match=r"large\.png: too large, 200 x 100 pixels"):
            run.describe([tmp_path / "large.png"] * 4)


def test_experiments_are_shown_as_training(tracking: MlflowTracking) -> None:
    with tracking.open("run", {}, {}):
        found = MlflowClient(tracking.uri).get_experiment_by_name("small")
    assert found is not None
    assert found.tags[KIND] == "custom_model_development"


def test_a_table_that_is_told_again_takes_the_place_of_the_first(
    tracking: MlflowTracking, tmp_path: Path
) -> None:
    errors, more = tmp_path / "errors.json", tmp_path / "more.json"
    with tracking.open("run", {}, {}) as run:
        for value in (1 / 3, 2e-7 / 3):
            write_table(pd.DataFrame({"error": [value, math.nan]}), errors)
            run.table(errors)
        write_table(pd.DataFrame({"x": [1]}), more)
        run.table(more)
    client = MlflowClient(tracking.uri)
    kept = client.get_run(str(run.id))
    table = json.loads(Path(client.download_artifacts(kept.info.run_id, "errors.json")).read_text())
    assert table["columns"] == ["error"]
    assert table["data"] == [[2e-7 / 3], [None]]  # JSON has no NaN
    shown = json.loads(kept.data.tags[TABLES])
    assert [file["path"] for file in shown] == ["errors.json", "more.json"]


def test_data_that_are_told_again_are_listed_once(tracking: MlflowTracking) -> None:
    with tracking.open("run", {}, {PROGRAM: "train.py"}) as run:
        for _ in range(2):
            run.data("recorded", "0123456789abcdef", 500, "/data/recorded")
    kept = MlflowClient(tracking.uri).get_run(str(run.id))
    assert kept.inputs is not None
    (used,) = kept.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("recorded", "0123456789abcdef")
    assert json.loads(used.dataset.source) == {"uri": "/data/recorded"}
    assert kept.data.tags["mlflow.source.name"] == "train.py"
    assert PROGRAM not in kept.data.tags


def test_runs_name_the_command_of_the_ui() -> None:
    words = shlex.split(MlflowTracking(uri="sqlite:///mlflow.db", experiment="small").ui_command())
    assert [Path(word).name for word in words] == ["tpd-ui"]
    words = shlex.split(MlflowTracking(uri="sqlite:////a folder/mlflow.db", experiment="small").ui_command())
    assert words[1:] == ["store=sqlite:////a folder/mlflow.db"]


def test_the_ui_is_for_this_machine_alone_and_opens_at_the_newest_sweep(
    tracking: MlflowTracking, tmp_path: Path
) -> None:
    with tracking.open("old", {}, {}), tracking.open("sweep", {}, {}) as sweep:
        assert sweep.id is not None
        with tracking.open("job", {}, {}, parent=sweep.id):
            pass
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "click.py").write_text("open('ran', 'w')")  # which MLflow imports
    script = "import sys; sys.path[:1] = []; from tpd.run.cli import ui; ui()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, f"store={tracking.uri}", f"port={port}"],
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_WORKERS": "1", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith(f"open http://127.0.0.1:{port}/#/experiments/")
        assert f"/runs/{sweep.id}?workflowType=machine_learning" in said
        deadline = time.monotonic() + 60
        while not (listening := _listening(process.pid)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert listening == {("127.0.0.1", port)}
        assert not (tmp_path / "ran").exists()
        assert psutil.Process(process.pid).environ()["MLFLOW_DISABLE_TELEMETRY"] == "true"
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def _listening(pid: int) -> set[tuple[str, int]]:
    """The addresses at which a process and its children listen."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    found = list[Any]()
    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # some start and end in between
            found += each.net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["port=many"], "port must be"),
        (["port=0"], "port must be"),
        (["port=٣"], "port must be"),
        (["port=5", "port=6"], "duplicated"),
        (["store="], "store= is empty\nusage"),
        (["run=1"], "run: there is no such setting\nusage"),
        (["stor=x"], r"stor: there is no such setting; did you mean store\?"),
        (["store=sqlite:///no.db"], "there is no store"),
    ],
)
def test_a_ui_that_cannot_be_is_refused(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=said):
        serve(words)
    assert not list(tmp_path.iterdir())


def test_a_model_is_served_for_this_machine_alone(tracking: MlflowTracking) -> None:
    with tracking.open("run", {}, {}) as run:
        words = run.serve_command("explainer")
    assert words[words.index("--host") + 1] == "127.0.0.1"


def test_what_is_not_tracked_is_nowhere(tmp_path: Path) -> None:
    with Tracking().open("run", {}, {}) as run:
        run.describe(["nothing", tmp_path / "absent.png"])
    assert run.id is None


@pytest.mark.parametrize("uri", [None, "", "foo://bar"])
def test_what_is_no_store_is_refused_with_what_would_be(uri: str) -> None:
    with pytest.raises(ValueError, match=r"uri must be a store.* such as sqlite:///") as refused:
        prepare(absolute(uri), "small")
    assert repr(uri) in str(refused.value)


# Markdown


@pytest.mark.parametrize(
    ("outside", "shown"),
    [
        ("<script>alert(1)</script>", r"&lt;script&gt;alert\(1\)&lt;/script&gt;"),
        ("[a](javascript:b)", r"\[a\]\(javascript:b\)"),
        ("a | b\n# c", r"a \| b \# c"),
        ("pi_mse *now* `x`", r"pi\_mse \*now\* \`x\`"),
        ("plain words", "plain words"),
    ],
)
def test_words_from_outside_stay_words(outside: str, shown: str) -> None:
    assert notes.escaped(outside) == shown


def test_outcomes_do_not_break_their_table() -> None:
    columns = {name: [0.5] for name in ("pi_mse", "foil_mse", "pi_max", "foil_max")}
    told = notes.error_table(pd.DataFrame(columns, index=["a|b<i>"]))
    assert told.splitlines()[2] == r"| a\|b&lt;i&gt; |" + " &emsp;5.00e-01 |" * 4


def test_commands_can_be_pasted() -> None:
    words = [
        "tpd-run",
        "seed=range(10)",
        "name=a 'b' \"c\"",
        *(f"key_{k}={'x' * 20}" for k in range(9)),
    ]
    told = notes.command("To repeat it:", *words)
    assert told.startswith("To repeat it:\n\n    tpd-run 'seed=range(10)'")
    lines = told.splitlines()[2:]
    assert max(map(len, lines)) < 120
    typed = "\n".join(lines).replace("tpd-run", "printf '%s\\n'", 1)
    done = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == words[1:]


def test_what_cannot_be_told_is_a_dash() -> None:
    columns = {
        "outcome": ["a", "a"],
        "range": ["0", "all"],
        "skill": [float("nan"), 0.25],
        "actions": "policy",
    }
    told = notes.skill_table(pd.DataFrame(columns))
    assert "| a | &emsp;- | &emsp;0.250 |" in told
    assert notes.headlines(None, pd.DataFrame(columns)) == {"skill": 0.25}


def test_many_runs_are_told_in_part() -> None:
    told = notes.run_table({f"seed {k}": {"skill": k / 100} for k in range(40)})
    assert "| seed 29 | &emsp;0.29 |" in told
    assert "seed 30" not in told
    assert "and 10 more" in told


# Sweeps


def test_only_what_sets_jobs_apart_is_in_their_names() -> None:
    jobs = [["a=1", f"+b.c={b}", f"seed={seed}"] for b in (1, 2) for seed in (0, 1)]
    assert varied_keys(jobs) == ["b.c"]
    assert varied_keys(jobs[:1]) == []


def test_jobs_that_left_nothing_are_missing_too(tmp_path: Path) -> None:
    for number, status in enumerate(["finished", "failed"]):
        (tmp_path / str(number)).mkdir()
        record = f'{{"number": {number}, "status": "{status}", "error": "too hot"}}'
        (tmp_path / str(number) / "status.json").write_text(record)
    planned = {number: [f"seed={number}"] for number in range(3)}
    assert missing_jobs(tmp_path, planned) == {"seed=1": "too hot", "seed=2": "it did not finish"}


def test_a_large_or_linked_folder_is_not_copied_from_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloads, "LARGEST_COPY", 10)
    (tmp_path / "file").write_bytes(b"0" * 10)
    downloads._require_modest(tmp_path)
    (tmp_path / "more").write_bytes(b"0")
    with pytest.raises(ValueError, match="too large: at most 10 bytes"):
        downloads._require_modest(tmp_path)
    (tmp_path / "more").unlink()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(ValueError, match="is a symbolic link, so nothing is copied"):
        downloads._require_modest(tmp_path)
