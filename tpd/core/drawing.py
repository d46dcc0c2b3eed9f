"""Records draw themselves: pictures are made in a room above this one, loaded when one is asked for."""

from importlib import import_module
from typing import Any


def draw(record: object, kind: str) -> Any:
    """The figure that `tpd.show.drawings` makes of a record of this kind."""
    return getattr(import_module("tpd.show.drawings"), kind)(record)
