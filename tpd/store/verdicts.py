"""Stores verdicts as arrays in the npz file of the explainer or explanation that they judge."""

import numpy as np

from tpd.core.types import Array
from tpd.core.verdicts import Verdict, Verdicts
from tpd.guards.files import WHOLE, StoredArrays

PREFIX = "verdict_"
LIMIT = "limit_"
"""Name prefix of the arrays that say what a method cannot predict at all."""


def verdict_arrays(verdicts: Verdicts | None, prefix: str = PREFIX) -> dict[str, Array]:
    """The arrays of verdicts, by the names that `read_verdicts` expects; empty for None."""
    return {} if verdicts is None else {f"{prefix}{name}": values for name, values in vars(verdicts).items()}


def read_verdicts(
    stored: StoredArrays, pairs: int, horizon: int, width: int, prefix: str = PREFIX
) -> Verdicts | None:
    """Read verdicts for this many pairs, steps and outcomes (with termination); None if there are none."""
    shapes = {"at": (pairs, horizon, width), "by": (pairs, horizon, width), "returns": (pairs, horizon)}
    if stored.optional(f"{prefix}at", shapes["at"], WHOLE) is None:
        return None
    taken = {}
    for name, shape in shapes.items():
        verdict = stored.take(f"{prefix}{name}", shape, WHOLE)
        stored.check(f"{prefix}{name}", np.isin(verdict, list(Verdict)))
        taken[name] = verdict.astype(np.int8)
    return Verdicts(**taken)
