"""The rules of FuelTaxi: its states, and the possible results of each action with their events."""

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import NamedTuple

import numpy as np

from tpd.core.types import IntArray
from tpd.envs.tabular import TabularModel

SIZE = 5
FULL_TANK = 20
REFUEL_AMOUNT = 2
TRAFFIC_PROBABILITY = 0.1
NUM_STATES = SIZE * SIZE * (FULL_TANK + 1) * 2

PASSENGER, DESTINATION, STATION = (4, 0), (0, 0), (0, 4)
WALLS_EAST_OF = frozenset({(0, 1), (1, 1), (3, 0), (4, 0), (3, 2), (4, 2)})


class Action(IntEnum):
    SOUTH = 0
    NORTH = 1
    EAST = 2
    WEST = 3
    PICKUP = 4
    DROPOFF = 5
    REFUEL = 6


class Event(IntEnum):
    DROPOFF = 0
    PICKUP = 1
    REFUEL = 2
    FAILURE = 3
    TRAFFIC = 4
    MOVE = 5
    INVALID = 6


REWARDS = {
    Event.DROPOFF: 20.0,
    Event.PICKUP: 10.0,
    Event.REFUEL: -1.0,
    Event.FAILURE: -100.0,
    Event.TRAFFIC: -1.0,
    Event.MOVE: -1.0,
    Event.INVALID: -100.0,
}
TERMINAL = frozenset({Event.DROPOFF, Event.FAILURE})
ACTION_NAMES = tuple(action.name.lower() for action in Action)
EVENT_NAMES = tuple(event.name.lower() for event in Event)


class State(NamedTuple):
    row: int
    col: int
    fuel: int
    passenger: bool
    """Whether the passenger is on board."""


def encode(row: int, col: int, fuel: int, passenger: bool) -> int:
    """The number of a state."""
    known = row in range(SIZE) and col in range(SIZE) and fuel in range(FULL_TANK + 1)
    if not known or passenger not in (False, True):
        raise ValueError(
            f"row and col must be 0 to {SIZE - 1}, fuel 0 to {FULL_TANK} and passenger true or false, "
            f"got row={row}, col={col}, fuel={fuel}, passenger={passenger}"
        )
    return ((row * SIZE + col) * (FULL_TANK + 1) + fuel) * 2 + int(passenger)


def decode(index: int) -> State:
    """The state with this number."""
    rest, passenger = divmod(int(index), 2)
    cell, fuel = divmod(rest, FULL_TANK + 1)
    return State(*divmod(cell, SIZE), fuel, bool(passenger))


def describe(index: int) -> str:
    """The state with this number, as text."""
    row, col, fuel, passenger = decode(index)
    return f"({row}, {col}), fuel {fuel}, passenger {'on board' if passenger else 'waiting'}"


def branches(state: State, action: Action) -> Iterator[tuple[float, State, Event]]:
    """All possible results of an action: probability, next state, and event."""
    cell = (state.row, state.col)
    if action == Action.PICKUP and cell == PASSENGER and not state.passenger:
        yield 1.0, state._replace(passenger=True), Event.PICKUP
    elif action == Action.DROPOFF and cell == DESTINATION and state.passenger:
        yield 1.0, state._replace(passenger=False), Event.DROPOFF
    elif action == Action.REFUEL and cell == STATION and state.fuel < FULL_TANK:
        yield 1.0, state._replace(fuel=min(state.fuel + REFUEL_AMOUNT, FULL_TANK)), Event.REFUEL
    elif action <= Action.WEST and state.fuel > 0 and _neighbour(cell, action) is not None:
        row, col = _neighbour(cell, action) or cell
        moved = state._replace(row=row, col=col, fuel=state.fuel - 1)
        stuck = state._replace(fuel=state.fuel - 1)
        yield 1 - TRAFFIC_PROBABILITY, moved, Event.FAILURE if _stranded(moved) else Event.MOVE
        yield TRAFFIC_PROBABILITY, stuck, Event.FAILURE if _stranded(stuck) else Event.TRAFFIC
    else:
        yield 1.0, state, Event.INVALID


def _neighbour(cell: tuple[int, int], action: Action) -> tuple[int, int] | None:
    row, col = cell
    if action == Action.EAST:
        return None if cell in WALLS_EAST_OF or col == SIZE - 1 else (row, col + 1)
    if action == Action.WEST:
        return None if (row, col - 1) in WALLS_EAST_OF or col == 0 else (row, col - 1)
    row += 1 if action == Action.SOUTH else -1
    return (row, col) if 0 <= row < SIZE else None


def _stranded(state: State) -> bool:
    """Out of fuel, not at the station, and not at the destination with the passenger."""
    cell = (state.row, state.col)
    return state.fuel == 0 and cell != STATION and not (cell == DESTINATION and state.passenger)


class Dynamics(NamedTuple):
    """The rules tabulated for every state and action."""

    table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]
    events: IntArray
    """[state, action, branch]"""
    model: TabularModel


@cache
def dynamics() -> Dynamics:
    """Tabulate the rules, once."""
    table: dict[int, dict[int, list[tuple[float, int, float, bool]]]] = {}
    events = np.full((NUM_STATES, len(Action), 2), Event.INVALID, dtype=np.int8)
    for s in range(NUM_STATES):
        table[s] = {}
        for a in Action:
            table[s][a.value] = []
            for b, (probability, after, event) in enumerate(branches(decode(s), a)):
                table[s][a.value].append((probability, encode(*after), REWARDS[event], event in TERMINAL))
                events[s, a, b] = event
    start = np.zeros(NUM_STATES)
    for row, col, fuel in np.ndindex(SIZE, SIZE, FULL_TANK):
        start[encode(row, col, fuel + 1, False)] = 1 / (SIZE * SIZE * FULL_TANK)
    return Dynamics(table, events, TabularModel.from_table(table, start, events[:, :, 0] != Event.INVALID))
