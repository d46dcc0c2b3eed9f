"""What happened in a transition of Gymnasium's Pendulum, read from the transition alone."""

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, Transitions

COS, SIN, VELOCITY = range(3)
MAX_TORQUE = 2.0
UPRIGHT = np.radians(12)
FAST = 4.0
"""Radians per second; half of what is possible."""
AT_REST = 0.1
"""Radians per second, below which it neither rises nor falls: balanced, it only trembles."""
FULL = 0.95
"""The share of the largest torque that counts as all of it; squashed actions never quite reach it."""


def upright(t: Transitions) -> BoolArray:
    return np.asarray(np.abs(_angle(t.next_observation)) < UPRIGHT)


def upper_half(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, COS] > 0)


def rose(t: Transitions) -> BoolArray:
    return np.asarray(_speed_upwards(t.next_observation) > AT_REST)


def fell(t: Transitions) -> BoolArray:
    return np.asarray(_speed_upwards(t.next_observation) < -AT_REST)


def fast(t: Transitions) -> BoolArray:
    return np.asarray(np.abs(t.next_observation[:, VELOCITY]) > FAST)


def torque(t: Transitions) -> FloatArray:
    """Counterclockwise where positive, and as the environment limits it."""
    return np.clip(np.asarray(t.action, dtype=np.float64).reshape(len(t)), -MAX_TORQUE, MAX_TORQUE)


def full_torque(t: Transitions) -> BoolArray:
    return np.asarray(np.abs(torque(t)) > FULL * MAX_TORQUE)


# The terms of the reward, which is a cost of where the pendulum was before the step.


def angle_cost(t: Transitions) -> FloatArray:
    return np.asarray(-(_angle(t.observation) ** 2))


def speed_cost(t: Transitions) -> FloatArray:
    return np.asarray(-0.1 * t.observation[:, VELOCITY].astype(np.float64) ** 2)


def torque_cost(t: Transitions) -> FloatArray:
    return np.asarray(-0.001 * torque(t) ** 2)


def _angle(observations: Array) -> FloatArray:
    """[batch]: radians from upright, counterclockwise."""
    return np.arctan2(observations[:, SIN].astype(np.float64), observations[:, COS].astype(np.float64))


def _speed_upwards(observations: Array) -> FloatArray:
    """[batch]: radians per second by which it comes nearer to upright."""
    return np.asarray(-np.sign(observations[:, SIN]) * observations[:, VELOCITY])
