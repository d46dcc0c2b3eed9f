"""Rollouts that go on to the end of the episode, for what comes after the horizon."""

from contextlib import closing
from typing import NamedTuple

import numpy as np

from tpd.core.beyond import Beyond, nothing_left
from tpd.core.explanation import Explanation
from tpd.core.types import Array, BoolArray, FloatArray, IntArray
from tpd.predictors.simulation import ANSWERING, PILOTING, ROUNDING, SCOUTING, Simulator, world_seeds
from tpd.predictors.streams import PolicyStreams
from tpd.sources.forks import Start
from tpd.sources.moments import Moment

MOST_STEPS = 1000
"""After the horizon; an episode that has not ended by then has no estimate of what follows."""
FEWEST, MOST = 20, 40
"""Rollouts that are followed. In between, as many as take no more steps than the horizon did."""
PILOTS = 2
"""Rollouts that show how long episodes are, and are discarded."""
TAIL = 1e-3
"""What follows is worth nothing once it is discounted to this many times the largest reward."""


class Followed(NamedTuple):
    """What followed the horizon."""

    value: FloatArray
    """[rollout, choice]: the return, discounted to the first step"""
    length: IntArray
    """[rollout, choice]: steps of the episode from the moment on, as far as it was followed"""
    ended: BoolArray
    """[rollout, choice]: whether it was followed to its end"""
    chance: BoolArray
    """[rollout, choice]: whether chance had a part, where that was watched"""


def to_the_end(simulator: Simulator, moment: Moment, explanation: Explanation) -> Beyond:
    """The return after the horizon, of the pairs [choice] that the simulator has explained at the moment.

    The rollouts followed are the first ones of the answer, so that fact and foil meet the same chances.
    Where nothing is random, it is the one, unless a batch of another size, in which networks give other last
    digits, ends otherwise: a world that makes so much of them is not foreseen that far.
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
    affordable = len(explanation.rollouts) * simulator.horizon // max(1, int(pilot.length.mean()))
    count = min(len(explanation.rollouts), int(np.clip(affordable, FEWEST, MOST)))
    return _beyond(_follow(simulator, moment, actions, count, ANSWERING), np.zeros_like(certain))


def _beyond(found: Followed, certain: BoolArray) -> Beyond:
    ended = found.ended.all(axis=0)
    value = np.where(ended, found.value, np.nan)
    return Beyond(
        value.mean(axis=0),
        value,
        certain & np.isfinite(value).all(axis=0),
        np.where(ended, 0, found.length.max(axis=0)),
    )


def _steps(simulator: Simulator, moment: Moment) -> tuple[int, bool]:
    """How many steps the episode can be followed, and whether nothing that counts comes after them."""
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
    keys = [(simulator.seed, purpose, stream) for stream in range(count)]
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
