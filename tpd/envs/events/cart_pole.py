"""Events of Gymnasium's CartPole, as functions of transitions."""

import numpy as np

from tpd.core.types import BoolArray, Transitions

POSITION, ANGLE = 0, 2
END_OF_TRACK = 2.4
LEANING = np.radians(1)


def leans_left(t: Transitions) -> BoolArray:
    """The pole leans by more than one degree; at twelve degrees it has fallen."""
    return np.asarray(t.next_observation[:, ANGLE] < -LEANING)


def leans_right(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, ANGLE] > LEANING)


def right_of_centre(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, POSITION] > 0)


def left_the_track(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (np.abs(t.next_observation[:, POSITION]) > END_OF_TRACK))


def fell(t: Transitions) -> BoolArray:
    """The episode ended because of the pole, not the cart."""
    return np.asarray(t.terminated & ~left_the_track(t))
