"""Events of Gymnasium's MountainCar, as functions of transitions."""

import numpy as np

from tpd.core.types import BoolArray, Transitions

POSITION, VELOCITY = 0, 1
BOTTOM = -np.pi / 6
UPHILL = 0.3
"""Distance from the bottom of the valley at which a hill begins; the goal is at 1.02."""


def on_left_hill(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, POSITION] < BOTTOM - UPHILL)


def on_right_hill(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, POSITION] > BOTTOM + UPHILL)


def moved_right(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, VELOCITY] > 0)


def passed_the_bottom(t: Transitions) -> BoolArray:
    """The car swings from one side of the valley to the other."""
    return np.asarray((t.observation[:, POSITION] < BOTTOM) != (t.next_observation[:, POSITION] < BOTTOM))
