"""The actions that an explanation is contrasted with, where nobody names one."""

from typing import Any

import gymnasium as gym
import numpy as np

from tpd.answers import what_if
from tpd.core.explanation import Explanation
from tpd.core.pairs import NO_PAIR
from tpd.core.types import Array, DiscretePolicy, FloatArray, IntArray
from tpd.envs import Environment
from tpd.envs.action_parts import ActionParts
from tpd.predictors.explainer import Explainer

POLICY, RUNNER_UP, OPPOSITE = "policy", "runner_up", "opposite"
NEAR = 0.1
"""Of the range of actions: one whose mirror image is nearer is set against a bound instead."""


def chosen(explainer: Explainer, env: Environment, observation: Array, action: Any) -> Array:
    """[...]: the action that a pair names, in the observation [1, ...]."""
    own = explainer.policy.action(observation)[0]
    if isinstance(action, str) and action == POLICY:
        return np.asarray(own)
    if isinstance(action, str) and action == RUNNER_UP:
        if env.parts is not None:
            return best_change(explainer, env.parts, observation, own)
        return np.asarray(runner_up(explainer, env, observation, int(own)))
    if isinstance(action, str) and action == OPPOSITE:
        return opposite(env.action_space, own)
    return np.asarray(action)


def opposite(space: gym.Space[Any], actions: Array) -> Array:
    """[..., *shape]: the actions mirrored within their bounds.

    An action near the middle is its own mirror image, so its opposite is the farther bound in every part.
    """
    assert isinstance(space, gym.spaces.Box)
    mirrored = space.low + space.high - actions
    parts = tuple(range(-len(space.shape), 0))
    near = (np.abs(mirrored - actions) <= NEAR * (space.high - space.low)).all(axis=parts, keepdims=True)
    farther = np.where(actions > mirrored, space.low, space.high)
    return np.asarray(np.where(near, farther, mirrored))


def best_change(explainer: Explainer, parts: ActionParts, observation: Array, own: Array) -> Array:
    """The best action that differs from the policy's in one part, by the explained returns."""
    changes = parts.changes(own)
    if explainer.legend.reward_bound is None:
        return np.asarray(changes[0])
    explanation = explainer.explain(np.repeat(observation, len(changes), axis=0), changes)
    return np.asarray(changes[np.nan_to_num(what_if.returns(explanation, {}), nan=-np.inf).argmax()])


def runner_up(explainer: Explainer, env: Environment, observation: Array, own: int) -> int:
    """The best valid action that the policy does not take; its own where it has no choice.

    Best by the explained returns; where the outcomes say nothing of rewards, by the agent itself.
    """
    policy = explainer.policy
    assert isinstance(policy, DiscretePolicy)
    scores = policy.action_values(observation)
    if explainer.legend.reward_bound is not None:
        scores = np.nan_to_num(explainer.action_returns(observation), nan=np.finfo(np.float64).min)
    if scores is None:
        scores = policy.probabilities(observation)
    others = env.mask(observation)[0].copy()
    others[own] = False
    return int(np.argmax(np.where(others, scores[0], -np.inf))) if others.any() else own


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
    best = explainer.favoured(returns, taken, options != NO_PAIR)
    settled = (explanation[options[rows, best]] - explanation[options[rows, taken]]).settled
    return np.where(settled, best, taken), returns
