"""Reads and checks legends (names, events and rewards of outcomes) from JSON."""

from collections.abc import Mapping
from typing import Any

from tpd.core.outcomes import Legend
from tpd.core.types import FloatArray
from tpd.guards.files import StoredArrays
from tpd.guards.settings import number
from tpd.store.descriptions import validated

LARGEST = 1e30  # the largest plausible reward
LEAST_LIKELY, MOST_LIKELY = -1, 2
"""Bounds of learned probabilities, which may leave [0, 1] since they are differences of value functions."""
ROUNDING = 1e-3


def read_legend(plain: Mapping[str, Any]) -> Legend:
    legend: Legend = validated(Legend, plain, "legend")
    if not legend.names or len(set(legend.names)) < len(legend.names):
        raise ValueError(f"there must be outcomes, with unique names, got {legend.names}")
    if not {*legend.partition, *legend.events} <= {*legend.names}:
        raise ValueError(f"events and partition must be among the outcomes {legend.names}")
    if len(legend.weights) != len(legend.names):
        raise ValueError(f"there are {len(legend.weights)} weights for {len(legend.names)} outcomes")
    for value in (*legend.weights, legend.reward_bound):
        if value is not None:
            number("a weight", value, -LARGEST, LARGEST)
    return legend


def check_events(stored: StoredArrays, name: str, expected: FloatArray, legend: Legend) -> None:
    """Refuse expectations [..., outcome] of events that are not probabilities."""
    events = [legend.names.index(event) for event in legend.events]
    right = (expected >= LEAST_LIKELY) & (expected <= MOST_LIKELY)
    right[..., [k for k in range(len(legend.names)) if k not in events]] = True
    stored.check(name, right)


def check_between(stored: StoredArrays, name: str, values: FloatArray, low: float, high: float) -> None:
    """Refuse values outside of [low, high], except by rounding."""
    stored.check(name, (values >= low - ROUNDING) & (values <= high + ROUNDING))
