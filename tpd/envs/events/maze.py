"""Events of MiniGrid levels, from the cells of the grid and the object that the agent carries."""

import numpy as np

from tpd.core.types import Array, BoolArray, IntArray, Transitions

DOOR, KEY = 4, 5
OPEN = 0
FORWARD = 2


def takes_key(t: Transitions) -> BoolArray:
    """The agent picks up a key."""
    return ~_has_key(t.observation) & _has_key(t.next_observation)


def drops_key(t: Transitions) -> BoolArray:
    return _has_key(t.observation) & ~_has_key(t.next_observation)


def holds_key(t: Transitions) -> BoolArray:
    """The agent has a key in its hand."""
    return _has_key(t.next_observation)


def opens_door(t: Transitions) -> BoolArray:
    """A door is opened. An agent in an open doorway hides the door; leaving it does not count."""
    return _seen_alike(t) & (_open_doors(t.next_observation) > _open_doors(t.observation))


def closes_door(t: Transitions) -> BoolArray:
    """A door is closed again."""
    return _seen_alike(t) & (_open_doors(t.next_observation) < _open_doors(t.observation))


def reaches_goal(t: Transitions) -> BoolArray:
    """The episode ends with a reward, which MiniGrid gives only at the goal."""
    return np.asarray(t.terminated & (t.reward > 0))


def bumps(t: Transitions) -> BoolArray:
    """The agent moves forward but is blocked by a wall, a closed door or a key."""
    return np.asarray((t.action == FORWARD) & ~t.terminated & _same(t))


def wastes_a_step(t: Transitions) -> BoolArray:
    """The step changes nothing."""
    return np.asarray(~t.terminated & _same(t))


def _same(t: Transitions) -> BoolArray:
    cells = (t.observation["cells"] == t.next_observation["cells"]).all(axis=1)
    return np.asarray(cells & (t.observation["carrying"] == t.next_observation["carrying"]))


def _has_key(observed: Array) -> BoolArray:
    return np.asarray(observed["carrying"] == KEY)


def _cells(observed: Array) -> IntArray:
    """[batch, cell, 3]: object, colour, state."""
    return np.asarray(observed["cells"]).reshape(len(observed), -1, 3)


def _seen_alike(t: Transitions) -> BoolArray:
    """The same number of doors is visible before and after the step."""
    return np.asarray(_doors(t.observation) == _doors(t.next_observation))


def _doors(observed: Array) -> IntArray:
    return np.asarray((_cells(observed)[..., 0] == DOOR).sum(axis=1))


def _open_doors(observed: Array) -> IntArray:
    cells = _cells(observed)
    return np.asarray(((cells[..., 0] == DOOR) & (cells[..., 2] == OPEN)).sum(axis=1))
