"""Events and reward terms of MuJoCo's Hopper (v5), as functions of transitions.

Contacts are not observed. The height of the foot is computed from the torso's height and the joint angles,
with the lengths in Gymnasium's hopper.xml.
"""

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, Transitions

HEIGHT, TILT, THIGH, LEG, FOOT, FORWARD_SPEED = range(6)
TO_HIP, THIGH_LENGTH, LEG_LENGTH = 0.2, 0.45, 0.5
HEEL, TOE, SOLE = -0.13, 0.26, 0.06
"""In metres: heel and toe from the ankle along the foot, and the sole below the foot's middle line."""
CLEAR = 0.01
"""Metres above the ground from which the hopper counts as in flight."""
TILTED = 0.1
"""Radians; at 0.2 it has fallen."""
FAST = 2.0
"""Metres per second."""
EFFORT = 1e-3


def in_flight(t: Transitions) -> BoolArray:
    """The foot does not touch the ground."""
    return np.asarray(foot_height(t.next_observation) > CLEAR)


def lifts_off(t: Transitions) -> BoolArray:
    """The foot leaves the ground in this step."""
    return in_flight(t) & (foot_height(t.observation) <= CLEAR)


def lands(t: Transitions) -> BoolArray:
    """The foot touches the ground in this step."""
    return ~in_flight(t) & (foot_height(t.observation) > CLEAR)


def tilts_forward(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, TILT] > TILTED)


def tilts_back(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, TILT] < -TILTED)


def fast(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, FORWARD_SPEED] > FAST)


def backwards(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, FORWARD_SPEED] < 0)


def foot_height(seen: Array) -> FloatArray:
    """[batch]: height of the foot's lowest point above ground, in metres, for observations [batch, 11]."""
    seen = seen.astype(np.float64)
    thigh = seen[:, TILT] - seen[:, THIGH]
    leg = thigh - seen[:, LEG]
    foot = leg - seen[:, FOOT]
    ankle = seen[:, HEIGHT] - TO_HIP * np.cos(seen[:, TILT])
    ankle = ankle - THIGH_LENGTH * np.cos(thigh) - LEG_LENGTH * np.cos(leg)
    return np.asarray(ankle + np.minimum(-HEEL * np.sin(foot), -TOE * np.sin(foot)) - SOLE)


# The terms of the reward.


def forward(t: Transitions) -> FloatArray:
    """Reward for the distance covered: the remainder of the reward after the other terms."""
    return np.asarray(t.reward - alive(t) - effort(t))


def alive(t: Transitions) -> FloatArray:
    """1 for every step without a fall."""
    return np.asarray(~t.terminated, dtype=np.float64)


def effort(t: Transitions) -> FloatArray:
    """Cost of the motors' squared torque."""
    return np.asarray(-EFFORT * np.square(t.action.astype(np.float64)).sum(axis=1))
