"""Verdicts on disk, among the arrays of what they judge."""

import numpy as np

from tpd.core.types import Array
from tpd.core.verdicts import Verdict, Verdicts
from tpd.guards.files import WHOLE, StoredArrays

PREFIX = "verdict_"
LIMIT = "limit_"
"""Before the names of what a method cannot tell at all."""


def verdict_arrays(verdicts: Verdicts | None, prefix: str = PREFIX) -> dict[str, Array]:
    """By the names that `read_verdicts` looks for; nothing where there are none."""
    return {} if verdicts is None else {f"{prefix}{name}": values for name, values in vars(verdicts).items()}


def read_verdicts(
    stored: StoredArrays, pairs: int, horizon: int, width: int, prefix: str = PREFIX
) -> Verdicts | None:
    """What was stored of so many pairs, steps and outcomes, termination included; None if nothing was."""
    shapes = {"at": (pairs, horizon, width), "by": (pairs, horizon, width), "returns": (pairs, horizon)}
    if stored.take(f"{prefix}at", shapes["at"], WHOLE, optional=True) is None:
        return None
    taken = {}
    for name, shape in shapes.items():
        verdict = stored.take(f"{prefix}{name}", shape, WHOLE)
        stored.check(f"{prefix}{name}", np.isin(verdict, list(Verdict)))
        taken[name] = verdict.astype(np.int8)
    return Verdicts(**taken)
