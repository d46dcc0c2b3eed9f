"""Terms: outcomes for sentences, each event joined with its first occurrence."""

from functools import lru_cache
from typing import NamedTuple

from tpd.core.outcomes import FIRST, Legend

LARGE = 0.25
"""A penalty is large from this fraction of the largest reward on; also used for differences."""


class Term(NamedTuple):
    """An outcome in sentences; an event and its first occurrence are one term."""

    name: str
    column: int
    first: int | None
    """The column of its first occurrence, if that is explained."""
    weight: float | None
    is_event: bool
    fills: bool
    """Whether it is an event with a reward, or a member of a partition."""
    risky: bool
    """Whether it is an event with one of the largest penalties."""
    number: int
    """Its index among the terms."""


@lru_cache
def terms(legend: Legend) -> tuple[Term, ...]:
    """The outcomes, each joined with its first occurrence."""
    columns = {name: column for column, name in enumerate(legend.names)}
    rewards = [legend.weights[columns[name]] or 0.0 for name in legend.events]
    largest = max(map(abs, rewards), default=0.0)
    found = list[Term]()
    for name, column in columns.items():
        plain = name.removeprefix(FIRST) if name in legend.events else name
        if plain == name or plain not in columns:
            first = columns.get(FIRST + name) if plain == name else column
            weight, is_event = legend.weights[column], name in legend.events
            fills = is_event and (name in legend.partition or weight is not None)
            risky = is_event and (weight or 0) < 0 and abs(weight or 0) >= LARGE * largest
            found.append(Term(plain, column, first, weight, is_event, fills, risky, len(found)))
    return tuple(found)
