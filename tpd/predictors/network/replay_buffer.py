"""The replay buffer: a ring of the newest transitions with their outcomes, linked in time order."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from gymnasium import spaces

from tpd.core.outcomes import Observed, OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, IntArray, State, Transitions
from tpd.envs.spaces import check_members
from tpd.guards.files import ANY, CheckedArrays
from tpd.guards.sizes import require_memory


@dataclass(frozen=True)
class Rows:
    """A batch whose fields are all arrays [batch, ...]."""

    def __len__(self) -> int:
        return len(self.columns()[0])

    def columns(self) -> tuple[Array, ...]:
        """The arrays, in order."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def __getitem__(self, index: Array | slice) -> Self:
        return type(self)(*(column[index] for column in self.columns()))


@dataclass(frozen=True)
class Experience(Rows):
    """A batch of transitions with their outcomes."""

    observation: Array
    """[batch, ...]"""
    action: Array
    """[batch, ...]"""
    next_observation: Array
    """[batch, ...]"""
    outcome: FloatArray
    """[batch, outcome]"""
    continuation: FloatArray
    """[batch, outcome]"""
    own: BoolArray
    """[batch]: whether the policy is known to have chosen the action"""
    selecting: BoolArray
    """[batch]: whether it belongs to an episode that is held out for model selection"""
    following: IntArray
    """[batch]: the row of the next transition of the same episode; -1 if there is none so far"""


