"""The actions that an explanation is contrasted with, where nobody names one."""

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
"""Of the range of actions: one whose mirror image is nearer is set against a bound instead."""
UNKNOWN = np.finfo(np.float64).min


def chosen(explainer: Explainer, env: Environment, observation: Array, action: Any) -> Array:
    """[...]: the action that a pair names, in the observation [1, ...]."""
    own = np.asarray(explainer.policy.action(observation)[0])
    if not isinstance(action, str) or action not in (POLICY, RUNNER_UP, OPPOSITE):
        return np.asarray(action)
    instead = others(env, own, env.mask(observation)[0] if env.discrete else None)
    if action == POLICY or not len(instead):
        return own
    explanation = explainer.explain(np.repeat(observation, len(instead), axis=0), instead)
    return np.asarray(instead[best(explanation, explainer.policy)])


def others(env: Environment, action: Array, valid: BoolArray | None) -> Array:
    """[other, ...]: what can be done instead of an action.

    These are the other valid actions [num_actions]; where an action consists of parts, those that differ from
    it in one; where actions are continuous, only the opposite.
    """
    if env.parts is not None:
        return env.parts.changes(action)
    if valid is None:
        return opposite(env.action_space, action[None])
    return np.flatnonzero(valid & (np.arange(len(valid)) != action))


def opposite(space: gym.Space[Any], actions: Array) -> Array:
    """[batch, ...]: the actions mirrored within their bounds.

    An action near the middle is its own mirror image, so its opposite is the farther bound in every part.
    """
    assert isinstance(space, gym.spaces.Box)
    mirrored = space.low + space.high - actions
    parts = tuple(range(-len(space.shape), 0))
    near = (np.abs(mirrored - actions) <= NEAR * (space.high - space.low)).all(axis=parts, keepdims=True)
    farther = np.where(actions > mirrored, space.low, space.high)
    return np.asarray(np.where(near, farther, mirrored))


def best(explanation: Explanation, policy: Policy) -> int:
    """Which of the actions explained is the default foil: that of the highest score."""
    return int(np.argmax(scores(explanation, policy)))


def scores(explanation: Explanation, policy: Policy) -> FloatArray:
    """[batch]: what makes an action the default foil: its explained return, the lowest where it is unknown.

    Where outcomes say nothing of rewards it is the agent's own value of it or, without values, how likely the
    agent takes it; where neither is known, how often it was tried.
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
    """[row]: the action that the explained returns favour over the one taken, and the returns [row, action].

    It is the one taken where nothing is better, or where the band of the difference does not exclude 0.
    options [row, action]: which pair of the explanation an action is there, or `NO_PAIR` if it is not valid.
    """
    if explanation.legend.reward_bound is None:
        return taken, np.full(options.shape, np.nan)
    rows = np.arange(len(options))
    returns = np.where(options == NO_PAIR, np.nan, what_if.returns(explanation, {})[options])
    most = explainer.favoured(returns, taken, options != NO_PAIR)
    settled = (explanation[options[rows, most]] - explanation[options[rows, taken]]).settled
    return np.where(settled, most, taken), returns
