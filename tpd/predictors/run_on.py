"""Rollouts that continue beyond the horizon, to estimate the return up to the end of the episode."""

from contextlib import closing
from typing import NamedTuple

import numpy as np

from tpd.core.beyond import Beyond, nothing_left
from tpd.core.explanation import Explanation
from tpd.core.types import Array, BoolArray, FloatArray, IntArray
from tpd.predictors.simulation import (
    ANSWERING,
    PILOTING,
    ROUNDING,
    SCOUTING,
    Simulator,
    seed_at,
    world_seeds,
)
from tpd.predictors.streams import PolicyStreams
from tpd.sources.forks import Start
from tpd.sources.moments import Moment

MOST_STEPS = 1000
"""Steps after the horizon. If the episode has not ended by then, there is no estimate."""
FEWEST, MOST = 20, 40
"""Bounds for the number of continued rollouts. Within them they take no more steps than the answer did."""
PILOTS = 2
"""Rollouts that measure the length of episodes, and are discarded."""
TAIL = 1e-3
"""The rest of a return is neglected once it is at most this many times the largest reward."""


class Followed(NamedTuple):
    """Results of rollouts beyond the horizon."""

    value: FloatArray
    """[rollout, choice]: the return after the horizon, discounted to step 0"""
    length: IntArray
    """[rollout, choice]: number of steps made from the moment on"""
    ended: BoolArray
    """[rollout, choice]: whether the rollout reached the end of the episode"""
    chance: BoolArray
    """[rollout, choice]: whether random numbers were drawn; of the world only if that was watched"""


def to_the_end(simulator: Simulator, moment: Moment, explanation: Explanation) -> Beyond:
    """The return after the horizon for the pairs [choice] that the simulator has explained at the moment.

    The first rollouts of the answer are continued, so fact and foil share their random streams. In a
    deterministic case there is a single rollout. It is checked with another batch size, which changes the
    last digits of a network's output: if the return then differs, the world is chaotic and the value is NaN.
    """
    actions, certain = explanation.actions, explanation.certain
    if not (explanation.running[:, -1] > 0).any() or _steps(simulator, moment)[0] <= simulator.horizon:
        return nothing_left(len(actions))
    if certain.all():
        found = _follow(simulator, moment, actions, 1, SCOUTING)
        if not found.chance.any():
            again = _follow(simulator, moment, actions, 2, SCOUTING).value[0]
            same = np.isclose(found.value[0], again, rtol=ROUNDING, atol=ROUNDING)
            return _beyond(found._replace(value=np.where(same, found.value, np.nan)), certain)
    pilot = _follow(simulator, moment, actions, PILOTS, PILOTING)
    assert explanation.rollouts is not None
    rollouts = MOST if certain.all() else len(explanation.rollouts)  # deterministic only within the horizon
    affordable = rollouts * simulator.horizon // max(1, int(pilot.length.mean()))
    count = min(rollouts, int(np.clip(affordable, FEWEST, MOST)))
    return _beyond(_follow(simulator, moment, actions, count, ANSWERING), np.zeros_like(certain))


def _beyond(found: Followed, certain: BoolArray) -> Beyond:
    ended = found.ended.all(axis=0)
    value = np.where(ended, found.value, np.nan)
    unended = np.where(ended, 0, found.length.max(axis=0))
    return Beyond(value.mean(axis=0), value, certain & np.isfinite(value).all(axis=0), unended)


def _steps(simulator: Simulator, moment: Moment) -> tuple[int, bool]:
    """The maximum number of steps of a rollout, and whether the return after them is negligible."""
    limit, discount = simulator.env.time_limit, simulator.policy.discount
    steps, whole = simulator.horizon + MOST_STEPS, False
    if discount < 1:
        worthless = int(np.ceil(np.log(TAIL * (1 - discount)) / np.log(discount))) if discount > 0 else 1
        if worthless <= steps:
            steps, whole = worthless, True
    if limit is not None and limit - moment.step <= steps:
        steps, whole = limit - moment.step, True
    return steps, whole


def _follow(simulator: Simulator, moment: Moment, actions: Array, count: int, purpose: int) -> Followed:
    seed = seed_at(simulator.seed, moment)
    keys = [(seed, purpose, stream) for stream in range(count)]
    start = Start(moment, np.tile(world_seeds(keys), len(actions)))
    steps, whole = _steps(simulator, moment)
    forks = count * len(actions)
    policy = PolicyStreams(simulator.env, simulator.policy, keys * len(actions), simulator.followed)
    observations = np.repeat(moment.observation[None], forks, axis=0)
    taken = np.repeat(actions, count, axis=0)
    value, length = np.zeros(forks), np.zeros(forks, dtype=np.int64)
    running = np.arange(forks)
    watched = purpose == SCOUTING
    with closing(simulator.forks.worlds([start], steps, watched)) as worlds:
        for h in range(steps):
            step = simulator.transitions(observations, taken, worlds.step(running, taken))
            length[running] += 1
            if h >= simulator.horizon:
                value[running] += simulator.policy.discount**h * step.reward
            running = running[~step.terminated]
            if not len(running) or h + 1 == steps:
                break
            observations = step.next_observation[~step.terminated]
            taken = policy.sample(observations, running, h + 1)
        chance = policy.drew | worlds.drew() if watched else policy.drew
    ended = np.ones(forks, dtype=np.bool_)
    ended[running] = whole
    shape = len(actions), count
    return Followed(
        value.reshape(shape).T, length.reshape(shape).T, ended.reshape(shape).T, chance.reshape(shape).T
    )
