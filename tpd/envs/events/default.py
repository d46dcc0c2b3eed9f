"""Default outcomes (next actions, reward, termination), which work for any environment."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from gymnasium import spaces

from tpd.core.outcomes import Outcome, OutcomeSet, event, reward
from tpd.core.types import BoolArray, FloatArray, Transitions
from tpd.envs.environment import Environment

ACTION = "action: "
"""Prefix of the names of next-action outcomes."""


def took(t: Transitions, action: int) -> BoolArray:
    """The agent took this discrete action."""
    return np.asarray(t.action == action)


def dimension(t: Transitions, index: int) -> FloatArray:
    """One component of a vector action."""
    return np.asarray(t.action).reshape(len(t), -1)[:, index]


def chose(t: Transitions, part: int, choice: int) -> BoolArray:
    """The agent made this choice in one part of an action with several parts."""
    return np.asarray(np.asarray(t.action).reshape(len(t), -1)[:, part] == choice)


def ended(t: Transitions) -> BoolArray:
    """The episode terminates."""
    return t.terminated


def every_step(t: Transitions) -> FloatArray:
    """1 for every step, including the last one."""
    return np.ones(len(t))


def default_outcomes(env: Environment, reward_low: float = -1e6, reward_high: float = 1e6) -> OutcomeSet:
    """Next actions, reward and termination, for any environment.

    Exactly one discrete action is taken per step, so the remainder to probability 1 is termination; for
    vector actions, termination is an event of its own. Environments do not state the range of their rewards,
    so the default bounds are wide; tighter ones make the bound on the return beyond the horizon useful.
    """
    actions, rewards = next_actions(env), reward(reward_low, reward_high)
    if env.discrete:
        return OutcomeSet([*actions, rewards], partition=True, accounts_for_reward=True)
    return OutcomeSet([*actions, rewards, event("end", ended)], accounts_for_reward=True)


def next_actions(env: Environment) -> list[Outcome]:
    """One outcome per discrete action, per choice of each part, or per component of a vector action."""
    if (parts := env.parts) is not None:
        return [
            event(f"action: {parts.name_choice(*which)}", partial(chose, part=which[0], choice=which[1]))
            for which in parts.all_choices
            if parts.counts[which[0]] > 1
        ]
    if not env.discrete:
        return _dimensions(env)
    # with reward 0: the reward has its own outcome
    return [
        event(_title(env.name_of_action(a)), partial(took, action=a), reward=0.0)
        for a in range(env.num_actions)
    ]


def _dimensions(env: Environment) -> list[Outcome]:
    """The components of a vector action, without constant ones."""
    assert isinstance(env.action_space, spaces.Box)
    low, high = np.ravel(env.action_space.low), np.ravel(env.action_space.high)
    names: Sequence[str] = tuple(env.action_names) or [str(index) for index in range(len(low))]
    if len(names) != len(low):
        raise ValueError(f"an action of {env.id} has {len(low)} numbers but {len(names)} names: {names}")
    return [
        Outcome(_title(names[i]), partial(dimension, index=i), float(low[i]), float(high[i]))
        for i in range(len(low))
        if low[i] < high[i]
    ]


def _title(action: str) -> str:
    return f"{ACTION}{action.removeprefix('action ')}"
