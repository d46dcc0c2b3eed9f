"""Writes the tracking calls of a run to a journal in its folder, and delivers them from there.

So a store that is unreachable, slow or refusing does not stop a run: undelivered entries stay in the folder
for `tpd-sync`, and a resumed run continues in the same journal.
"""

import json
import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpd import __version__
from tpd.guards.atomic import atomic_write_text
from tpd.guards.versions import WRITTEN_BY
from tpd.tracking.backend_store import absolute
from tpd.tracking.delivery import DELIVERY_STATE, Delivery, first_line
from tpd.tracking.journal import JOURNAL
from tpd.tracking.mlflow_runs import MlflowTracking
from tpd.tracking.runs import Run, Tracking, page, serve_command

log = logging.getLogger(__name__)

SECONDS_BETWEEN_DELIVERIES = 1.0
SECONDS_OF_TROUBLE = 10.0
"""How long the end of a run waits for a store that refuses or does not answer."""
SECONDS_AT_LEAST, SHARE_AT_MOST = 60.0, 0.1
"""How long the end of a run waits for a slow store: this time or this fraction of the run's, if longer."""
LONGEST_PAUSE = 30.0


def open_run(
    tracking: Tracking,
    folder: Path,
    name: str,
    config: Mapping[str, Any],
    tags: Mapping[str, str],
    parent: str | None = None,
) -> Run:
    """Start a run, or resume the one that was started in the folder.

    Only a run with a parent may start without a reachable store, since the parent has already checked it.
    """
    if not isinstance(tracking, MlflowTracking):
        return tracking.open(name, config, tags, parent)
    folder.mkdir(parents=True, exist_ok=True)
    store = {"uri": absolute(tracking.uri), "experiment": tracking.experiment, "register": tracking.register}
    _put_aside_if_broken(folder)
    if new := not (folder / DELIVERY_STATE).exists():
        opened = {"name": name, "config": config, "tags": tags, "parent": parent}
        about = {WRITTEN_BY: __version__, "token": uuid.uuid4().hex, "store": store, "opened": opened}
        state: dict[str, Any] = {**about, "run_id": None, "delivered": 0, "refused": []}
        atomic_write_text(folder / DELIVERY_STATE, json.dumps(state))
    try:
        delivery = Delivery(folder)
        if delivery.store != store:
            raise ValueError(
                f"{folder / DELIVERY_STATE} belongs to another store, {delivery.store['uri']}: use that "
                "store (tracking.uri), or another folder"
            )
        return Outbox(delivery, needs_store=parent is None)
    except Exception:
        if new:
            (folder / DELIVERY_STATE).unlink()  # nothing has started
        raise


def run_id(folder: Path) -> str | None:
    """The run id of a folder in its store; None if it has none yet."""
    return Delivery(folder).run_id if (folder / DELIVERY_STATE).exists() else None


def forget(folder: Path) -> None:
    """Discard the tracking state of a folder, so that the next run starts anew."""
    for name in (DELIVERY_STATE, JOURNAL):
        (folder / name).unlink(missing_ok=True)


def _put_aside_if_broken(folder: Path) -> None:
    """Set an unreadable journal aside, so that the run continues as a new one in the store."""
    try:
        if (folder / DELIVERY_STATE).exists():
            deque(Delivery(folder).entries(), maxlen=0)
    except ValueError as error:
        log.warning("%s; renamed to tracking.jsonl.broken: tracking continues in a new MLflow run", error)
        for name in (DELIVERY_STATE, JOURNAL):
            if (folder / name).exists():
                (folder / name).replace(folder / f"{name}.broken")


