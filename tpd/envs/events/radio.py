"""Events and reward terms of the radio network, as functions of transitions.

Users and cells are numbered from 0 in arrays; in names, the first user is user 1 and the first cell is A.
"""

from functools import partial

import numpy as np

from tpd.core.outcomes import Outcome, OutcomeSet, component, event
from tpd.core.types import Array, BoolArray, FloatArray, IntArray, Transitions

USERS, CELLS = 5, 3
HANDOVER_COST = 0.02
"""Reward lost per handover."""
MEMORY = 10
"""Steps for which the observation shows that a user left a cell; returning within them is ping-pong."""
AGREED = 0.0
"""The agreed minimum of a user's utility, on a scale from -1 to 1."""
CROWDED = 3
"""A cell with at least this many users is overloaded."""
NOWHERE = -1


def radio_outcomes() -> OutcomeSet:
    """The events of each user and cell that matter to an operator, and the terms of the reward."""
    users, cells = range(USERS), [(cell, "ABC"[cell]) for cell in range(CELLS)]
    events = [
        *(event(f"user {u + 1} loses coverage", partial(loses_coverage, user=u)) for u in users),
        *(event(f"user {u + 1} handed over", partial(handed_over, user=u)) for u in users),
        event("ping-pong", ping_pong),
    ]
    states = [
        *(event(f"user {u + 1} below agreed", partial(below_agreed, user=u)) for u in users),
        *(event(f"cell {name} overloaded", partial(overloaded, cell=cell)) for cell, name in cells),
    ]
    terms: list[Outcome] = [
        *(component(f"user {u + 1} utility", partial(utility, user=u), -0.2, 0.2) for u in users),
        component("handover cost", handover_cost, -HANDOVER_COST * USERS - 1e-6, 1e-6),
    ]
    first = [outcome.name for outcome in events]
    return OutcomeSet([*events, *states, *terms], accounts_for_reward=True, first=first)


def loses_coverage(t: Transitions, user: int) -> BoolArray:
    """A user loses its serving cell."""
    before, after = _cells(t)
    return np.asarray((before[:, user] != NOWHERE) & (after[:, user] == NOWHERE))


def handed_over(t: Transitions, user: int) -> BoolArray:
    """A user is handed over from one cell to another."""
    return np.asarray(_handed_over(t)[:, user])


def ping_pong(t: Transitions) -> BoolArray:
    """A user is handed back to a cell that it left a few steps before."""
    left = _parts(t.observation)[..., 2 * CELLS + 1 :] > 0.5 / MEMORY
    back = np.take_along_axis(left, np.maximum(_cells(t)[1], 0)[..., None], axis=2)[..., 0]
    return np.asarray((_handed_over(t) & back).any(axis=1))


def below_agreed(t: Transitions, user: int) -> BoolArray:
    """The utility of a user is below the agreed minimum."""
    return np.asarray(_utility(t)[:, user] < AGREED)


def overloaded(t: Transitions, cell: int) -> BoolArray:
    """A cell serves too many users."""
    return np.asarray((_cells(t)[1] == cell).sum(axis=1) >= CROWDED)


def utility(t: Transitions, user: int) -> FloatArray:
    """The contribution of a user to the reward."""
    return _utility(t)[:, user] / USERS


def handover_cost(t: Transitions) -> FloatArray:
    """The cost of all handovers: the remainder of the reward after the other terms."""
    return np.asarray(t.reward - _utility(t).mean(axis=1))


def _handed_over(t: Transitions) -> BoolArray:
    """[batch, user]"""
    before, after = _cells(t)
    left = _parts(t.next_observation)[..., 2 * CELLS + 1 :] == 1  # left in this step
    return np.asarray((before != after) & left.any(axis=2) & (after != NOWHERE))


def _parts(seen: Array) -> FloatArray:
    """[batch, user, 3 * cell + 1]"""
    return np.asarray(seen).reshape(len(seen), USERS, 3 * CELLS + 1)


def _cells(t: Transitions) -> tuple[IntArray, IntArray]:
    """[batch, user] before and after the step: the serving cell of each user, or NOWHERE."""
    before, after = (
        np.where(serving.any(axis=2), serving.argmax(axis=2), NOWHERE)
        for serving in (_parts(seen)[..., :CELLS] > 0.5 for seen in (t.observation, t.next_observation))
    )
    return before, after


def _utility(t: Transitions) -> FloatArray:
    """[batch, user]"""
    return _parts(t.next_observation)[..., 2 * CELLS].astype(np.float64)
