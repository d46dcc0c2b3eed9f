"""`plot()` of the records in core: loads `tpd.show.drawings`, a room above, only when a plot is asked for."""

from importlib import import_module
from typing import Any


def draw(record: object, kind: str) -> Any:
    """The figure that the function named `kind` of `tpd.show.drawings` makes of a record."""
    return getattr(import_module("tpd.show.drawings"), kind)(record)
