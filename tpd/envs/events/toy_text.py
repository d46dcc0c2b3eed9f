"""Events of Gymnasium's toy_text environments, as functions of transitions."""

import numpy as np

from tpd.core.types import BoolArray, IntArray, Transitions

# FrozenLake


def reached_goal(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (t.reward > 0))


def fell_into_hole(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (t.reward == 0))


def walked_on_ice(t: Transitions) -> BoolArray:
    return ~t.terminated


# CliffWalking


def arrived(t: Transitions) -> BoolArray:
    return t.terminated


def fell_off_cliff(t: Transitions) -> BoolArray:
    return np.asarray(t.reward == -100)


def walked_along(t: Transitions) -> BoolArray:
    return np.asarray(~arrived(t) & ~fell_off_cliff(t))


# Taxi

IN_TAXI = 4


def dropped_off(t: Transitions) -> BoolArray:
    return t.terminated


def picked_up(t: Transitions) -> BoolArray:
    return np.asarray((_passenger(t.observation) != IN_TAXI) & (_passenger(t.next_observation) == IN_TAXI))


def put_down_elsewhere(t: Transitions) -> BoolArray:
    left = (_passenger(t.observation) == IN_TAXI) & (_passenger(t.next_observation) != IN_TAXI)
    return np.asarray(left & ~t.terminated)


def illegal(t: Transitions) -> BoolArray:
    return np.asarray(t.reward == -10)


def drove(t: Transitions) -> BoolArray:
    return ~(dropped_off(t) | picked_up(t) | put_down_elsewhere(t) | illegal(t))


def _passenger(states: IntArray) -> IntArray:
    return states // 4 % 5
