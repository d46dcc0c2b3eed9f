"""Chooses foils: the default action to compare with, and a better third action."""

from typing import Any

import gymnasium as gym
import numpy as np

from tpd.answers import what_if
from tpd.core.explanation import Explanation
from tpd.core.pairs import NO_PAIR
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer

POLICY, RUNNER_UP, OPPOSITE = "policy", "runner_up", "opposite"
NEAR = 0.1
"""Fraction of the action range: if the mirrored action is nearer than this, the foil is a bound instead."""
UNKNOWN = np.finfo(np.float64).min


def chosen(explainer: Explainer, env: Environment, observation: Array, action: Any) -> Array:
    """[...]: the action given by a name such as "runner_up", or itself, at the observation [1, ...]."""
    own = np.asarray(explainer.policy.action(observation)[0])
    if not isinstance(action, str) or action not in (POLICY, RUNNER_UP, OPPOSITE):
        return np.asarray(action)
    instead = others(env, own, env.mask(observation)[0] if env.discrete else None)
    if action == POLICY or not len(instead):
        return own
    explanation = explainer.explain(np.repeat(observation, len(instead), axis=0), instead)
    return np.asarray(instead[best(explanation, explainer.policy)])


def others(env: Environment, action: Array, valid: BoolArray | None) -> Array:
    """[other, ...]: candidate foils for an action.

    Discrete: all other valid actions [num_actions]. Actions that consist of parts: those that differ in one
    part. Continuous: only the opposite action.
    """
    if env.parts is not None:
        return env.parts.changes(action)
    if valid is None:
        return opposite(env.action_space, action[None])
    return np.flatnonzero(valid & (np.arange(len(valid)) != action))


def opposite(space: gym.Space[Any], actions: Array) -> Array:
    """[batch, ...]: the actions mirrored within their bounds.

    The mirror image of an action near the middle is too close, so its opposite is the farther bound in every
    dimension.
    """
    assert isinstance(space, gym.spaces.Box)
    mirrored = space.low + space.high - actions
    parts = tuple(range(-len(space.shape), 0))
    near = (np.abs(mirrored - actions) <= NEAR * (space.high - space.low)).all(axis=parts, keepdims=True)
    farther = np.where(actions > mirrored, space.low, space.high)
    return np.asarray(np.where(near, farther, mirrored))


def best(explanation: Explanation, policy: Policy) -> int:
    """The row of the default foil: the explained action with the highest score."""
    return int(np.argmax(scores(explanation, policy)))


def scores(explanation: Explanation, policy: Policy) -> FloatArray:
    """[batch]: the score of each action as default foil: its explained return; the lowest if unknown.

    Without rewards, the score is the agent's own value or, without values, the policy's probability; without
    both, the number of visits.
    """
    if explanation.legend.reward_bound is not None:
        return np.nan_to_num(what_if.returns(explanation, {}), nan=UNKNOWN)
    if explanation.agent_value is not None:
        return explanation.agent_value
    if isinstance(policy, DiscretePolicy):
        return policy.probabilities(explanation.observations)[range(len(explanation)), explanation.actions]
    return explanation.support


def favoured(
    explainer: Explainer, explanation: Explanation, options: IntArray, taken: IntArray
) -> tuple[IntArray, FloatArray]:
    """[row]: the action with a better explained return than the one taken, and the returns [row, action].

    It is the action taken if none is better, or if the band of the difference includes 0.
    options [row, action]: the row of each action in the explanation, or `NO_PAIR` if it is not valid.
    """
    if explanation.legend.reward_bound is None:
        return taken, np.full(options.shape, np.nan)
    rows = np.arange(len(options))
    returns = np.where(options == NO_PAIR, np.nan, what_if.returns(explanation, {})[options])
    most = explainer.favoured(returns, taken, options != NO_PAIR)
    settled = (explanation[options[rows, most]] - explanation[options[rows, taken]]).settled
    return np.where(settled, most, taken), returns
