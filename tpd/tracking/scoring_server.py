"""Guards MLflow's scoring server against malformed and oversized requests.

MLflow answers some requests with a bare 500 or a stack trace, and others take it minutes and gigabytes. It
has no hook, so its functions that read and answer a request are replaced once it serves one of our models.
Only the columns of a question are read from a request; what is too large, too deep or of an unknown type is
refused with a reason.
"""

import csv
import functools
import io
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import PyFuncModel, scoring_server

from tpd.guards.files import brief
from tpd.tracking.served_requests import ACTION, FOIL, MOST_ROWS, STATE, TEXT

LARGEST_REQUEST, MOST_COLUMNS = 4 * 2**20, 100
JSON, CSV = "application/json", "text/csv"
RECORDS, SPLIT, INPUTS, INSTANCES = "dataframe_records", "dataframe_split", "inputs", "instances"
PARAMS = "params"
COLUMNS = (STATE, ACTION, FOIL)
MISSING = ("", "nan", "na", "n/a", "null", "none")
LONGEST_NUMBER = 40
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"

CATCH = scoring_server._async_catch_mlflow_exception
"""MLflow's own wrapper, which turns errors into answers."""


def guard() -> None:
    """Replace the functions that read and answer requests."""
    vars(scoring_server)["invocations"] = answer
    vars(scoring_server)["_async_catch_mlflow_exception"] = _catch


def _catch(handle: Callable[[Any], Awaitable[Any]]) -> Any:
    """Wrap a request handler so that it reads a bounded number of bytes."""

    @functools.wraps(handle)
    async def bounded(request: Any) -> Any:
        size, parts = 0, list[bytes]()
        async for part in request.stream():  # read to the end, or the client would not read the answer
            size += len(part)
            if size <= LARGEST_REQUEST:
                parts.append(part)
        _require_small(size)
        request._body = b"".join(parts)  # where body() looks first
        return await handle(request)

    return CATCH(bounded)  # type: ignore[no-untyped-call]


def _require_small(size: int) -> None:
    if size > LARGEST_REQUEST:
        raise _refused(f"the request has {size:,} bytes; send at most {LARGEST_REQUEST:,} at a time")


def answer(
    data: bytes, content_type: str | None, model: PyFuncModel, input_schema: object
) -> scoring_server.InvocationsResponse:
    """The model's answer to a request."""
    _require_small(len(data))
    kind, _, parameters = (content_type or "").partition(";")
    if kind.strip() not in READERS:
        raise _refused(f"send JSON or CSV, with the content type {JSON} or {CSV}")
    if parameters.strip().lower() not in ("", "charset=utf-8"):
        raise _refused(f"the charset of the request must be utf-8, got {parameters.strip()[:80]!r}")
    name, read = READERS[kind.strip()]
    try:
        rows, params = read(data.decode())
    except RecursionError as error:
        raise _refused("the JSON is nested too deeply") from error
    except (ValueError, csv.Error) as error:
        raise _refused(f"the request is not valid {name} ({brief(error)})") from error
    written = io.StringIO()
    scoring_server.predictions_to_json(model.predict(rows, params), written)  # type: ignore[no-untyped-call]
    return scoring_server.InvocationsResponse(written.getvalue(), 200, JSON)


Request = tuple[pd.DataFrame, dict[str, Any] | None]
"""The rows of a request, and its parameters."""


def _read_json(text: str) -> Request:
    """Parse a request in one of the JSON formats that MLflow documents."""
    sent = json.loads(text)
    forms = {*sent} & {RECORDS, SPLIT, INPUTS, INSTANCES} if isinstance(sent, dict) else set()
    if len(forms) != 1:
        raise _refused(f"send an object with one of {RECORDS}, {SPLIT}, {INPUTS} and {INSTANCES}")
    (form,) = forms
    content = sent[form]
    if _width(content) > MOST_COLUMNS:
        raise _refused(f"{form}: there are more than {MOST_COLUMNS} columns")
    if form == SPLIT:
        columns = _of_split(content)
    elif isinstance(content, dict) and form != RECORDS:
        columns = {name: content[name] for name in COLUMNS if name in content}
    else:
        columns = _of_records(form, content)
    for name, values in columns.items():
        if not isinstance(values, list):
            raise _refused(f"{form}: {name} must be a list")
    if len({len(values) for values in columns.values()}) > 1:
        raise _refused(f"{form}: the columns have different lengths")
    params = sent.get(PARAMS)
    if params is not None and not isinstance(params, dict):
        raise _refused(f'{PARAMS}: expected an object such as {{"{TEXT}": true}}')
    return _frame(columns), params


def _width(content: Any) -> int:
    """Number of columns of a request; for records, the largest number."""
    if isinstance(content, list):
        return max((len(record) for record in content if isinstance(record, dict)), default=0)
    names = content.get("columns", content) if isinstance(content, dict) else ()
    return len(names) if isinstance(names, list | dict) else 0


def _of_records(form: str, records: Any) -> dict[str, list[Any]]:
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise _refused(f'{form}: expected a list of objects such as {{"{STATE}": ..., "{ACTION}": ...}}')
    given = [name for name in COLUMNS if any(name in record for record in records)]
    return {name: [record.get(name) for record in records] for name in given}


def _of_split(split: Any) -> dict[str, Any]:
    names, rows = (split.get(part) if isinstance(split, dict) else None for part in ("columns", "data"))
    if not isinstance(names, list) or not isinstance(rows, list):
        raise _refused(f"{SPLIT}: expected an object with the lists columns and data")
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(names):
            raise _refused(f"{SPLIT}: row {number} must be a list of {len(names)} values")
    _require_once(SPLIT, names)
    return {name: [row[names.index(name)] for row in rows] for name in COLUMNS if name in names}


def _read_csv(text: str) -> Request:
    """Parse a request in CSV; pandas would take minutes for some inputs."""
    lines = filter(None, csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True))
    names = [name.strip() for name in next(lines, [])]
    if not names:
        raise ValueError("the first line must name the columns")
    if len(names) > MOST_COLUMNS:
        raise _refused(f"the table has more than {MOST_COLUMNS} columns")
    _require_once("the table", names)
    places = {name: names.index(name) for name in COLUMNS if name in names}
    columns: dict[str, list[Any]] = {name: [] for name in places}
    for number, line in enumerate(lines):
        if len(line) != len(names):
            raise _refused(f"row {number} has {len(line)} values, but there are {len(names)} columns")
        if number == MOST_ROWS:
            raise _refused(f"the request has more than {MOST_ROWS:,} rows: send fewer at a time")
        for name, place in places.items():
            columns[name].append(_value(line[place].strip()))
    return _frame(columns), None


def _value(word: str) -> int | float | str | None:
    """A number, None for a missing value, or else the string itself."""
    if word.lower() in MISSING:
        return None
    if re.fullmatch(r"[+-]?[0-9]{1,18}", word):
        return int(word)
    return float(word) if len(word) <= LONGEST_NUMBER and re.fullmatch(NUMBER, word) else word


def _frame(columns: Mapping[str, list[Any]]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})


def _require_once(form: str, names: Sequence[Any]) -> None:
    if twice := [name for name in COLUMNS if names.count(name) > 1]:
        raise _refused(f"{form}: column {twice[0]} is duplicated")


READERS = {JSON: ("JSON", _read_json), CSV: ("CSV", _read_csv)}


def _refused(reason: str) -> MlflowException:
    error: MlflowException = MlflowException.invalid_parameter_value(reason)
    return error
