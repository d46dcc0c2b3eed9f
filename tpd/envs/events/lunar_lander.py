"""Events and reward terms of Gymnasium's LunarLander, as functions of transitions.

Left and right are as in the picture: the observation lists the right leg first, and the engine that
Gymnasium calls left pushes to the left. Actions are discrete or continuous.
"""

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, Transitions

X, Y, X_VELOCITY, Y_VELOCITY, ANGLE, _, RIGHT_LEG, LEFT_LEG = range(8)
PUSH_LEFT, MAIN_ENGINE, PUSH_RIGHT = 1, 2, 3
EDGE_OF_VIEW = 1.0
FLAG = 0.2
FALLING_FAST = 0.25
"""In units of the observation; 1 is 7.5 metres per second."""


def landed(t: Transitions) -> BoolArray:
    """The lander comes to rest."""
    return np.asarray(t.terminated & (t.reward > 0))


def left_the_view(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & ~landed(t) & (np.abs(t.next_observation[:, X]) >= EDGE_OF_VIEW))


def crashed(t: Transitions) -> BoolArray:
    """The body, not only a leg, touches the ground."""
    return np.asarray(t.terminated & ~landed(t) & ~left_the_view(t))


def left_leg_down(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, LEFT_LEG] > 0)


def right_leg_down(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, RIGHT_LEG] > 0)


def touched_down(t: Transitions) -> BoolArray:
    return left_leg_down(t) | right_leg_down(t)


def fell_fast(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, Y_VELOCITY] < -FALLING_FAST)


def between_the_flags(t: Transitions) -> BoolArray:
    """Above the landing pad, or on it."""
    return np.asarray(np.abs(t.next_observation[:, X]) <= FLAG)


def fired_main_engine(t: Transitions) -> BoolArray:
    return np.asarray(_main_power(t.action) > 0)


def pushed_left(t: Transitions) -> BoolArray:
    return np.asarray(_side_power(t.action) < 0)


def pushed_right(t: Transitions) -> BoolArray:
    return np.asarray(_side_power(t.action) > 0)


# The terms of the reward. At the end of an episode, +100 or -100 replaces all of them.


def distance(t: Transitions) -> FloatArray:
    """Reward for approaching the pad; includes the rounding error of the other terms.

    The reward is computed before the observation is rounded to float32. The remainder is added to this term
    as far as rounding can explain it.
    """
    gains = _gains(t)
    # factor 4: normalising and restoring observations may have added a few roundings
    penalties = _penalties(t.observation) + _penalties(t.next_observation)
    unseen = 4 * np.finfo(np.float32).eps * penalties.sum(axis=1)
    seen = gains.sum(axis=1) + _legs(t) + _fuel(t)
    return _while_flying(t, gains[:, 0] + np.clip(t.reward - seen, -unseen, unseen))


def speed(t: Transitions) -> FloatArray:
    """Reward for slowing down."""
    return _while_flying(t, _gains(t)[:, 1])


def tilt(t: Transitions) -> FloatArray:
    """Reward for levelling the lander."""
    return _while_flying(t, _gains(t)[:, 2])


def legs(t: Transitions) -> FloatArray:
    """Reward for putting a leg on the ground; negative for lifting it again."""
    return _while_flying(t, _legs(t))


def fuel(t: Transitions) -> FloatArray:
    return _while_flying(t, _fuel(t))


def _while_flying(t: Transitions, term: FloatArray) -> FloatArray:
    return np.where(t.terminated, 0, term)


def _gains(t: Transitions) -> FloatArray:
    """[batch, 3]: decrease of the penalties."""
    return _penalties(t.observation) - _penalties(t.next_observation)


def _penalties(observations: Array) -> FloatArray:
    """[batch, 3]: penalties for distance, speed and tilt."""
    seen = observations.astype(np.float64)
    far = np.hypot(seen[:, X], seen[:, Y])
    quick = np.hypot(seen[:, X_VELOCITY], seen[:, Y_VELOCITY])
    return 100 * np.stack([far, quick, np.abs(seen[:, ANGLE])], axis=1)


def _legs(t: Transitions) -> FloatArray:
    down = t.next_observation[:, [RIGHT_LEG, LEFT_LEG]].astype(np.float64)
    return np.asarray(10 * (down - t.observation[:, [RIGHT_LEG, LEFT_LEG]]).sum(axis=1))


def _fuel(t: Transitions) -> FloatArray:
    return np.asarray(-0.3 * _main_power(t.action) - 0.03 * np.abs(_side_power(t.action)))


def _main_power(actions: Array) -> FloatArray:
    """[batch]: 0 if off, 0.5 to 1 if on."""
    if actions.ndim == 1:
        return np.where(actions == MAIN_ENGINE, 1.0, 0.0)
    throttle = np.clip(actions[:, 0].astype(np.float64), -1, 1)
    return np.where(throttle > 0, (throttle + 1) / 2, 0)


def _side_power(actions: Array) -> FloatArray:
    """[batch]: 0 if off, 0.5 to 1 to the right, negative to the left."""
    if actions.ndim == 1:
        return np.where(actions == PUSH_LEFT, -1.0, np.where(actions == PUSH_RIGHT, 1.0, 0.0))
    throttle = np.clip(actions[:, 1].astype(np.float64), -1, 1)
    return np.where(np.abs(throttle) > 0.5, throttle, 0)
