"""Delivers the journal in a run's folder to the tracking store.

The folder may come from somebody else: everything read from it is checked, only files inside of it are sent,
and only to a store that the user trusts.
"""

import json
import logging
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tpd.guards.atomic import atomic_write_text
from tpd.guards.versions import read_versioned
from tpd.store.run_folders import BusyError, locked
from tpd.tracking.backend_store import SQLITE, client_of
from tpd.tracking.journal import JOURNAL, LARGEST_JOURNAL, Entry, check_entry, lines, read_entry, together
from tpd.tracking.mlflow_runs import TOKEN, MlflowRun, MlflowTracking

log = logging.getLogger(__name__)

DELIVERY_STATE = "tracking.json"
TRIES = 3
"""After this many refusals by a store that answers, an entry is set aside and blocks no others."""
RUN_ID = "[0-9a-f]{32}"
SENT = ("files", "model", "table")
"""The entries that send a file or folder, which is their first argument."""
LARGEST_OPENED, MOST_OFTEN = 2**18, 10
"""Upper bounds: characters of JSON that open a run, and how often a run may send the same file."""

Trusts = Callable[[str], bool]
"""Whether a store with this URI may be delivered to."""


class Delivery:
    """The state and journal of a folder, and their run in the store.

    register: whether its explainer becomes a version of the registered model that the folder names.
    """

    def __init__(self, folder: Path, register: bool = True) -> None:
        self.folder = folder
        self._state = _read_state(folder / DELIVERY_STATE)
        self.tracking = MlflowTracking(**self._state["store"] | ({} if register else {"register": None}))
        self.run: MlflowRun | None = None
        """The run in the store; None until the store was reached."""
        self._failures = 0
        self._offset: int | None = None

    def begin(self) -> MlflowRun:
        """The run in the store, created if it does not exist yet."""
        if self.run is None:
            token = self._state["token"]
            resumed = self.tracking.resume(self._state["run_id"], token)
            self.run = resumed or self.tracking.open(**self._state["opened"], token=token)
            self._note(run_id=self.run.id)
        return self.run

    @property
    def run_id(self) -> str | None:
        """None until the run exists in the store."""
        run_id: str | None = self._state["run_id"]
        return run_id

    @property
    def parent(self) -> str | None:
        """The run id of the sweep that it belongs to, if any."""
        parent: str | None = self._state["opened"]["parent"]
        return parent

    @property
    def store(self) -> dict[str, Any]:
        """The store of the run: URI, experiment and registered model."""
        store: dict[str, Any] = self._state["store"]
        return store

    @property
    def refused(self) -> list[Entry]:
        """The entries set aside, each with the store's error."""
        refused: list[Entry] = self._state["refused"]
        return refused

    def entries(self) -> Iterator[Entry]:
        """All entries of the journal."""
        return self._read(0, 0, deque())

    def waiting(self) -> int:
        """Number of entries that were not sent to the store yet."""
        return sum(1 for _ in lines(self.folder / JOURNAL, self._delivered_until()))

    def _read(self, number: int, offset: int, ends: deque[int]) -> Iterator[Entry]:
        """The entries after the first `number`, from this offset on; `ends` gets the offset after each."""
        path = self.folder / JOURNAL
        for line, end in lines(path, offset):
            number += 1
            ends.append(end)
            yield read_entry(line, f"{path}, line {number}")

    def _delivered_until(self) -> int:
        """The offset in the journal after the delivered entries."""
        if self._offset is None:
            delivered = islice(lines(self.folder / JOURNAL), self._state["delivered"])
            self._offset = max((end for _, end in delivered), default=0)
        return self._offset

    def deliver(self) -> None:
        """Send all waiting entries in order; consecutive metrics are batched."""
        run, ends = self.begin(), deque[int]()
        for some in together(self._read(self._state["delivered"], self._delivered_until(), ends)):
            try:
                self._hand_over(run, some)
            except Exception as error:
                self._put_aside(run, some, error)
            self._failures = 0
            self._offset = [ends.popleft() for _ in some][-1]
            self._note(delivered=self._state["delivered"] + len(some))

    def deliver_refused(self) -> None:
        """Send the entries set aside once more, one by one; those refused again are kept."""
        run, left = self.begin(), list[Entry]()
        for entry in self.refused:
            try:
                self._hand_over(run, [entry])
            except Exception as error:
                left.append({**entry, "error": first_line(error)})
        self._note(refused=left)

    def _hand_over(self, run: MlflowRun, entries: Sequence[Entry]) -> None:
        for call, arguments in _calls(entries, self.folder):
            getattr(run, call)(*arguments)
        run.flush()

    def _put_aside(self, run: MlflowRun, entries: Sequence[Entry], error: Exception) -> None:
        """Set entries aside if a working store has refused them TRIES times; otherwise raise the error."""
        run.status()  # raises if the store is unreachable, which does not count as a refusal
        self._failures += 1
        if self._failures < TRIES:
            raise error
        log.warning("%s: the store refuses %s: %s", self.folder, entries[0]["do"], first_line(error))
        self._note(refused=[*self.refused, *({**entry, "error": first_line(error)} for entry in entries)])

    def _note(self, **news: Any) -> None:
        if any(self._state[key] != value for key, value in news.items()):
            self._state |= news
            atomic_write_text(self.folder / DELIVERY_STATE, json.dumps(self._state))