class Ring:
    """A ring buffer of columns: once it is full, the oldest rows are overwritten."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.clear()

    def clear(self) -> None:
        """Remove all rows."""
        self._columns: tuple[Array, ...] = ()
        self._written = 0

    def __len__(self) -> int:
        return min(self._written, self.capacity)

    def _write(self, columns: Sequence[Array], rows: IntArray, count: int) -> None:
        """Write columns [row, ...] to these rows; the batch had `count`, of which the last ones are kept."""
        self._make_room(columns, len(rows))
        for kept, column in zip(self._columns, columns, strict=True):
            kept[rows] = column
        self._written += count

    def _make_room(self, columns: Sequence[Array], added: int) -> None:
        """Allocate on demand, because the capacity may never be reached."""
        room = len(self._columns[0]) if self._columns else 0
        due = min(self.capacity, self._written + added)
        if self._columns and due <= room:
            return
        grown = []
        for k, column in enumerate(columns):
            shape = (min(self.capacity, max(due, 2 * room)), *column.shape[1:])
            require_memory("the replay buffer", shape, column.dtype, "use a smaller explainer.replay_size")
            grown.append(np.empty(shape, column.dtype))
            if room:
                grown[k][:room] = self._columns[k]
        self._columns = tuple(grown)

    def state(self) -> State:
        """All rows, and the write position."""
        kept = {f"column_{k}": column[: len(self)] for k, column in enumerate(self._columns)}
        return {"written": np.array(self._written), **kept}


class ReplayBuffer(Ring):
    """The newest transitions with their outcomes; each is older than the one that `following` names."""

    def clear(self) -> None:
        """Remove all transitions."""
        super().clear()
        self._latest: dict[int, int] = {}
        """Stream -> number of its latest transition, counted from the first one ever written."""

    def add(self, transitions: Transitions, observed: Observed, selecting: BoolArray) -> None:
        """Add a batch, and link each transition to its predecessor."""
        count, before = len(transitions), self._before(transitions)
        rows = (self._written + np.arange(count)) % self.capacity
        experience = Experience(
            observation=transitions.observation,
            action=transitions.action,
            next_observation=transitions.next_observation,
            outcome=observed.outcome,
            continuation=observed.continuation,
            own=np.zeros(count, dtype=np.bool_) if transitions.own is None else transitions.own,
            selecting=selecting,
            following=np.full(count, -1, dtype=np.int64),
        )
        self._write(experience[-self.capacity :].columns(), rows[-self.capacity :], count)
        before = np.where(before < self._written - self.capacity, -1, before)  # overwritten by now
        linked = before >= 0
        led_to = self.kept.next_observation[before[linked] % self.capacity]
        linked[linked] = _alike(led_to, transitions.observation[linked])
        self.kept.following[before[linked] % self.capacity] = rows[linked]

    def _before(self, transitions: Transitions) -> IntArray:
        """[batch]: the number of each transition's predecessor in its stream; -1 if an episode starts."""
        before = np.full(len(transitions), -1, dtype=np.int64)
        if transitions.stream is None:
            return before
        numbers = self._written + np.arange(len(transitions))
        numbers[transitions.terminated | transitions.truncated] = -1
        order = np.argsort(transitions.stream, kind="stable")
        stream = transitions.stream[order]
        begins = np.flatnonzero(np.diff(stream, prepend=stream[:1] - 1))
        before[order[1:]] = numbers[order[:-1]]
        before[order[begins]] = [self._latest.get(number, -1) for number in stream[begins].tolist()]
        ends = np.append(begins[1:], len(stream)) - 1
        self._latest |= zip(stream[ends].tolist(), numbers[order[ends]].tolist(), strict=True)
        return before

    @property
    def kept(self) -> Experience:
        """All transitions, in the rows that `following` refers to; a view, so writes reach the buffer."""
        return Experience(*(column[: len(self)] for column in self._columns))

    def state(self) -> State:
        """All transitions, the write position, and the latest transition of each stream."""
        latest = np.array(list(self._latest.items()), dtype=np.int64).reshape(-1, 2)
        return {**super().state(), "latest": latest}

    def restore(self, state: State) -> None:
        """Replace the contents by a saved state."""
        self.clear()
        stored = CheckedArrays(state)
        written = stored.number("written")
        latest = stored.like("latest", np.zeros((0, 2), dtype=np.int64), rows=None)
        stored.check("latest", (latest >= -1) & (latest < [[2**62, written]]))
        rows = min(written, self.capacity)
        if len(state) > 2 or written:
            flags, following = np.zeros(0, dtype=np.bool_), np.zeros(0, dtype=np.int64)
            columns = [stored.take(f"column_{k}", (rows, ...), ANY) for k in (0, 1, 2)]
            outcomes = [stored.take(f"column_{k}", (rows, None), "f") for k in (3, 4)]
            columns += [outcome.astype(np.float32, copy=False) for outcome in outcomes]
            columns += [stored.like(f"column_{k}", flags, rows=rows) for k in (5, 6)]
            columns.append(stored.like("column_7", following, rows=rows, low=-1, high=rows - 1))
            self._check_links(stored, kept := Experience(*columns), written)
            self._write(kept.columns(), np.arange(rows), rows)
        self._written, self._latest = written, dict(latest.tolist())

    def _check_links(self, stored: CheckedArrays, kept: Experience, written: int) -> None:
        """Refuse links to an older or shared row, another split, or an observation that does not match."""
        age = (np.arange(len(kept)) - written) % len(kept)  # 0 is the oldest
        linked = kept.following >= 0
        before, after = np.flatnonzero(linked), kept.following[linked]
        right = np.ones(len(kept), dtype=np.bool_)
        right[before] = (age[after] > age[before]) & (np.bincount(after, minlength=len(kept))[after] == 1)
        right[before] &= kept.selecting[after] == kept.selecting[before]
        right[before] &= _alike(kept.next_observation[before], kept.observation[after])
        stored.check("column_7", right)


def check_kept(
    kept: Experience, both: Sequence[spaces.Space[Any]], hidden_state: int, outcomes: OutcomeSet
) -> None:
    """Refuse transitions that do not fit the spaces of observations and actions, or the outcomes."""
    observed, acted = both
    check_members("observation", kept.observation, observed, hidden_state)
    check_members("next_observation", kept.next_observation, observed, hidden_state)
    check_members("action", kept.action, acted)
    outcomes.check_observed(Observed(kept.outcome, kept.continuation))


def _alike(observations: Array, others: Array) -> BoolArray:
    """[batch]: which rows are equal."""
    same = observations == others
    return np.asarray(same.all(axis=tuple(range(1, same.ndim))))
