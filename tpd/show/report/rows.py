"""The rows of a report: states, their actions, and the recorded steps."""

from dataclasses import dataclass

import numpy as np

from tpd.answers.foil import others
from tpd.core.types import Array, IntArray
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer
from tpd.show.report import pictures
from tpd.sources.episodes import Recording

TAKEN = 0
"""The column of the action taken, if its opposite is the only other one."""


@dataclass(frozen=True)
class Rows:
    """The states of a report, the actions available there, and the actions taken."""

    observations: Array
    """[state, ...]"""
    actions: Array
    """[state, column, ...]"""
    valid: Array
    """[state, column]"""
    names: tuple[tuple[str, ...], ...]
    """[state or 1, column]: names of the actions; one row if they are the same in all states"""
    entries: IntArray
    """[entry, 2]: the state, and the column of the action taken"""
    steps: IntArray
    """[step]: the entry of each recorded step"""

    def name(self, state: int, column: int) -> str:
        return self.names[state if len(self.names) > 1 else 0][column]


def numbered_states(
    explainer: Explainer, env: Environment, recording: Recording | None, explorable: bool
) -> Rows:
    """Rows for discrete states, each once; if explorable, all states that the fields can describe."""
    own = np.zeros((0, 2), dtype=np.int64)
    if recording is not None:
        transitions = recording.episodes.transitions
        own = np.stack([transitions.observation, transitions.action], axis=1)
    states = np.unique(own[:, 0])
    if explorable:
        states = np.array([int(env.state(one)) for one in pictures.combinations(env.state_fields)])
        own = np.concatenate([np.stack([states, explainer.policy.action(states)], axis=1), own])
    distinct, index = _distinct(own)
    row = np.zeros(env.table_shape()[0], dtype=np.int64)
    row[states] = np.arange(len(states))
    return Rows(
        observations=states,
        actions=np.broadcast_to(np.arange(env.num_actions), (len(states), env.num_actions)),
        valid=env.mask(states),
        names=(env.numbered_action_names,),
        entries=np.stack([row[distinct[:, 0]], distinct[:, 1]], axis=1),
        steps=index[len(states) if explorable else 0 :],
    )


def _distinct(rows: IntArray) -> tuple[IntArray, IntArray]:
    """The rows without duplicates, in order of first occurrence, and the new index of each row."""
    _, first, index = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return rows[first[order]], np.argsort(order)[index.ravel()]


def each_step(env: Environment, recording: Recording) -> Rows:
    """Rows with one entry per recorded step; the foil of a continuous action is its opposite, the foils of an
    action with parts are all changes of one part.
    """
    transitions = recording.episodes.transitions
    count = len(transitions)
    if env.discrete:
        every = np.broadcast_to(np.arange(env.num_actions), (count, env.num_actions))
        actions, taken = every, transitions.action
        names: tuple[tuple[str, ...], ...] = (env.numbered_action_names,)
        valid = env.mask(transitions.observation)
    else:
        both = [np.concatenate([action[None], others(env, action, None)]) for action in transitions.action]
        actions, taken = np.stack(both), np.full(count, TAKEN)
        names = tuple(_names(env, choices) for choices in actions)
        valid = np.ones(actions.shape[:2], dtype=np.bool_)
    steps = np.arange(count)
    return Rows(transitions.observation, actions, valid, names, np.stack([steps, taken], axis=1), steps)


def choices_of_each_step(env: Environment) -> int:
    """Number of actions explained at each step, including the one taken."""
    if env.discrete:
        return env.num_actions
    return 2 if env.parts is None else 1 + int((env.parts.counts - 1).sum())


def _names(env: Environment, choices: Array) -> tuple[str, ...]:
    """Names of an action and its foils [choice, ...]; for actions with parts, the changed part."""
    first = env.name_of_action(choices[0])
    if env.parts is not None:
        return (first, *(env.parts.name_change(foil, choices[0]) for foil in choices[1:]))
    return (first, *(env.name_of_action(foil) for foil in choices[1:]))