class Outbox(Run):
    """A run that writes a journal, which a thread delivers; leaving the context ends the run."""

    def __init__(self, delivery: Delivery, *, needs_store: bool) -> None:
        self._folder = folder = delivery.folder
        self._delivery = delivery
        if needs_store:
            self._delivery.begin()
        self._told = {
            (name, entry["with"][1])
            for entry in self._delivery.entries()
            if entry["do"] == "metrics"
            for name in entry["with"][0]
        }
        _cut_broken_line(folder / JOURNAL)
        self._journal = (folder / JOURNAL).open("a")
        self._thread = DeliveryThread(self._delivery)

    @property
    def id(self) -> str | None:
        return self._delivery.run_id

    def end(self, status: str) -> None:
        self._finish("end", status, hurry=status == "KILLED")

    def abandon(self) -> None:
        self._finish("abandon", hurry=True)

    def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        new = {name: float(value) for name, value in values.items() if (name, step) not in self._told}
        if finite := {name: value for name, value in new.items() if abs(value) < float("inf")}:
            self._told |= {(name, step) for name in finite}
            self._write("metrics", finite, step, time.time_ns() // 1_000_000)

    def data(self, name: str, digest: str, rows: int, source: str | None = None) -> None:
        self._write("data", name, digest, rows, source)

    def table(self, path: Path) -> None:
        self._write("table", self._inside(path))

    def files(self, path: Path, folder: str | None = None) -> None:
        self._write("files", self._inside(path), folder)

    def model(self, folder: Path, name: str) -> None:
        self._write("model", self._inside(folder), name)

    def describe(self, parts: Sequence[str | Path]) -> None:
        told = [{"text": p} if isinstance(p, str) else {"picture": self._inside(p)} for p in parts]
        self._write("describe", *told)

    def page(self, run_id: str | None = None, file: str | None = None) -> str:
        run = self._delivery.run
        return page(run_id, file) if run is None else run.page(run_id, file)

    def serve_command(self, name: str) -> list[str]:
        return serve_command(self._delivery.tracking.uri, name)

    def _inside(self, path: Path) -> str:
        """The path relative to the folder, so that the folder can be moved."""
        return os.path.relpath(path, self._folder)

    def _write(self, do: str, *arguments: Any) -> None:
        self._journal.write(json.dumps({"do": do, "with": arguments}) + "\n")
        self._journal.flush()

    def _finish(self, do: str, *arguments: Any, hurry: bool) -> None:
        """End the run. hurry: the run was interrupted, so do not wait for a slow store."""
        self._write(do, *arguments)
        self._journal.close()
        if left := self._thread.finish(hurry):
            log.warning(
                "%d entries of %s were not delivered (%s); to deliver them later: tpd-sync %s uri=%s",
                left,
                self._folder,
                self._thread.trouble or "the store is slow",
                self._folder,
                self._delivery.tracking.uri,
            )


class DeliveryThread:
    """Delivers the journal in the background."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._began = time.monotonic()
        self._last_call = threading.Event()
        self._given_up = False
        self.trouble: str | None = None
        """The current error; None if there is none."""
        self._thread = threading.Thread(target=self._deliver, daemon=True)
        self._thread.start()

    def finish(self, hurry: bool) -> int:
        """Wait, within limits, until everything is delivered; returns the number of entries left."""
        waited_from = time.monotonic()
        patience = max(SECONDS_AT_LEAST, SHARE_AT_MOST * (waited_from - self._began))
        if hurry:
            patience = SECONDS_OF_TROUBLE
        self._last_call.set()
        while self._thread.is_alive():
            self._thread.join(0.1)
            waited = time.monotonic() - waited_from
            if waited > (SECONDS_OF_TROUBLE if self.trouble else patience):
                self._given_up = True
                break
        return self._delivery.waiting() + len(self._delivery.refused)

    def _deliver(self) -> None:
        pause = SECONDS_BETWEEN_DELIVERIES
        while not self._given_up:
            last = self._last_call.wait(pause)
            try:
                self._delivery.deliver()
                if last:
                    self._delivery.deliver_refused()
            except Exception as error:
                if self.trouble is None:
                    log.warning(
                        "the tracking store does not accept data (%s); the run continues, and its data is "
                        "kept in its folder",
                        first_line(error),
                    )
                self.trouble = first_line(error)
                pause = min(2 * pause, LONGEST_PAUSE)
                if last:
                    time.sleep(SECONDS_BETWEEN_DELIVERIES)
            else:
                refused = self._delivery.refused
                self.trouble = refused[0]["error"] if refused else None
                pause = SECONDS_BETWEEN_DELIVERIES
                if last:
                    return


def _cut_broken_line(path: Path) -> None:
    """Remove an incomplete last line, left by a writer that died."""
    if path.exists():
        text = path.read_bytes()
        os.truncate(path, text.rfind(b"\n") + 1)
