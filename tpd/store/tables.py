"""Saves tables as JSON without loss of digits, and checks them when they are read."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tpd.evaluation.errors import METRICS, OVERALL
from tpd.guards.atomic import atomic_write_text
from tpd.guards.files import REAL, blame, read_json


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as JSON without loss of digits; a named index becomes a column, and NaN null."""
    named = (frame.reset_index() if frame.index.name else frame).astype(object)
    plain = named.where(named.notna(), None).to_dict(orient="split", index=False)
    atomic_write_text(path, json.dumps(plain))


def read_table(path: Path, words: Sequence[str] = (), numbers: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table that `write_table` wrote; these columns of strings and numbers must be present."""
    plain = read_json(path)
    with blame(path):
        frame = pd.DataFrame(plain["data"], columns=plain["columns"])
        if not frame.columns.is_unique or not len(frame):
            raise ValueError("it has no rows, or duplicate column names")
        for name in words:
            if not all(isinstance(word, str) for word in frame[name]):
                raise ValueError(f"the column {name} must contain strings")
        frame = frame.assign(**{str(name): math.nan for name in frame if frame[name].isna().all()})
        for name in [str(name) for name in frame if name not in words] if words else numbers:
            if frame[name].dtype.kind not in REAL:
                raise ValueError(f"the column {name} must contain numbers")
        frame[[*words, *numbers]]
    return frame


def read_errors(path: Path, by: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table with one row per outcome, or per outcome and value of the columns `by`."""
    frame = read_table(path, ["outcome"], [*METRICS, *by])
    _require_grid(path, frame, ["outcome", *by])
    return frame.set_index("outcome")


def read_forecasts(path: Path) -> pd.DataFrame:
    """Read a table with one row per outcome, range and kind of action."""
    frame = read_table(path, ["outcome", "range", "actions", "verdict"], ["base_rate", "skill"])
    _require_grid(path, frame, ["actions", "outcome", "range"])
    return frame


def _require_grid(path: Path, frame: pd.DataFrame, by: Sequence[str]) -> None:
    """Refuse a table that does not have exactly one row per combination."""
    combinations = math.prod(frame[name].nunique() for name in by)
    if frame.duplicated(list(by)).any() or len(frame) != combinations:
        each = ", ".join(by)
        raise ValueError(
            f"{path}: expected exactly one row for each of {combinations} combinations of {each}, got "
            f"{len(frame)} rows"
        )


def read_metrics(path: Path) -> dict[str, float]:
    """Read the scalar error metrics of a run, by name."""
    metrics = read_json(path)
    if not isinstance(metrics, dict) or not all(isinstance(value, float) for value in metrics.values()):
        raise ValueError(f"{path}: expected an object with a number for each name")
    if missing := [name for name in OVERALL if name not in metrics]:
        raise ValueError(f"{path}: has no {missing[0]}")
    return metrics
