"""What-if questions about rewards: the same futures, valued with other rewards.

Returns are linear in the rewards of the outcomes, so these questions need no learning and no sampling. The
policy does not change; `tpd.answers.resolve` solves for the optimal policy under other rewards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tpd.core.bands import ENOUGH_DRAWS, Band
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.outcomes import UNACCOUNTED, Legend
from tpd.core.pairs import IN_MEMORY, blocks
from tpd.core.types import Array, BoolArray, FloatArray, IntArray
from tpd.envs import Environment
from tpd.guards.settings import did_you_mean, number
from tpd.predictors.explainer import Explainer

LARGEST_REWARD = 1e12
SAME_COUNT = 1e-9
"""Discounted counts that differ by less are equal up to rounding."""
SAME_REWARD = 1e-9
"""A reward closer to 0 than this, relative to the current one, is 0 up to rounding."""
PROBES = np.concatenate([[1e-6], np.linspace(0, 1, 41)[1:-1], [1 - 1e-6]])
"""The rewards of a range at which bands are computed, as fractions of it."""


def with_rewards(legend: Legend, rewards: Mapping[str, float]) -> Legend:
    """The legend with other rewards for some outcomes."""
    for name, reward in rewards.items():
        number(f"rewards.{name}", reward, -LARGEST_REWARD, LARGEST_REWARD)
    bound = _accounted(legend)
    old = {name: reward_of(legend, name) for name in rewards}
    weights = {**dict(zip(legend.names, legend.weights, strict=True)), **rewards}
    carrying = {name: abs(weight) for name, weight in weights.items() if weight is not None}
    if set(carrying) == set(legend.partition):
        bound = max(carrying.values())
    else:
        bound *= max([1.0, *(_times_larger(old[name], new) for name, new in rewards.items())])
    return replace(legend, weights=tuple(weights.values()), reward_bound=float(bound))


def _accounted(legend: Legend) -> float:
    """The bound of the reward; raises if the outcomes do not account for the reward."""
    if legend.reward_bound is None:
        raise ValueError(UNACCOUNTED)
    return legend.reward_bound


def _times_larger(old: float, new: float) -> float:
    return 1.0 if new == 0 else abs(new / old) if old else np.inf


def reward_of(legend: Legend, outcome: str) -> float:
    """The reward of an outcome; raises if it is not part of the reward."""
    _accounted(legend)
    weights = dict(zip(legend.names, legend.weights, strict=True))
    if (weight := weights.get(outcome)) is None:
        known = ", ".join(name for name, weight in weights.items() if weight is not None)
        what = "has no reward" if outcome in weights else "is not an outcome"
        near = "" if outcome in weights else did_you_mean(outcome, weights)
        raise ValueError(f"{outcome!r} {what}; the outcomes with a reward are: {known}{near}")
    return weight


def valued(explanation: Explanation, rewards: Mapping[str, float]) -> Explanation:
    """The explanation under other rewards, without the agent's own values, which no longer apply."""
    return replace(explanation, legend=with_rewards(explanation.legend, rewards), agent_value=None)


def tells(explanation: Explanation, rewards: Mapping[str, float]) -> BoolArray:
    """[batch]: whether the return under other rewards may be reported: it, and each outcome with one."""
    changed = [explanation.legend.names.index(name) for name in rewards]
    return np.asarray(explanation.told.returns[:, -1] & explanation.told.terms[:, changed].all(axis=1))


def returns(explanation: Explanation, rewards: Mapping[str, float]) -> FloatArray:
    """[batch]: expected return to the horizon under other rewards; NaN if it is unknown or not learned."""
    worth = valued(explanation, rewards).expected_return[:, -1]
    return np.where(explanation.foreseen[:, -1] & tells(explanation, rewards), worth, np.nan)


def return_band(explanation: Explanation, rewards: Mapping[str, float]) -> Band | None:
    """[batch]: the band of the return to the horizon under other rewards; None without bands."""
    if not explanation.banded:
        return None
    return Band(*(end[:, -1] for end in valued(explanation, rewards).return_band()))


