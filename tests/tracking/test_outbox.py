"""What happens to a run when the store is gone, slow or refusing, and to what was left in its folder."""

import contextlib
import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import LoggedModelOutput, Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

from tests.support import stores as stores_of_tests
from tests.support.breakable import Server
from tpd import __version__
from tpd.store.run_folders import locked
from tpd.store.tables import write_table
from tpd.tracking import backend_store, moved_stores, outbox
from tpd.tracking.backend_store import RUN_VERSION, client_of, prepare
from tpd.tracking.delivery import DELIVERY_STATE, TRIES, Delivery, below_here, deliver_all
from tpd.tracking.fetch import fetch
from tpd.tracking.journal import JOURNAL
from tpd.tracking.mlflow_runs import MlflowRun, MlflowTracking
from tpd.tracking.outbox import forget, open_run
from tpd.tracking.ui import serve


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def local(tmp_path: Path) -> MlflowTracking:
    return MlflowTracking(uri=f"sqlite:///{tmp_path}/mlflow.db", experiment="small")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "SECONDS_OF_TROUBLE", 1.0)
    monkeypatch.setattr(outbox, "SECONDS_BETWEEN_DELIVERIES", 0.1)


@pytest.fixture
def no_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """For runs that die here, in a process that lives on."""
    monkeypatch.setattr(outbox, "SECONDS_BETWEEN_DELIVERIES", 600.0)


def trusted(uri: str) -> bool:
    return True


def history(uri: str, run_id: str | None, name: str) -> list[tuple[int, float]]:
    assert run_id is not None
    return [(m.step, m.value) for m in MlflowClient(uri).get_metric_history(run_id, name)]


def steps(count: int) -> list[tuple[int, float]]:
    return [(step, float(step)) for step in range(count)]


def test_a_server_that_goes_and_comes_back_gets_every_metric_once(server: Server, tmp_path: Path) -> None:
    tracking = MlflowTracking(uri=server.uri, experiment="small")
    with open_run(tracking, tmp_path, "run", {"a": 1}, {"seed": "0"}) as run:
        for step in range(100):
            run.metrics({"loss": step}, step)
            if step == 30:
                time.sleep(1)
                server.stop()
            if step == 60:
                time.sleep(1)
        write_table(pd.DataFrame({"x": [1, 2]}), tmp_path / "table.json")
        run.table(tmp_path / "table.json")
        (tmp_path / "note.txt").write_text("kept")
        run.files(tmp_path / "note.txt")
        run.describe(["a note"])
    assert Delivery(tmp_path).waiting()
    server.start()
    assert deliver_all(tmp_path, lambda folder, told: None, trusted) == 0
    assert not Delivery(tmp_path).waiting()
    assert history(server.uri, run.id, "loss") == steps(100)
    kept = MlflowClient(server.uri).get_run(str(run.id))
    assert kept.info.status == "FINISHED"
    assert kept.data.tags["mlflow.note.content"] == "a note"
    assert {file.path for file in MlflowClient(server.uri).list_artifacts(str(run.id))} == {
        "note.txt",
        "table.json",
    }


@pytest.mark.usefixtures("no_delivery")
def test_delivery_goes_on_where_it_stopped_and_reads_nothing_twice(
    local: MlflowTracking, tmp_path: Path
) -> None:
    run = open_run(local, tmp_path, "run", {}, {})
    for step in range(20):
        run.metrics({"loss": step}, step)
    delivery = Delivery(tmp_path)
    delivery.deliver()
    delivered = (tmp_path / JOURNAL).read_bytes()
    (tmp_path / JOURNAL).write_bytes(b" " * len(delivered))  # no lines any more: they are not read again
    for step in range(20, 25):
        run.metrics({"loss": step}, step)
    assert delivery.waiting() == 5
    delivery.deliver()
    assert delivery.waiting() == 0
    assert history(local.uri, delivery.run_id, "loss") == steps(25)


def test_a_job_begins_and_ends_without_the_store_that_its_sweep_had(server: Server, tmp_path: Path) -> None:
    tracking = MlflowTracking(uri=server.uri, experiment="small")
    with open_run(tracking, tmp_path / "sweep", "sweep", {}, {}) as sweep:
        sweep.metrics({"jobs": 1})
    server.stop()
    with open_run(tracking, tmp_path / "sweep" / "job", "job", {}, {}, parent=sweep.id) as job:
        job.metrics({"loss": 0.5}, 3)
    assert job.id is None
    server.start()
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 0
    assert told == {tmp_path / "sweep" / "job": "2 entries delivered"}
    delivered = Delivery(tmp_path / "sweep" / "job").run_id
    assert history(server.uri, delivered, "loss") == [(3, 0.5)]
    run = MlflowClient(server.uri).get_run(str(delivered))
    assert run.data.tags["mlflow.parentRunId"] == sweep.id


