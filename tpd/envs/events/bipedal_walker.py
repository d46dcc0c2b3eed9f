"""Events and reward terms of Gymnasium's BipedalWalker, as functions of transitions.

The walker faces right, so the leg drawn behind, which comes first in the observation, is its left one.
"""

import numpy as np

from tpd.core.types import BoolArray, FloatArray, Transitions

ANGLE, _, X_VELOCITY, Y_VELOCITY = range(4)
LEFT_CONTACT, RIGHT_CONTACT = 8, 13
FALL_REWARD = -100.0
TILTED = 0.5
"""Angle of the hull, in radians; a steady gait stays below."""
DROPPING = 0.15
"""In units of the observation; 1 is 12.5 metres per second downwards."""
FAST, SLOW = 0.6, 0.24
"""In units of the observation; 1 is 8.3 metres per second: 5 and 2 metres per second."""
STEPS_PER_SECOND = 50
METRES_PER_SECOND = 1 / 0.12
REWARD_PER_METRE = 130 / 30
SLACK = 0.5
"""Reward from contacts that move the hull beyond its velocity; at most 0.09 in 20,000 random steps."""


def fell(t: Transitions) -> BoolArray:
    """The hull touches the ground, or the walker leaves the track behind its start."""
    return np.asarray(t.terminated & (t.reward <= FALL_REWARD))


def finished(t: Transitions) -> BoolArray:
    """The walker reaches the end of the track."""
    return np.asarray(t.terminated & ~fell(t))


def stumbled(t: Transitions) -> BoolArray:
    """The hull tilts or drops without touching the ground."""
    seen = t.next_observation
    return np.asarray(~fell(t) & ((np.abs(seen[:, ANGLE]) > TILTED) | (seen[:, Y_VELOCITY] < -DROPPING)))


def left_foot_down(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, LEFT_CONTACT] > 0.5)


def right_foot_down(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, RIGHT_CONTACT] > 0.5)


def fast(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, X_VELOCITY] > FAST)


def slow(t: Transitions) -> BoolArray:
    """The walker moves forwards slowly, or backwards."""
    return np.asarray(t.next_observation[:, X_VELOCITY] < SLOW)


# The terms of the reward. A fall replaces all of them by -100.


def forward(t: Transitions) -> FloatArray:
    """Reward for moving forwards.

    The position is not observed. This term is the remainder of the reward after the other terms, limited to
    what the velocity explains plus what contacts can add.
    """
    speed = t.next_observation[:, X_VELOCITY].astype(np.float64) * METRES_PER_SECOND
    seen = speed / STEPS_PER_SECOND * REWARD_PER_METRE
    left = t.reward - _tilt(t) - _effort(t)
    return np.where(fell(t), 0, np.clip(left, seen - SLACK, seen + SLACK))


def tilt(t: Transitions) -> FloatArray:
    """Reward for levelling the hull."""
    return np.where(fell(t), 0, _tilt(t))


def effort(t: Transitions) -> FloatArray:
    """Cost of the motors' torque."""
    return np.where(fell(t), 0, _effort(t))


def _tilt(t: Transitions) -> FloatArray:
    before, after = (np.abs(o[:, ANGLE].astype(np.float64)) for o in (t.observation, t.next_observation))
    return np.asarray(5 * (before - after))


def _effort(t: Transitions) -> FloatArray:
    return np.asarray(-0.028 * np.clip(np.abs(t.action.astype(np.float64)), 0, 1).sum(axis=1))
