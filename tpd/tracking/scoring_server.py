"""MLflow's scoring server, kept from requests that it would answer with a bare 500, or with a stack trace.

It has no hook for that, so the functions by which it reads a request are replaced once it serves one of our
models: what is too large, too deep or of no known kind is refused with a reason.
"""

from collections.abc import Callable
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import scoring_server

from tpd.guards.files import brief

LARGEST_REQUEST, MOST_COLUMNS = 4 * 2**20, 100
GUARDED = "_guarded_by_tpd"


def guard() -> None:
    """Replace the functions that read requests, once."""
    if getattr(scoring_server, GUARDED, False):
        return
    setattr(scoring_server, GUARDED, True)
    vars(scoring_server)["_decode_json_input"] = _bounded(scoring_server._decode_json_input)
    vars(scoring_server)["_split_data_and_params"] = _bounded(scoring_server._split_data_and_params)
    vars(scoring_server)["parse_csv_input"] = _read_csv
    vars(scoring_server)["parse_parquet_input"] = _no_parquet


def _bounded(read: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of a request, which may be neither large nor deep."""

    def reading(request: str | bytes, *rest: Any) -> Any:
        _require_small(len(request))
        try:
            return read(request, *rest)
        except RecursionError as error:
            raise _refused("the JSON is nested too deeply") from error
        except ValueError as error:  # a number of thousands of digits
            raise _refused(f"this cannot be read ({brief(error)})") from error

    return reading


def _read_csv(csv_input: Any, schema: Any = None) -> pd.DataFrame:
    """A table; what its columns may hold is checked by row and column, as that of JSON."""
    text = csv_input.read()
    _require_small(len(text))
    if max(map(text.partition("\n")[0].count, ",;\t")) >= MOST_COLUMNS:  # pandas takes long to name them
        raise _refused(f"the table has more than {MOST_COLUMNS} columns")
    try:
        return pd.read_csv(type(csv_input)(text))
    except (ValueError, pd.errors.ParserError) as error:
        raise _refused(f"this is no CSV ({brief(error)})") from error


def _no_parquet(parquet_input: Any) -> pd.DataFrame:
    raise _refused("ask in JSON or CSV")


def _require_small(size: int) -> None:
    if size > LARGEST_REQUEST:
        raise _refused(f"the request has {size:,} bytes; ask with at most {LARGEST_REQUEST:,} at a time")


def _refused(reason: str) -> MlflowException:
    error: MlflowException = MlflowException.invalid_parameter_value(reason)
    return error