def returns_and_counts(explanation: Explanation, outcome: str) -> tuple[FloatArray, FloatArray]:
    """[batch] each: the return, and its slope `sum_h discount^h O_h` in the reward of the outcome.

    NaN if one of them is unknown or not learned.
    """
    column = explanation.legend.names.index(outcome)
    worth, told = returns(explanation, {}), explanation.told.terms[:, column]
    count = explanation.expected[:, :, column] @ explanation.discounts
    return np.where(told, worth, np.nan), np.where(told & ~np.isnan(worth), count, np.nan)


def overtaking(contrast: Contrast, row: int, outcome: str) -> float | None:
    """The reward of the outcome at which fact and foil have equal returns; None if there is none.

    On one side of it the fact is better, on the other side the foil. None also if a future is unknown.
    """
    fact, foil = contrast.fact[row : row + 1], contrast.foil[row : row + 1]
    reward = reward_of(fact.legend, outcome)
    if reward != reward_of(foil.legend, outcome):
        raise ValueError(f"cannot vary the reward of {outcome!r}: it differs between fact and foil")
    sides = (returns_and_counts(side, outcome) for side in (fact, foil))
    difference, count = (float(one[0] - other[0]) for one, other in zip(*sides, strict=True))
    if np.isnan(difference) or abs(count) <= SAME_COUNT:
        return None
    at = reward - difference / count
    return 0.0 if abs(at) <= SAME_REWARD * max(1.0, abs(reward)) else at


def sign_certain(contrast: Contrast) -> BoolArray:
    """[batch, outcome]: whether the band of the count difference excludes 0.

    If it includes 0, the reward at which one overtakes the other cannot be determined.
    """
    band = contrast.sums_band(1.0)
    return np.asarray((band.low > 0) | (band.high < 0))


def rewards_around(legend: Legend, outcome: str) -> tuple[float, float]:
    """The rewards that are examined: up to twice the size of the current one, to both sides of it."""
    now = reward_of(legend, outcome)
    reach = max(2 * abs(now), 10.0)
    return now - reach, now + reach


class BestAction(NamedTuple):
    """A range of rewards in which one action has the highest return."""

    low: float
    high: float
    row: int | None
    """The row of the explanation; None where the data do not decide which action is best."""


def best_actions(explanation: Explanation, outcome: str, low: float, high: float) -> list[BestAction]:
    """Which row has the highest return, as a function of one reward; empty if fewer than two are known."""
    if not low < high:
        raise ValueError(f"the range of rewards must have low < high, got low={low}, high={high}")
    now = reward_of(explanation.legend, outcome)
    worth, count = returns_and_counts(explanation, outcome)
    rows = np.flatnonzero(~np.isnan(worth))
    if len(rows) < 2:
        return []
    slope = count[rows]
    offset = worth[rows] - now * slope
    found = list[BestAction]()
    for begin, end in pairwise([low, *_crossings(offset, slope, low, high), high]):
        best = (offset + slope * (begin + end) / 2).argmax()
        found.append(BestAction(begin, end, int(rows[best])))
    return _joined([part for one in _joined(found) for part in _certain(explanation, outcome, one)])


def _joined(ranges: Sequence[BestAction]) -> list[BestAction]:
    """The ranges without empty ones; neighbours with the same row are joined."""
    found = list[BestAction]()
    for low, high, row in ranges:
        if low < high:
            begin = found.pop().low if found and found[-1].row == row else low
            found.append(BestAction(begin, high, row))
    return found


def _certain(explanation: Explanation, outcome: str, best: BestAction) -> list[BestAction]:
    """A range, split into the part where the bands agree that the row is best, and the rest."""
    low, high, row = best
    if row is None or not _decides(explanation, outcome):
        return [BestAction(low, high, None)]
    if not explanation.banded:
        return [best]
    rewards = low + (high - low) * PROBES
    certain = np.flatnonzero([_leads(explanation, row, {outcome: float(reward)}) for reward in rewards])
    if not len(certain):
        return [BestAction(low, high, None)]
    ends = [low, *rewards[1:-1].tolist(), high]
    first, last = ends[certain[0]], ends[certain[-1]]
    return [BestAction(low, first, None), BestAction(first, last, row), BestAction(last, high, None)]


