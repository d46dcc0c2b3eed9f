"""Solves for the optimal policy under other rewards, in a tabular model, known or counted."""

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_matrix, identity
from scipy.sparse.linalg import spsolve

from tpd.answers.what_if import with_rewards
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.envs.tabular import TabularModel
from tpd.guards.settings import number
from tpd.policies.tabular import TabularPolicy

ROUNDINGS = 8
"""Values count as equal if they differ by at most this many rounding errors, times 1 / (1 - discount)."""


def resolve(
    model: TabularModel, outcomes: OutcomeSet, rewards: Mapping[str, float], discount: float
) -> TabularPolicy:
    """The optimal policy if some outcomes have other rewards, by policy iteration.

    Only valid actions are taken. A valid pair without transitions in the model gets the worst possible value,
    so the policy keeps to known pairs.
    """
    if number("discount", discount, 0, 1) == 1:
        raise ValueError("resolve: the optimal policy can only be computed for a discount below 1")
    if outcomes.info_keys:
        raise ValueError(
            "the optimal policy cannot be computed, because the tabular model does not store the entries of "
            f"info that the outcomes read ({', '.join(outcomes.info_keys)})"
        )
    legend = with_rewards(outcomes.legend, rewards)
    transitions, probability = model.transitions()
    reward = outcomes.observe(transitions).outcome[:, :-1].astype(np.float64) @ legend.rewards
    shape = (model.num_states, model.num_actions)
    pair = np.ravel_multi_index((transitions.observation, transitions.action), shape)
    pairs = shape[0] * shape[1]
    immediate: FloatArray = np.bincount(pair, probability * reward, pairs).astype(np.float64)
    immediate[np.bincount(pair, minlength=pairs) == 0] = -np.abs(reward).max(initial=0) / (1 - discount)
    goes_on = probability * ~transitions.terminated
    dynamics = csr_matrix((discount * goes_on, (pair, transitions.next_observation)), (pairs, shape[0]))
    rounding = ROUNDINGS * np.finfo(np.float64).eps / (1 - discount)
    values = _optimal(immediate, dynamics, model.mask, rounding)
    best = _first_best(values, model.mask, rounding)
    return TabularPolicy(np.eye(shape[1])[best], discount, values)


def _optimal(immediate: FloatArray, dynamics: csr_matrix, mask: BoolArray, rounding: float) -> FloatArray:
    """[state, action]: the optimal values `Q = r + discount P max Q`, by policy iteration."""
    states = np.arange(len(mask))
    action = _first_best(immediate.reshape(mask.shape), mask, rounding)
    while True:
        taken = states * mask.shape[1] + action
        v = spsolve((identity(len(states), format="csr") - dynamics[taken]).tocsc(), immediate[taken])
        q = (immediate + dynamics @ v).reshape(mask.shape)
        best = _first_best(q, mask, rounding)
        better = q[states, best] > q[states, action] + rounding * max(1.0, np.abs(v).max())
        if not better.any():
            return np.asarray(q)
        action = np.where(better, best, action)


def _first_best(values: FloatArray, mask: BoolArray, rounding: float) -> IntArray:
    """[state]: the first of the best valid actions; values within rounding errors are ties."""
    valid = np.where(mask, values, -np.inf)
    largest = valid.max(axis=1, keepdims=True)
    return np.asarray(np.argmax(valid >= largest - rounding * np.maximum(1.0, np.abs(largest)), axis=1))
