"""What happened in a transition of Gymnasium's CartPole, read from the transition alone."""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, Transitions

POSITION, ANGLE = 0, 2
END_OF_TRACK = 2.4
LEANING = np.radians(1)


def leans_left(t: Transitions) -> BoolArray:
    """The pole is more than a degree from upright; at twelve it has fallen."""
    return np.asarray(t.next_observation[:, ANGLE] < -LEANING)


def leans_right(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, ANGLE] > LEANING)


def right_of_centre(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, POSITION] > 0)


def left_the_track(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (np.abs(t.next_observation[:, POSITION]) > END_OF_TRACK))


def fell(t: Transitions) -> BoolArray:
    """The pole ended the episode, and not the cart."""
    return np.asarray(t.terminated & ~left_the_track(t))


def kept_going(t: Transitions) -> FloatArray:
    """A step: each is worth the same, the last one too."""
    return np.ones(len(t))