def test_a_run_does_not_begin_without_a_store_that_never_answered(tmp_path: Path) -> None:
    tracking = MlflowTracking(uri="http://127.0.0.1:9", experiment="small")
    with pytest.raises(ConnectionError, match="does not answer"):
        open_run(tracking, tmp_path, "run", {}, {})
    assert not (tmp_path / DELIVERY_STATE).exists()


def test_an_experiment_that_many_make_at_once_is_made_once(server: Server) -> None:
    with ThreadPoolExecutor(10) as many:
        ids = set(many.map(lambda _: prepare(server.uri, "made by many"), range(10)))
    assert len(ids) == 1


@pytest.mark.real_store
def test_a_store_whose_maker_died_is_made_anew(local: MlflowTracking, tmp_path: Path) -> None:
    """At any moment: a store that is not whole is not there."""
    maker = f"from tpd.tracking.backend_store import client_of, prepare\nprepare({local.uri!r}, 'small')"
    process = subprocess.Popen([sys.executable, "-c", maker], stderr=subprocess.DEVNULL)
    unfinished = tmp_path / "mlflow.db.unfinished"
    while not unfinished.exists() or not unfinished.stat().st_size:  # the first tables are there
        assert process.poll() is None
    process.kill()
    process.wait()
    assert not (tmp_path / "mlflow.db").exists()
    with open_run(local, tmp_path, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    assert history(local.uri, run.id, "loss") == [(0, 1.0)]


@pytest.mark.usefixtures("no_delivery")
def test_a_run_that_died_goes_on_in_the_same_place(local: MlflowTracking, tmp_path: Path) -> None:
    """What was told before is not told again, and a line that was cut off is no line."""
    died = open_run(local, tmp_path, "run", {}, {})
    for step in range(10):
        died.metrics({"loss": step}, step)
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write('{"do": "metrics", "with": [{"lo')
    with open_run(local, tmp_path, "run", {}, {}) as again:
        for step in range(20):
            again.metrics({"loss": step}, step)
    assert again.id == died.id
    assert history(local.uri, again.id, "loss") == steps(20)
    assert MlflowClient(local.uri).get_run(str(again.id)).info.status == "FINISHED"


def test_a_run_whose_id_got_lost_is_found_again(local: MlflowTracking, tmp_path: Path) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    address = json.loads((tmp_path / DELIVERY_STATE).read_text())
    (tmp_path / DELIVERY_STATE).write_text(json.dumps(address | {"run_id": None, "delivered": 0}))
    assert deliver_all(tmp_path, lambda folder, told: None, trusted) == 0
    assert Delivery(tmp_path).run_id == run.id
    assert history(local.uri, run.id, "loss") == [(0, 1.0)]


def test_what_the_store_refuses_holds_nothing_else_up_and_is_offered_again(
    local: MlflowTracking, tmp_path: Path
) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as run:
        run.files(tmp_path / "absent.txt")
        run.metrics({"loss": 1})
    assert history(local.uri, run.id, "loss") == [(0, 1.0)]
    (refused,) = json.loads((tmp_path / DELIVERY_STATE).read_text())["refused"]
    assert refused["do"] == "files"
    assert "absent.txt" in refused["error"]
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 1
    assert "absent.txt" in told[tmp_path]
    (tmp_path / "absent.txt").write_text("here after all")
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 0
    assert told[tmp_path] == "1 entries delivered"
    assert [f.path for f in MlflowClient(local.uri).list_artifacts(str(run.id))] == ["absent.txt"]


def test_a_metric_that_is_refused_takes_no_other_with_it(
    local: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server that writes nothing for a while, or does not like one of many."""
    log_batch = MlflowClient.log_batch

    def refuse(client: MlflowClient, run_id: str, metrics: list[Metric] = [], **more: Any) -> None:  # noqa: B006
        if any(metric.value == 3 for metric in metrics):
            raise MlflowException("not this one", INVALID_PARAMETER_VALUE)
        log_batch(client, run_id, metrics=metrics, **more)

    monkeypatch.setattr(MlflowClient, "log_batch", refuse)
    (tmp_path / "note.txt").write_text("kept")
    with open_run(local, tmp_path, "run", {}, {}) as run:
        for step in range(5):
            run.metrics({"loss": step}, step)
        run.files(tmp_path / "note.txt")
    (refused,) = json.loads((tmp_path / DELIVERY_STATE).read_text())["refused"]
    assert refused["with"][0] == {"loss": 3.0}
    assert history(local.uri, run.id, "loss") == [(step, float(step)) for step in (0, 1, 2, 4)]
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    assert deliver_all(tmp_path, lambda folder, told: None, trusted) == 0
    assert sorted(history(local.uri, run.id, "loss")) == steps(5)


HOSTILE = {
    "a file of others": ('{"do": "files", "with": ["/etc/hostname", null]}', "points outside"),
    "the way up": ('{"do": "files", "with": ["../secret.txt", null]}', "points outside"),
    "a link": ('{"do": "files", "with": ["linked", null]}', "points outside"),
    "a picture of others": ('{"do": "describe", "with": [{"picture": "../secret.txt"}]}', "points outside"),
    "another call": ('{"do": "__class__", "with": [1, 2, 3, 4]}', "is not a valid journal entry"),
    "a program in PostScript": (
        '{"do": "describe", "with": [{"picture": "page.png"}]}',
        "cannot identify image",
    ),
    "no call": ("[1, 2]", "is not a valid journal entry"),
    "no JSON": ("{", "not valid JSON"),
    "brackets": ("[" * 100_000, "not valid JSON"),
    "a pipe": ('{"do": "files", "with": ["pipe", null]}', "is neither a file nor a folder"),
    "lists without end": (
        f'{{"do": "files", "with": [{"[[[[]]]]," * 3_000_000}1]}}',
        "a line has more than",
    ),
    "lists": (f'{{"do": "files", "with": [{"[[[[]]]]," * 100_000}1]}}', "is not a valid journal entry"),
    "a table of others": ('{"do": "table", "with": ["../secret.txt"]}', "points outside"),
    "a table in the journal": (
        '{"do": "table", "with": [{"columns": []}]}',
        "is not a valid journal entry",
    ),
    "data of no number": ('{"do": "data", "with": ["a", "b", "c", null]}', "is not a valid journal entry"),
    "no metrics": ('{"do": "metrics", "with": []}', "is not a valid journal entry"),
    "a metric without end": (
        f'{{"do": "metrics", "with": [{{"a": 1{"0" * 400}}}, 0, 1]}}',
        "is not a valid journal entry",
    ),
    "a step without end": (
        f'{{"do": "metrics", "with": [{{"a": 1}}, 1{"0" * 30}, 1]}}',
        "is not a valid journal entry",
    ),
    "a word as a metric": ('{"do": "metrics", "with": [{"a": "x"}, 0, 1]}', "is not a valid journal entry"),
    "no note": (
        '{"do": "describe", "with": [{"text": "a", "picture": "b"}]}',
        "is not a valid journal entry",
    ),
    "another end": ('{"do": "end", "with": ["DELETED"]}', "is not a valid journal entry"),
}


@pytest.mark.parametrize(("line", "told_of"), HOSTILE.values(), ids=HOSTILE)
def test_a_folder_of_strangers_sends_nothing_but_its_own(
    local: MlflowTracking, tmp_path: Path, line: str, told_of: str
) -> None:
    folder = tmp_path / "theirs"
    (tmp_path / "secret.txt").write_text("secret")
    with open_run(local, folder, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    if "pipe" in line:
        os.mkfifo(folder / "pipe")
    if "linked" in line:
        (folder / "linked").symlink_to(tmp_path / "secret.txt")
    (folder / "page.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    with (folder / JOURNAL).open("a") as journal:
        journal.write(line + "\n")
    told = dict[Path, str]()
    start = time.process_time()
    for _ in range(TRIES):
        assert deliver_all(folder, told.__setitem__, trusted) == 1
    assert time.process_time() - start < 10
    assert told_of in told[folder]
    assert len(told[folder]) < 1000
    client = MlflowClient(local.uri)
    assert client.list_artifacts(str(run.id)) == client.list_artifacts(str(run.id), "note") == []


def test_a_run_that_a_folder_did_not_start_is_left_alone(local: MlflowTracking, tmp_path: Path) -> None:
    with open_run(local, tmp_path / "mine", "mine", {}, {}) as mine:
        mine.metrics({"loss": 1})
    theirs = tmp_path / "theirs"
    with open_run(local, theirs, "theirs", {}, {}) as other:
        other.metrics({"loss": 2})
    state = json.loads((theirs / DELIVERY_STATE).read_text())
    (theirs / DELIVERY_STATE).write_text(json.dumps({**state, "run_id": mine.id, "delivered": 0}))
    told = dict[Path, str]()
    assert deliver_all(theirs, told.__setitem__, trusted) == 1
    assert "was not started from this folder" in told[theirs]
    assert history(local.uri, mine.id, "loss") == [(0, 1.0)]
    assert MlflowClient(local.uri).get_run(str(mine.id)).info.status == "FINISHED"


def test_nothing_is_registered_that_nobody_asked_for(
    local: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = list[str]()
    monkeypatch.setattr(
        MlflowRun, "_models", lambda self, name=None: [SimpleNamespace(model_uri="models:/m")]
    )
    monkeypatch.setattr(MlflowRun, "_new_version", lambda self, name, uri: registered.append(name))
    with open_run(local, tmp_path / "run", "run", {}, {}) as run:
        run.metrics({"loss": 1})
    state = json.loads((tmp_path / "run" / DELIVERY_STATE).read_text())
    state["store"]["register"] = "production"
    (tmp_path / "run" / DELIVERY_STATE).write_text(json.dumps({**state, "delivered": 0}))
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 0
    assert "not registered as production: pass register=true" in told[tmp_path / "run"]
    assert registered == []
    assert deliver_all(tmp_path, told.__setitem__, trusted, register=True) == 0
    assert "registered as production" in told[tmp_path / "run"]
    assert registered == ["production"]


def stores(folder: Path) -> dict[str, tuple[str, str]]:
    """Stores that cannot be used, and what is said of them."""
    (folder / "folder.db").mkdir()
    (folder / "text.db").write_text("this is no database, however long it is read" * 50)
    (folder / "file").touch()
    return {
        "a folder": (f"{folder}/folder.db", "must be a file that you may read and write"),
        "no database": (f"{folder}/text.db", "is not a valid SQLite database"),
        "a query": (f"{folder}/a?b/mlflow.db", r"in a path with % or \?"),
        "an escape": (f"{folder}/50%25/mlflow.db", r"in a path with % or \?"),
        "below a file": (f"{folder}/file/mlflow.db", "cannot be written"),
    }


def test_a_store_that_cannot_be_used_is_refused_at_once(tmp_path: Path) -> None:
    before = None
    for path, complaint in stores(tmp_path).values():
        before = before or sorted(tmp_path.rglob("*"))
        start = time.monotonic()
        with pytest.raises(ValueError, match=complaint):
            prepare(f"sqlite:///{path}", "small")
        with pytest.raises(ValueError):  # noqa: PT011  # where there is none, that is said
            fetch("nowhere", f"sqlite:///{path}", tmp_path / "fetched")
        assert time.monotonic() - start < 10
    assert sorted(tmp_path.rglob("*")) == before


def test_a_store_that_is_held_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_store, "SECONDS_TO_LEAVE", 0.2)
    with (
        FileLock(tmp_path / "mlflow.db.lock"),
        pytest.raises(TimeoutError, match="for another process that creates"),
    ):
        prepare(f"sqlite:///{tmp_path}/mlflow.db", "small")


def test_a_server_that_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_store, "SECONDS_TO_ANSWER", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            answer = server.accept()[0]
            with answer, contextlib.suppress(OSError):
                for _ in range(100):
                    answer.sendall(b"H")
                    time.sleep(0.2)

        threading.Thread(target=drip, daemon=True).start()
        start = time.monotonic()
        with pytest.raises(ConnectionError, match="does not answer within 1 s"):
            prepare(f"http://127.0.0.1:{server.getsockname()[1]}", "small")
        assert time.monotonic() - start < 10  # an answer takes 20 s


def test_looking_for_a_run_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no store"):
        fetch("nowhere", f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "run")
    for uri in ("nonsense://x", "foo", f"file://{tmp_path}/bar"):
        with pytest.raises(ValueError, match="uri must be a store that MLflow supports"):
            fetch("nowhere", uri, tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("no_delivery")
def test_nothing_is_sent_to_a_store_that_nobody_trusts(
    local: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = open_run(local, tmp_path, "run", {}, {})
    died.metrics({"loss": 1})
    told = dict[Path, str]()
    monkeypatch.chdir(tmp_path.parent)
    assert below_here(local.uri)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert not below_here(local.uri)
    assert not below_here("http://127.0.0.1:5000")
    assert deliver_all(tmp_path, told.__setitem__, below_here) == 1
    assert told[tmp_path] == f"not delivered: its store is not trusted; if you trust it, pass uri={local.uri}"
    other = MlflowTracking(uri=f"sqlite:///{tmp_path}/other.db", experiment="small")
    with pytest.raises(ValueError, match="belongs to another store"):
        open_run(other, tmp_path, "run", {}, {})


@pytest.mark.parametrize("address", ["{", "[]", "{}", '{"store": 1}', '{"store": {"uri": "x"}}'])
def test_an_address_that_is_none_is_named(local: MlflowTracking, tmp_path: Path, address: str) -> None:
    (tmp_path / DELIVERY_STATE).write_text(address)
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 1
    assert DELIVERY_STATE in told[tmp_path]


@pytest.mark.parametrize(
    "news",
    [
        {"delivered": -3},
        {"delivered": True},
        {"opened": {}},
        {"opened": {"name": "a", "config": {"key": "x" * 2**18}, "tags": {}, "parent": None}},
        {"opened": {"name": "a", "config": {}, "tags": {}, "parent": "any word"}},
        {"opened": {"name": "a", "config": {}, "tags": {"mlflow.parentRunId": "a"}, "parent": None}},
        {"refused": [{"do": "metrics", "with": []}]},
    ],
    ids=lambda news: str(news)[:80],
)
def test_a_state_that_no_run_has_is_refused(
    local: MlflowTracking, tmp_path: Path, news: dict[str, Any]
) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    state = json.loads((tmp_path / DELIVERY_STATE).read_text())
    (tmp_path / DELIVERY_STATE).write_text(json.dumps({**state, **news}))
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 1
    assert f"{DELIVERY_STATE}" in told[tmp_path]
    assert history(local.uri, run.id, "loss") == [(0, 1.0)]


def test_a_journal_that_sends_one_file_again_and_again_is_refused(
    local: MlflowTracking, tmp_path: Path
) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    (tmp_path / "large.bin").write_bytes(bytes(100))
    again = "".join(f'{{"do": "files", "with": ["large.bin", "copy{n}"]}}\n' for n in range(11))
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write(again)
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 1
    assert "sends large.bin 11 times" in told[tmp_path]


def test_a_folder_is_put_below_a_sweep_only_if_that_lies_above_it(
    local: MlflowTracking, tmp_path: Path
) -> None:
    with open_run(local, tmp_path / "sweep", "sweep", {}, {}) as sweep:
        sweep.metrics({"loss": 1})
    for home in ("sweep/0", "elsewhere"):
        folder = tmp_path / home
        with open_run(local, folder, "job", {}, {}, parent=sweep.id) as job:
            job.metrics({"loss": 1})
        state = json.loads((folder / DELIVERY_STATE).read_text())
        news = {"run_id": None, "token": uuid.uuid4().hex, "delivered": 0}  # as if it had never been reached
        (folder / DELIVERY_STATE).write_text(json.dumps(state | news))
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 1
    assert "entries delivered" in told[tmp_path / "sweep" / "0"]
    assert f"parent run {sweep.id} is not a sweep whose folder is above" in told[tmp_path / "elsewhere"]


def test_a_run_is_put_below_none_of_another_experiment(local: MlflowTracking, tmp_path: Path) -> None:
    other = MlflowTracking(uri=local.uri, experiment="other")
    with open_run(other, tmp_path / "theirs", "run", {}, {}) as run:
        assert run.id is not None
        with pytest.raises(ValueError, match=f"{run.id} does not belong to the experiment 'small'"):
            local.open("run", {}, {}, parent=run.id)
        with pytest.raises(MlflowException, match="not found"):
            local.open("run", {}, {}, parent="0" * 32)


def test_a_folder_does_not_say_which_version_its_run_is_of(local: MlflowTracking) -> None:
    with local.open("run", {}, {RUN_VERSION: "0.0.0"}) as run:
        assert MlflowClient(local.uri).get_run(str(run.id)).data.tags[RUN_VERSION] == __version__


@pytest.mark.parametrize("line", ['{"do": "metrics", "with": []}', '{"do": "metrics", "with": [1, 2, 3]}'])
def test_a_journal_that_no_run_writes_is_put_aside(local: MlflowTracking, tmp_path: Path, line: str) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as first:
        first.metrics({"loss": 1})
    (tmp_path / JOURNAL).write_text(f"{line}\n")
    with open_run(local, tmp_path, "run", {}, {}) as second:
        second.metrics({"loss": 2})
    assert (tmp_path / f"{JOURNAL}.broken").read_text() == f"{line}\n"
    assert second.id != first.id


@pytest.mark.parametrize("broken", [DELIVERY_STATE, JOURNAL])
def test_no_run_stops_for_what_was_broken_of_its_tracking(
    local: MlflowTracking, tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as first:
        first.metrics({"loss": 1})
    (tmp_path / broken).write_text("[\n")
    with open_run(local, tmp_path, "run", {}, {}) as second:
        second.metrics({"loss": 2})
    assert f"{tmp_path / broken}" in caplog.text
    assert (tmp_path / f"{broken}.broken").read_text() == "[\n"
    assert second.id != first.id
    assert history(local.uri, second.id, "loss") == [(0, 2.0)]


def test_a_forgotten_run_has_nothing_to_do_with_the_next(local: MlflowTracking, tmp_path: Path) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as first:
        first.metrics({"loss": 1})
    forget(tmp_path)
    with open_run(local, tmp_path, "run", {}, {}) as second:
        second.metrics({"loss": 2})
    assert second.id != first.id
    assert history(local.uri, first.id, "loss") == [(0, 1.0)]
    assert history(local.uri, second.id, "loss") == [(0, 2.0)]


def test_a_folder_of_any_name_is_found_again(local: MlflowTracking, tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "here"'
    with open_run(local, folder, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    with open_run(local, folder, "run", {}, {}) as again:
        again.metrics({"loss": 2}, 1)
    assert again.id == run.id


@pytest.mark.usefixtures("no_delivery")
def test_a_run_that_died_after_it_had_once_ended_is_told_so(local: MlflowTracking, tmp_path: Path) -> None:
    with open_run(local, tmp_path, "run", {}, {}) as run:
        run.metrics({"loss": 1})
    again = open_run(local, tmp_path, "run", {}, {})
    again.metrics({"loss": 2}, 1)
    told = dict[Path, str]()
    assert deliver_all(tmp_path, told.__setitem__, trusted) == 0
    assert "the run was interrupted" in told[tmp_path]
    assert MlflowClient(local.uri).get_run(str(run.id)).info.status == "KILLED"


def test_a_store_that_was_away_has_refused_nothing(
    local: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it was asked meanwhile, and though it is back when asked how it is."""
    flush, status, asked = MlflowRun.flush, MlflowRun.status, 0

    def away(self: MlflowRun) -> None:
        nonlocal asked
        asked += 1
        if asked <= 2 * TRIES:
            raise ConnectionError
        flush(self)

    def back_at_last(self: MlflowRun) -> str:
        if asked < 2 * TRIES:
            raise ConnectionError
        return status(self)

    monkeypatch.setattr(MlflowRun, "status", back_at_last)
    monkeypatch.setattr(outbox, "SECONDS_OF_TROUBLE", 60.0)
    with open_run(local, tmp_path, "run", {}, {}) as run:
        monkeypatch.setattr(MlflowRun, "flush", away)
        run.metrics({"loss": 1})
    assert asked > 2 * TRIES
    assert history(local.uri, run.id, "loss") == [(0, 1.0)]
    assert json.loads((tmp_path / DELIVERY_STATE).read_text())["refused"] == []


@pytest.mark.usefixtures("no_delivery")
def test_an_interrupted_run_is_ended_when_its_rest_is_delivered(
    local: MlflowTracking, tmp_path: Path
) -> None:
    died = open_run(local, tmp_path, "run", {}, {})
    died.metrics({"loss": 1})
    told = dict[Path, str]()
    with locked(tmp_path):
        deliver_all(tmp_path, told.__setitem__, trusted)
    assert told == {tmp_path: "its run is still in progress"}
    deliver_all(tmp_path, told.__setitem__, trusted)
    assert told[tmp_path].endswith("the run was interrupted")
    assert MlflowClient(local.uri).get_run(str(died.id)).info.status == "KILLED"


def test_a_clock_that_goes_backwards_loses_nothing(
    local: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    with open_run(local, tmp_path, "run", {}, {}) as run:
        for step in range(5):
            monkeypatch.setattr(time, "time_ns", lambda step=step: now - step * 10**12)
            run.metrics({"loss": step}, step)
    assert sorted(history(local.uri, run.id, "loss")) == steps(5)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of the user's, in which a stranger has no business."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "mine.txt").write_text("mine")
    return tmp_path / "victim"


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stranger's folder of a run with its store, in which something still waits; we work in it."""
    home = tmp_path / "theirs"
    home.mkdir()
    monkeypatch.chdir(home)
    folder = home / "outputs" / "run"
    with open_run(
        MlflowTracking(uri="sqlite:///mlflow.db", experiment="small"), folder, "run", {}, {}
    ) as run:
        run.metrics({"loss": 1})
    (folder / "new.txt").write_text("new")
    with (folder / JOURNAL).open("a") as journal:
        journal.write('{"do": "files", "with": ["new.txt", null]}\n{"do": "end", "with": ["FINISHED"]}\n')
    return folder


def change(store: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(store)) as database, database:
        for statement in statements:
            database.execute(statement)


PLACES = {
    "of a run": "UPDATE runs SET artifact_uri = '{}'",
    "as a URI": "UPDATE runs SET artifact_uri = 'file://{}'",
    "up from here": "UPDATE runs SET artifact_uri = 'mlruns/../../victim'",
    "on a server": "UPDATE runs SET artifact_uri = 'ftp://127.0.0.1{}'",
    "nowhere": "UPDATE runs SET artifact_uri = ''",
    "the whole folder": "UPDATE runs SET artifact_uri = '.'",
    "of an experiment": "UPDATE experiments SET artifact_location = '{}'",
}


@pytest.mark.parametrize("statement", PLACES.values(), ids=PLACES)
def test_a_store_of_strangers_does_not_say_where_files_are_written(
    strangers: Path, elsewhere: Path, statement: str
) -> None:
    change(Path("mlflow.db"), statement.format(elsewhere))
    told = dict[Path, str]()
    assert deliver_all(Path("outputs"), told.__setitem__, below_here) == 1
    assert "which is not below" in told[Path("outputs/run")]
    assert [path.name for path in elsewhere.iterdir()] == ["mine.txt"]
    assert not Path("new.txt").exists()


@pytest.mark.parametrize(
    "linked", ["new.txt", ".", "../..", "../../.."], ids=["file", "run", "all", "mlruns"]
)
def test_a_place_that_is_linked_elsewhere_is_not_written_to(
    strangers: Path, elsewhere: Path, linked: str
) -> None:
    run = MlflowClient(Delivery(strangers).tracking.uri).get_run(str(Delivery(strangers).run_id))
    place = Path(os.path.normpath(Path(run.info.artifact_uri) / linked))
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(elsewhere / "mine.txt" if linked == "new.txt" else elsewhere)
    told = dict[Path, str]()
    assert deliver_all(Path("outputs"), told.__setitem__, below_here) == 1
    assert re.search("which is not below|points outside", told[Path("outputs/run")])
    assert [path.read_text() for path in elsewhere.rglob("*")] == ["mine"]


def test_a_store_of_strangers_does_not_say_what_is_copied(strangers: Path, elsewhere: Path) -> None:
    uri, run_id = Delivery(strangers).tracking.uri, str(Delivery(strangers).run_id)
    client = MlflowClient(uri)
    experiment = client.get_run(run_id).info.experiment_id
    model = client.create_logged_model(experiment, name="explainer", source_run_id=run_id)
    client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
    change(Path("mlflow.db"), f"UPDATE logged_models SET artifact_location = '{elsewhere}'")
    with pytest.raises(PermissionError, match="victim', which is not below"):
        fetch(run_id, uri, Path("fetched"))
    assert not Path("fetched").exists()


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
CHANGED = {
    "a view": (
        ["DROP TABLE experiments", f"CREATE VIEW experiments AS {ENDLESS}"],
        "'experiments' that would run code",
    ),
    "a trigger": (
        [f"CREATE TRIGGER t BEFORE UPDATE ON runs BEGIN SELECT count(*) FROM ({ENDLESS}); END"],
        "'t' that would run code",
    ),
    "a column": (
        ["ALTER TABLE runs ADD COLUMN more TEXT AS (hex(zeroblob/**/(400000000)))"],
        "'runs' that would run code",
    ),
    "a computed column": (
        ["ALTER TABLE params DROP COLUMN value", "ALTER TABLE params ADD COLUMN value TEXT AS (key || key)"],
        "table params has no column value",
    ),
    "a pattern": (
        ["CREATE INDEX i ON runs (run_uuid) WHERE run_uuid LIKE '%a%b%c%'"],
        "'i' that would run code",
    ),
    "an index": (["CREATE INDEX i ON runs (hex(run_uuid))"], "'i' that would run code"),
    "a virtual table": (["CREATE VIRTUAL TABLE v USING fts5(x)"], "that would run code"),
    "no runs": (["DROP TABLE runs"], "table runs has no column"),
    "no column": (["ALTER TABLE params DROP COLUMN value"], "table params has no column value"),
    "another revision": (
        ["UPDATE alembic_version SET version_num = 'feedfeed'"],
        "has schema revision 'feedfeed'",
    ),
    "no revision": (["DROP TABLE alembic_version"], "has schema revision ''"),
}


@pytest.mark.parametrize(("statements", "complaint"), CHANGED.values(), ids=CHANGED)
def test_a_store_that_is_none_of_mlflow_is_refused_before_mlflow_sees_it(
    tmp_path: Path, statements: list[str], complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    stores_of_tests.copy(tmp_path / "mlflow.db")
    caplog.clear()  # the first copy of a process makes the store
    change(tmp_path / "mlflow.db", *statements)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for attempt in (
        lambda: prepare(uri, "small"),
        lambda: fetch("abc", uri, tmp_path / "fetched"),
        lambda: serve([f"store={uri}"]),
        lambda: client_of(uri),
    ):
        with pytest.raises(ValueError, match=complaint):
            attempt()
    assert caplog.text == ""


@pytest.mark.parametrize("size", [None, 2**30])
def test_a_store_whose_pages_go_in_circles_is_refused(tmp_path: Path, size: int | None) -> None:
    path = tmp_path / "mlflow.db"
    stores_of_tests.copy(path)
    change(path, *(f"INSERT INTO experiment_tags VALUES ('k{i}', '{'v' * 800}', 0)" for i in range(50)))
    with contextlib.closing(sqlite3.connect(path)) as database:
        (page_size,) = database.execute("PRAGMA page_size").fetchone()
        (root,) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'experiment_tags'"
        ).fetchone()
    bytes_ = bytearray(path.read_bytes())
    page = (root - 1) * page_size
    assert bytes_[page] == 5  # an inner page of a table
    first = int.from_bytes(bytes_[page + 12 : page + 14], "big")
    bytes_[page + 8 : page + 12] = bytes_[page + first : page + first + 4]  # its last child is its first
    path.write_bytes(bytes_)
    os.truncate(path, size or len(bytes_))  # the end is a hole, which takes no room
    with pytest.raises(ValueError, match="corrupted SQLite database"):
        prepare(f"sqlite:///{path}", "small")


@pytest.mark.parametrize("bound", ["SECONDS_FOR_TABLES", "SECONDS_FOR_PAGES"])
def test_a_store_that_cannot_be_looked_through_in_time_is_refused(
    bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlflow.db"
    stores_of_tests.copy(path)
    change(path, *(f"INSERT INTO experiment_tags VALUES ('k{i}', 'v', 0)" for i in range(500)))
    monkeypatch.setattr(backend_store, bound, 0.0)
    with pytest.raises(ValueError, match=r"mlflow.db of \d MB could not be checked within .* mlflow server"):
        client_of(f"sqlite:///{path}")


def test_what_mlflow_cannot_read_of_a_store_is_refused_in_one_line(
    strangers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any, **more: Any) -> None:
        raise TypeError("a row\nof nonsense")

    monkeypatch.setattr(MlflowClient, "get_run", fail)
    monkeypatch.setattr(MlflowClient, "search_runs", fail)
    uri = Delivery(strangers).tracking.uri
    for attempt in (lambda: fetch("abc", uri, Path("fetched")), lambda: serve([f"store={uri}"])):
        with pytest.raises(ValueError, match=r"^[^\n]*mlflow.db[^\n]*a row of nonsense$"):
            attempt()


def test_files_of_a_store_are_found_from_any_working_directory(
    local: MlflowTracking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    (tmp_path / "elsewhere").mkdir()
    (folder / "note.txt").parent.mkdir()
    (folder / "note.txt").write_text("kept")
    with open_run(local, folder, "run", {}, {}) as run:
        run.files(folder / "note.txt")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with open_run(local, folder, "run", {}, {}) as again:
        again.files(folder / "note.txt", "more")
    assert again.id == run.id
    assert {path.name for path in tmp_path.iterdir()} >= {"mlruns", "mlflow.db"}
    assert list((tmp_path / "elsewhere").iterdir()) == []
    kept = MlflowClient(local.uri).list_artifacts(str(run.id), "more")
    assert [file.path for file in kept] == ["more/note.txt"]


@pytest.mark.parametrize("copied", [False, True])
def test_a_project_folder_that_was_moved_or_copied_has_its_files(
    strangers: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    run_id, old = str(Delivery(strangers).run_id), Path.cwd()
    MlflowClient(Delivery(strangers).tracking.uri).log_text(run_id, "kept", "old.txt")
    new = old.with_name("elsewhere")
    shutil.copytree(old, new) if copied else old.rename(new)
    monkeypatch.chdir(new)
    uri = f"sqlite:///{new}/mlflow.db"
    prepare(uri, "small")
    place = MlflowClient(uri).get_run(run_id).info.artifact_uri
    assert backend_store.own_places(uri, place) == [Path(place)]
    assert Path(place).is_relative_to(new / "mlruns")
    assert (Path(place) / "old.txt").read_text() == "kept"


def test_a_store_of_strangers_moves_nothing_to_elsewhere(strangers: Path, elsewhere: Path) -> None:
    Path("mlruns").mkdir()
    (Path("mlruns") / "linked").symlink_to(elsewhere)
    for place in ("/nowhere/mlruns/linked", "/nowhere/mlruns/..", "/nowhere/mlruns", "s3://nowhere/mlruns/0"):
        change(Path("mlflow.db"), f"UPDATE experiments SET artifact_location = '{place}'")
        backend_store.require_usable("sqlite:///mlflow.db")
        with contextlib.closing(sqlite3.connect("mlflow.db")) as database:
            (found,) = database.execute("SELECT DISTINCT artifact_location FROM experiments")
        assert found == (place,)


def test_a_store_in_use_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores_of_tests.copy(tmp_path / "mlflow.db")
    monkeypatch.setattr(moved_stores, "SECONDS_TO_WAIT", 0.0)
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        database.execute("PRAGMA journal_mode=DELETE")
        database.execute("BEGIN EXCLUSIVE")
        moved_stores.follow(tmp_path / "mlflow.db")
    assert "was moved: database is locked" in caplog.text


def test_a_store_with_an_absurdly_long_value_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores_of_tests.copy(tmp_path / "mlflow.db")
    monkeypatch.setattr(backend_store, "LONGEST_VALUE", 100)
    with pytest.raises(ValueError, match="contains a value of more than"):
        client_of(f"sqlite:///{tmp_path}/mlflow.db")
