"""Your events: functions of a batch of transitions, one value for each of them."""

import numpy as np


def too_cold(t):
    return t.next_observation[:, 0] < 18


def too_hot(t):
    return t.next_observation[:, 0] > 22


def comfort(t):
    """A term of the reward."""
    return -np.abs(t.next_observation[:, 0].astype(float) - 20) / 10


def energy(t):
    """The other term of the reward."""
    return -0.1 * (t.action == 1)
