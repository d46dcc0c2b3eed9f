"""The journal of a run: its tracking calls, one per line, checked when they are read."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from tpd.guards.files import blame, brief, require_file
from tpd.guards.settings import shown

JOURNAL = "tracking.jsonl"
LARGEST_JOURNAL, LONGEST_LINE = 2**26, 2**20
"""Bytes; parsed values take up to thirty times as much memory as their text."""
PARTS = {"text", "picture"}
"""The possible parts of a note; each part is exactly one of them."""
LARGEST, LARGEST_WHOLE = sys.float_info.max, 2**63
MOST_TOGETHER = 500

Entry = dict[str, Any]


def lines(path: Path, offset: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines from this offset on, and the offset after each.

    A last line that was cut off when its writer died is skipped.
    """
    if not path.exists():
        return
    require_file(path, LARGEST_JOURNAL)
    with path.open("rb") as file:
        file.seek(offset)
        while (line := file.readline(LONGEST_LINE + 1)).endswith(b"\n"):
            offset += len(line)
            yield line, offset
    if len(line) > LONGEST_LINE:
        raise ValueError(
            f"{path}: a line has more than {LONGEST_LINE} bytes, but tpd writes only shorter lines"
        )
    with blame(path):
        line.decode()  # even a partial line must be text


def read_entry(line: bytes, where: str) -> Entry:
    try:
        entry = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not valid JSON ({brief(error)})") from error
    return check_entry(entry, where)


def check_entry(entry: Any, where: str) -> Entry:
    if not isinstance(entry, dict) or not _is_call(entry.get("do"), entry.get("with")):
        raise ValueError(f"{where}: {shown(entry)} is not a valid journal entry")
    return entry


def _is_call(do: Any, arguments: Any) -> bool:
    """Whether this is a valid tracking call."""
    match do, arguments:
        case "metrics", [dict(values), int(step), int(milliseconds)]:
            whole = all(abs(number) < LARGEST_WHOLE for number in (step, milliseconds))
            return whole and all(isinstance(v, int | float) and abs(v) <= LARGEST for v in values.values())
        case "describe", list(parts):
            return all(
                isinstance(p, dict) and [*map(type, p.values())] == [str] and p.keys() <= PARTS for p in parts
            )
        case "data", [str(), str(), int(rows), None | str()]:
            return 0 <= rows < LARGEST_WHOLE
        case ("files", [str(), None | str()]) | ("model", [str(), str()]) | ("table", [str()]):
            return True
        case "abandon", []:
            return True
        case "end", [str(status)]:
            return status in ("FINISHED", "FAILED", "KILLED")
    return False


def together(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Group consecutive metrics into batches; every other entry stays alone."""
    for is_metrics, some in groupby(entries, lambda entry: entry["do"] == "metrics"):
        while batch := list(islice(some, MOST_TOGETHER if is_metrics else 1)):
            yield batch
