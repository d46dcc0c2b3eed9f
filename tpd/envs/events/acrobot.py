"""Events of Gymnasium's Acrobot, as functions of transitions.

Two links of length 1 hang from a pivot, and the motor is in the joint between them. The goal is to swing the
tip, the free end of the lower link, more than 1 above the pivot.
"""

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, Transitions

COS_UPPER, SIN_UPPER, COS_LOWER, SIN_LOWER = range(4)  # the lower link's angle is relative to the upper one's


def tip_above_pivot(t: Transitions) -> BoolArray:
    return np.asarray(_height(t.next_observation) > 0)


def tip_rose(t: Transitions) -> BoolArray:
    return np.asarray(_height(t.next_observation) > _height(t.observation))


def tip_to_the_right(t: Transitions) -> BoolArray:
    return np.asarray(_offset(t.next_observation) > 0)


def folded(t: Transitions) -> BoolArray:
    """The links are at less than a right angle to each other."""
    return np.asarray(t.next_observation[:, COS_LOWER] < 0)


def spent_a_step(t: Transitions) -> BoolArray:
    """A step that does not reach the goal."""
    return ~t.terminated


def _height(observations: Array) -> FloatArray:
    """[batch]: height of the tip above the pivot, from -2 to 2."""
    cos_upper, sin_upper, cos_lower, sin_lower = observations[:, :4].T
    return np.asarray(-cos_upper - (cos_upper * cos_lower - sin_upper * sin_lower))


def _offset(observations: Array) -> FloatArray:
    """[batch]: horizontal offset of the tip from the pivot (right is positive), from -2 to 2."""
    cos_upper, sin_upper, cos_lower, sin_lower = observations[:, :4].T
    return np.asarray(sin_upper + sin_upper * cos_lower + cos_upper * sin_lower)
