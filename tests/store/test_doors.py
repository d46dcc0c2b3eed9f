"""Nobody gets in: every door is handed every hostile input, and nothing of it runs."""

import pickle
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import good_files, hostile_files
from tests.support.doors import DOORS, HUNG, RAN, READ, TOLD, UNCLEAR, Case, Door, attempt, cases
from tests.support.hostile_files import BOMB, Spoil

DOCS = Path(__file__).resolve().parents[2] / "docs" / "results" / "doors.md"


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("doors")


DAMAGED = ("nothing in it", "noise", "half of it", "a pipe", "a link to bytes without end", "no such file")


def quickest(case: Case) -> object:
    """Damage that looks the same at every door is tried at one of them, unless there is time."""
    everywhere = case.name in DAMAGED and case.door is not DOORS[0]
    return pytest.param(case, marks=pytest.mark.slow if everywhere else [])


@pytest.mark.no_cover
@pytest.mark.parametrize("case", map(quickest, cases()), ids=str)
def test_nothing_runs_and_what_is_wrong_is_named_in_one_line(case: Case, scratch: Path) -> None:
    result = attempt(case, scratch)
    assert result.fine(case), f"{result.what}: {result.line}"


@pytest.mark.no_cover
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.kind)
def test_what_is_good_is_let_in(door: Door, scratch: Path) -> None:
    assert attempt(Case(door, "nothing", lambda folder: None), scratch).what == READ


@pytest.mark.parametrize("case", TOLD, ids=str)
def test_what_the_user_trusts_runs(case: Case, scratch: Path) -> None:
    assert attempt(case, scratch).what == RAN


def test_the_docs_count_these_inputs() -> None:
    shown = DOCS.read_text()
    tried = Counter(f"| {case.door.kind} | {case.door.reader} |" for case in cases())
    rows = shown.lower().splitlines()
    for door, number in tried.items():
        assert [row for row in rows if row.startswith(f"{door} {number} |".lower())], door
    assert f"| **all** |  | {tried.total()} |" in shown
    assert [str(case) for case in TOLD if case.name not in shown] == []


# What the table would show if something were wrong


def unpickle(folder: Path) -> None:
    pickle.loads((folder / "statistics.pkl").read_bytes())


def wait(folder: Path) -> None:
    time.sleep(60)


def stumble(folder: Path) -> None:
    raise KeyError("statistics.pkl")


def swell(folder: Path) -> None:
    bytearray(2**40)


def mutter(folder: Path) -> None:
    raise ValueError("something is wrong")


def ramble(folder: Path) -> None:
    raise ValueError("statistics.pkl\nis wrong")


@pytest.mark.parametrize(
    ("read", "found"),
    [
        (unpickle, RAN),
        (wait, HUNG),
        (stumble, UNCLEAR),
        (swell, UNCLEAR),
        (mutter, UNCLEAR),
        (ramble, UNCLEAR),
    ],
)
def test_a_bad_reader_is_found_out(read: Spoil, found: str, scratch: Path) -> None:
    door = Door("statistics", "a bad reader", good_files.statistics, read, "statistics.pkl")
    case = Case(door, "a pickle that runs code", hostile_files.with_bytes("statistics.pkl", BOMB))
    result = attempt(case, scratch, seconds=3)
    assert result.what == found
    assert not result.fine(case)


def test_to_read_what_is_wrong_is_not_fine(scratch: Path) -> None:
    door = next(door for door in DOORS if hostile_files.OUTSIDE in door.harmless)
    case = Case(door, hostile_files.OUTSIDE, door.own[hostile_files.OUTSIDE])
    assert attempt(case, scratch).fine(case)
    strict = replace(case, door=replace(door, harmless=()))
    assert not attempt(strict, scratch).fine(strict)
