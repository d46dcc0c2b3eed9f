"""Events and reward terms of FuelTaxi, as functions of transitions."""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, IntArray, Transitions
from tpd.envs.fuel_taxi.rules import FULL_TANK, Action


def dropoff(t: Transitions) -> BoolArray:
    return np.asarray((t.action == Action.DROPOFF) & t.terminated)


def pickup(t: Transitions) -> BoolArray:
    return np.asarray((t.action == Action.PICKUP) & _changed(t))


def refuel(t: Transitions) -> BoolArray:
    return np.asarray((t.action == Action.REFUEL) & _changed(t))


def failure(t: Transitions) -> BoolArray:
    return np.asarray((t.action <= Action.WEST) & t.terminated)


def traffic(t: Transitions) -> BoolArray:
    return np.asarray(_drove_on(t) & (_cell(t.observation) == _cell(t.next_observation)))


def move(t: Transitions) -> BoolArray:
    return np.asarray(_drove_on(t) & (_cell(t.observation) != _cell(t.next_observation)))


def invalid(t: Transitions) -> BoolArray:
    return np.asarray(~_changed(t) & ~t.terminated)


def _cell(states: IntArray) -> IntArray:
    return states // (2 * (FULL_TANK + 1))


def _changed(t: Transitions) -> BoolArray:
    return np.asarray(t.observation != t.next_observation)


def _drove_on(t: Transitions) -> BoolArray:
    return np.asarray((t.action <= Action.WEST) & _changed(t) & ~t.terminated)


# The same rewards, split by purpose into terms that add up.


def fare(t: Transitions) -> FloatArray:
    """The reward paid by the passenger."""
    return np.where(t.reward > 0, t.reward, 0)


def effort(t: Transitions) -> BoolArray:
    """A step of driving or refuelling."""
    return np.asarray(refuel(t) | traffic(t) | move(t))


def mishap(t: Transitions) -> BoolArray:
    """Running out of fuel, or an invalid action."""
    return np.asarray(failure(t) | invalid(t))
