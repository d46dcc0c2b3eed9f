"""Saves and loads tables of state-action pairs, checked for consistency."""

from dataclasses import fields

import numpy as np

from tpd.core.outcomes import Legend
from tpd.core.types import Array
from tpd.guards.files import REAL, WHOLE, StoredArrays
from tpd.predictors.pair_table import Edges, LimitedTable, PairTable
from tpd.predictors.replayed.posterior import CountedTable
from tpd.store.legends import check_between, check_events
from tpd.store.verdicts import LIMIT, read_verdicts, verdict_arrays

EDGE = "edge_"


def table_arrays(table: PairTable) -> dict[str, Array]:
    """The arrays of a table, by name."""
    arrays = {"pairs": table.pairs, "expected": table.expected.astype(np.float32), "support": table.visits}
    if table.into_unknown is not None:
        arrays["into_unknown"] = table.into_unknown.astype(np.float32)
    if isinstance(table, LimitedTable):
        arrays |= verdict_arrays(table.limits, LIMIT)
    if table.edges is not None:
        arrays |= {f"{EDGE}{field.name}": getattr(table.edges, field.name) for field in fields(Edges)}
    return arrays


def read_table(stored: StoredArrays, shape: tuple[int, ...], legend: Legend) -> PairTable:
    """The table for a policy [state, action] with these outcomes."""
    (num_states, num_actions), width = shape, len(legend.names) + 1
    pairs = stored.take("pairs", (None,), WHOLE)
    stored.check("pairs", (pairs >= 0) & (pairs < num_states * num_actions))
    stored.check("pairs", np.diff(pairs, prepend=-1) > 0)
    expected = stored.take("expected", (len(pairs), None, width), REAL)
    limits = read_verdicts(stored, 1, expected.shape[1], width, LIMIT)
    if limits is None:  # with limits, the table holds more than probabilities
        check_events(stored, "expected", expected[..., :-1], legend)
    visits = stored.take("support", (len(pairs),), REAL, finite=False)
    stored.check("support", visits >= 0)
    unknown = stored.optional("into_unknown", expected.shape[:2], REAL)
    if unknown is not None:
        check_between(stored, "into_unknown", unknown, 0, 1)
    if limits is not None:
        return LimitedTable(num_actions, pairs, expected, visits, unknown, limits=limits)
    edges = _edges(stored, pairs, num_states, width)
    table = PairTable if edges is None else CountedTable
    return table(num_actions, pairs, expected, visits, unknown, edges)


def _edges(stored: StoredArrays, pairs: Array, num_states: int, width: int) -> Edges | None:
    pair = stored.optional(f"{EDGE}pair", (None,), WHOLE)
    if pair is None:
        return None
    stored.check(f"{EDGE}pair", np.isin(pair, pairs))
    next_state = stored.take(f"{EDGE}next_state", pair.shape, WHOLE)
    stored.check(f"{EDGE}next_state", (next_state >= 0) & (next_state < num_states))
    outcome, continuation = (
        stored.take(f"{EDGE}{name}", (len(pair), width), REAL) for name in ("outcome", "continuation")
    )
    check_between(stored, f"{EDGE}continuation", continuation, 0, 1)
    count = stored.take(f"{EDGE}count", pair.shape, WHOLE)
    stored.check(f"{EDGE}count", count > 0)
    return Edges(pair, next_state, outcome, continuation, count)