def _read_state(path: Path) -> dict[str, Any]:
    """The delivery state in a folder, validated."""
    due = {
        "token": (str, "a string"),
        "store": (dict, "an object"),
        "opened": (dict, "an object"),
        "run_id": (str | None, "a string or null"),
        "delivered": (int, "a whole number"),
        "refused": (list, "a list"),
    }
    state = read_versioned(path, "an object with settings")
    for name, (kind, expected) in due.items():
        if name not in state or not isinstance(state[name], kind):
            raise ValueError(f"{path}: {name} must be {expected}, got {state.get(name, 'nothing')!r:.50}")
    if not re.fullmatch(RUN_ID, state["token"]):
        raise ValueError(f"{path}: token must be 32 hex digits, got {state['token']!r:.50}")
    if isinstance(state["delivered"], bool) or not 0 <= state["delivered"] < LARGEST_JOURNAL:
        raise ValueError(
            f"{path}: 'delivered' must be the number of delivered entries, got {state['delivered']!r:.50}"
        )
    _check_opened(state["opened"], f"{path}, opened")
    if state["store"].keys() != {"uri", "experiment", "register"}:
        raise ValueError(f"{path}: store must have exactly the keys uri, experiment and register")
    for number, entry in enumerate(state["refused"]):
        check_entry(entry, f"{path}, refused {number}")
    return state


def _check_opened(opened: dict[str, Any], where: str) -> None:
    """Refuse invalid run settings; a folder may not set MLflow's own tags."""
    if len(json.dumps(opened)) > LARGEST_OPENED:
        raise ValueError(f"{where}: longer than {LARGEST_OPENED} characters")
    match opened:
        case {"name": str(), "config": dict(), "tags": dict(tags), "parent": None | str() as parent}:
            own = all(isinstance(tag, str) and not name.startswith("mlflow.") for name, tag in tags.items())
            if len(opened) == 4 and own and (parent is None or re.fullmatch(RUN_ID, parent)):
                return
    expected = "name, config, tags (strings, none named mlflow.*) and parent (a run id or null)"
    raise ValueError(f"{where}: expected {expected}, got {opened!r:.80}")