def _decides(explanation: Explanation, outcome: str) -> bool:
    """Whether the data can decide: not without bands, nor if random rollouts never saw the outcome."""
    if not explanation.banded:
        return bool((explanation.certain | explanation.often_tried).all())
    seen = explanation.samples[..., explanation.legend.names.index(outcome)].any(axis=(0, 2))
    return explanation.rollouts is None or bool((seen | explanation.certain).all())


def _leads(explanation: Explanation, row: int, rewards: Mapping[str, float]) -> bool:
    """Whether the bands of all differences to the other known returns exclude 0."""
    others = np.flatnonzero(~np.isnan(returns(explanation, rewards)))
    others = others[others != row]
    under = valued(explanation, rewards)
    return bool((under[np.full(len(others), row)] - under[others]).settled.all())


def _crossings(offset: FloatArray, slope: FloatArray, low: float, high: float) -> list[float]:
    """The points between low and high at which any two lines cross, ascending."""
    a, b = np.triu_indices(len(slope), k=1)
    apart = np.abs(slope[a] - slope[b]) > SAME_COUNT
    a, b = a[apart], b[apart]
    at = (offset[b] - offset[a]) / (slope[a] - slope[b])
    return [float(x) for x in np.unique(at[(at > low) & (at < high)])]


@dataclass(frozen=True)
class Fragility:
    """For each state, how far one reward may change before another action becomes the best."""

    best: IntArray
    """[state]: the known valid action with the largest explained return; -1 if none is known"""
    rival: IntArray
    """[state]: the action that overtakes it first; -1 if none ever does"""
    reward: FloatArray
    """[state]: the reward at which it does; NaN if none ever does"""
    obtained: str
    """How the numbers were obtained."""
    uncertain: BoolArray
    """[state]: whether the data do not say which action is best, or whether the rival ever overtakes it; then
    the reward is NaN"""


def fragility(explainer: Explainer, env: Environment, states: Array, outcome: str) -> Fragility:
    """The reward closest to the current one at which another known valid action overtakes the best one.

    Actions whose return or whose count of the outcome is not learned are left out.
    """
    now = reward_of(explainer.legend, outcome)
    valid = env.mask(states)
    row, action = np.nonzero(valid)
    explanation = explainer.explain(states[row], action)
    worth, count = np.full(valid.shape, np.nan), np.zeros(valid.shape)
    worth[row, action], count[row, action] = returns_and_counts(explanation, outcome)
    found = _nearest(worth, count, now, explanation.obtained)
    met = np.flatnonzero(found.rival >= 0)
    for block in blocks(len(met), IN_MEMORY // 2):
        some = met[block]
        pairs = np.concatenate([states[some]] * 2), np.concatenate([found.best[some], found.rival[some]])
        both = explainer.explain(*pairs, draws=ENOUGH_DRAWS)
        contrast = both[: len(some)] - both[len(some) :]
        decided = contrast.settled
        if contrast.drawn:
            decided &= sign_certain(contrast)[:, explanation.legend.names.index(outcome)]
        found.uncertain[some] = ~decided
    return replace(found, reward=np.where(found.uncertain, np.nan, found.reward))


def _nearest(worth: FloatArray, count: FloatArray, now: float, obtained: str) -> Fragility:
    """The fragility from returns and discounted counts [state, action]; NaN where invalid or unknown."""
    states = np.arange(len(worth))
    known: BoolArray = ~np.isnan(worth)
    best = np.where(known, worth, -np.inf).argmax(axis=1)
    steeper = count - count[states, best][:, None]
    meets = known & (np.abs(steeper) > SAME_COUNT)
    behind = worth[states, best][:, None] - worth
    change = np.full(worth.shape, np.inf)
    change[meets] = behind[meets] / steeper[meets]
    distance = np.abs(change)
    nearest = distance.min(axis=1, keepdims=True)
    meeting = distance <= nearest * (1 + SAME_COUNT) + SAME_COUNT
    # if several meet, the one that is best beyond
    rival = np.where(meeting, np.abs(steeper), -1).argmax(axis=1)
    moved = change[states, rival]
    never = np.isinf(moved)
    return Fragility(
        best=np.where(known.any(axis=1), best, -1),
        rival=np.where(never, -1, rival),
        reward=np.where(never, np.nan, now + np.where(never, 0, moved)),
        obtained=obtained,
        uncertain=np.zeros(len(worth), dtype=np.bool_),
    )
