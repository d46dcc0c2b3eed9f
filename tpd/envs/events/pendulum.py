"""Events and reward terms of Gymnasium's Pendulum, as functions of transitions."""

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, Transitions

COS, SIN, VELOCITY = range(3)
MAX_TORQUE = 2.0
UPRIGHT = np.radians(12)
FAST = 4.0
"""Radians per second; half of the maximum."""
AT_REST = 0.1
"""Radians per second; slower, it neither rises nor falls: a balanced pendulum only trembles."""
FULL = 0.95
"""Fraction of the maximum torque that counts as full; squashed actions never quite reach it."""


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
    """The torque after clipping by the environment; positive is counterclockwise."""
    return np.clip(np.asarray(t.action, dtype=np.float64).reshape(len(t)), -MAX_TORQUE, MAX_TORQUE)


def full_torque(t: Transitions) -> BoolArray:
    return np.asarray(np.abs(torque(t)) > FULL * MAX_TORQUE)


# The terms of the reward: costs of the state before the step.


def angle_cost(t: Transitions) -> FloatArray:
    return np.asarray(-(_angle(t.observation) ** 2))


def speed_cost(t: Transitions) -> FloatArray:
    return np.asarray(-0.1 * t.observation[:, VELOCITY].astype(np.float64) ** 2)


def torque_cost(t: Transitions) -> FloatArray:
    return np.asarray(-0.001 * torque(t) ** 2)


def _angle(observations: Array) -> FloatArray:
    """[batch]: angle from upright in radians, counterclockwise."""
    return np.arctan2(observations[:, SIN].astype(np.float64), observations[:, COS].astype(np.float64))


def _speed_upwards(observations: Array) -> FloatArray:
    """[batch]: angular speed towards upright, in radians per second."""
    return np.asarray(-np.sign(observations[:, SIN]) * observations[:, VELOCITY])