def _calls(entries: Sequence[Entry], folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """The recorded method calls of a run."""
    for entry in entries:
        arguments: list[Any] = entry["with"]
        if entry["do"] in SENT:
            arguments = [_inside(folder, arguments[0]), *arguments[1:]]
        elif entry["do"] == "describe":
            arguments = [[p["text"] if "text" in p else _inside(folder, p["picture"]) for p in arguments]]
        yield entry["do"], arguments


def _check_parent(delivery: Delivery) -> None:
    """Refuse to place a run below a sweep whose folder is not above the run's folder."""
    if (parent := delivery.parent) is None:
        return
    above = [up / DELIVERY_STATE for up in delivery.folder.resolve().parents]
    sweeps = [_read_state(state) for state in above if state.is_file()]
    tokens = [sweep["token"] for sweep in sweeps if sweep["run_id"] == parent]
    if client_of(delivery.tracking.uri).get_run(parent).data.tags.get(TOKEN) not in tokens:
        raise PermissionError(f"its parent run {parent} is not a sweep whose folder is above the run's")


def _last_entry(delivery: Delivery) -> Entry | None:
    """The last entry; refused if one file is sent again and again: a few lines would fill the store."""
    sends, entry = Counter[str](), None
    for entry in delivery.entries():
        if entry["do"] in SENT:
            sends[entry["with"][0]] += 1
    for name, count in sends.most_common(1):
        if count > MOST_OFTEN:
            raise ValueError(f"{delivery.folder / JOURNAL}: sends {name} {count} times (limit {MOST_OFTEN})")
    return entry


def _inside(folder: Path, name: str) -> Path:
    """A file or folder inside of `folder`; refused if it leads out of it."""
    path, home = folder / name, folder.resolve()
    for each in (path, *path.rglob("*")):
        if not each.resolve().is_relative_to(home):
            raise ValueError(f"{each} points outside {folder}, so it is not sent")
        if each.exists() and not each.is_file() and not each.is_dir():
            raise ValueError(f"{each} is neither a file nor a folder, so it is not sent")
    return path


def below_here(uri: str) -> bool:
    """Whether a store is an SQLite file in the working directory or below it."""
    return uri.startswith(SQLITE) and Path(uri.removeprefix(SQLITE)).resolve().is_relative_to(Path.cwd())


def deliver_all(
    folder: Path, tell: Callable[[Path, str], None], trusts: Trusts, register: bool = False
) -> int:
    """Deliver the journals in this folder and below it, and report on each; returns how many are incomplete.

    register: also register the explainers of finished runs, under the names that the folders give.
    """
    left = 0
    for state in sorted(folder.rglob(DELIVERY_STATE)):
        try:
            with locked(state.parent):
                told, done = _deliver_folder(state.parent, trusts, register)
        except BusyError:
            told, done = "its run is still in progress", True
        except Exception as error:
            told, done = f"not delivered: {first_line(error)}", False
        left += not done
        if told:
            tell(state.parent, told)
    return left


def _deliver_folder(folder: Path, trusts: Trusts, register: bool) -> tuple[str, bool]:
    """Deliver one folder; returns a message and whether everything was delivered."""
    delivery = Delivery(folder, register)
    last = _last_entry(delivery)
    waiting, refused = delivery.waiting(), len(delivery.refused)
    ended = last is not None and last["do"] in ("end", "abandon")
    model = delivery.store["register"] if last is not None and last["with"] == ["FINISHED"] else None
    if not waiting and not refused and ended and not (register and model):
        return "", True
    if not trusts(delivery.tracking.uri):
        raise PermissionError(f"its store is not trusted; if you trust it, pass uri={delivery.tracking.uri}")
    if delivery.run_id is None:
        _check_parent(delivery)
    delivery.deliver()
    delivery.deliver_refused()
    told = f"{waiting + refused - len(delivery.refused)} entries delivered"
    if not ended:
        delivery.begin().end("KILLED")  # its process is dead
        told += "; the run was interrupted"
    if model and register:
        delivery.begin().end("FINISHED")  # registers the explainer, unless that was done before
        told += f"; registered as {model}"
    elif model:
        told += f"; not registered as {model}: pass register=true to register it"
    if delivery.refused:
        told += f"; {len(delivery.refused)} refused: {delivery.refused[0]['error']}"
    return told, not delivery.refused


def first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
