"""Assigns each outcome its kind of network output: softmax, sigmoid, distribution over steps, regression."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tpd.core.outcomes import FIRST, OutcomeSet
from tpd.core.types import FloatArray, IntArray, Transitions

ENOUGH_SEEN = 1000
"""Transitions from which on the kind of an outcome is determined from observed values."""
ENOUGH_ENDS = 20
"""Terminations with a value other than 0 from which on an outcome is taken for one that is 0 elsewhere."""


class Split(NamedTuple):
    """Outcomes grouped by their kind of output."""

    partition: Tensor
    """[..., member]"""
    events: Tensor
    """[..., event]"""
    real: Tensor
    """[..., outcome]"""
    first: Tensor
    """[..., event]: first occurrences"""
    again: Tensor
    """[..., event]: events that can happen again"""
    ending: Tensor
    """[..., event]: events that end the episode"""
    end: Tensor
    """[..., 1 or 0]: termination, unless a partition determines it"""


@dataclass(frozen=True)
class Columns:
    """The output kind of each outcome column; the last column is termination."""

    width: int
    """Number of columns."""
    partition: tuple[int, ...] = ()
    """Events of a partition (exactly one happens while the episode runs): one softmax per step."""
    events: tuple[int, ...] = ()
    """Other events: one sigmoid per step."""
    again: tuple[tuple[int, int], ...] = ()
    """Events that can repeat, each with the column of its first occurrence: the first occurrence has its own
    distribution, repetitions a sigmoid per step."""
    first: tuple[int, ...] = ()
    """First occurrences: one softmax over the steps and "never"."""
    ending: tuple[tuple[int, ...], ...] = ()
    """Events that end the episode, each with all its columns (its first occurrence equals the event): one
    softmax over events, steps and "does not end"."""
    real: tuple[int, ...] = ()
    """Real-valued outcomes: regression."""
    exclusive: tuple[int, ...] = ()
    """Events with outputs of their own of which at most one happens at a step: the next actions."""
    final: tuple[int, ...] = ()
    """Real-valued outcomes that are 0 except at termination: regression given that the episode ends."""

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(self.width)):
            raise ValueError(
                f"a network must predict each of its {self.width} outcomes (columns 0 to {self.width - 1}) "
                f"once, but it predicts the columns {sorted(self.order)}"
            )
        if not {*self.exclusive} <= {*self.events}:
            raise ValueError(f"the mutually exclusive outcomes {self.exclusive} of a network must be events")
        if not {*self.final} <= {*self.real} or (self.final and not self.over_time):
            raise ValueError(
                f"the outcomes {self.final} of a network, given at termination, must be real-valued"
            )
        if not {first for _, first in self.again} <= set(self.first) or not all(self.ending):
            raise ValueError(
                "in a network, each event that can repeat must name the column of its first occurrence, and "
                f"each event that ends the episode must have a column: got {self.again} with first "
                f"occurrences {self.first}, and {self.ending}"
            )

    @classmethod
    def of(cls, outcomes: OutcomeSet) -> "Columns":
        """The columns of an outcome set, without events that end the episode (see `ended_by`)."""
        names = [outcome.name for outcome in outcomes.outcomes]
        members = set(outcomes.legend.partition)
        partition, events, again, real = list[int](), list[int](), list[tuple[int, int]](), list[int]()
        first = tuple(k for k, outcome in enumerate(outcomes.outcomes) if outcome.first)
        for k, outcome in enumerate(outcomes.outcomes):
            if outcome.name in members:
                partition.append(k)
            elif not outcome.is_event:
                real.append(k)
            elif not outcome.first and FIRST + outcome.name in names:
                again.append((k, names.index(FIRST + outcome.name)))
            elif not outcome.first:
                events.append(k)
        if partition:  # else termination is predicted as one distribution over the steps
            events.append(len(outcomes.outcomes))
        return cls(outcomes.width, tuple(partition), tuple(events), tuple(again), first, (), tuple(real))

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> "Columns":
        """The inverse of `asdict`, after a JSON round trip."""
        kinds = {name: _tuples(value) for name, value in stored.items() if name != "width"}
        return cls(stored["width"], **kinds)

    @classmethod
    def all_real(cls, width: int) -> "Columns":
        """All columns by regression."""
        return cls(width, real=tuple(range(width)))

    def ended_by(self, endings: Sequence[int]) -> "Columns":
        """The same columns, where the events `endings` end the episode and exclude each other."""
        # its own column, and that of its first occurrence if there is one
        groups = [(k, *(first for at, first in self.again if at == k)) for k in endings]
        taken = {k for group in groups for k in group}
        return replace(
            self,
            events=tuple(k for k in self.events if k not in taken),
            again=tuple(pair for pair in self.again if pair[0] not in taken),
            first=tuple(k for k in self.first if k not in taken),
            ending=tuple(groups),
        )

    @property
    def order(self) -> list[int]:
        """[width]: the columns in the network's order."""
        groups = [k for group in self.ending for k in group]
        end = [self.width - 1] if self.over_time else []
        at = [at for at, _ in self.again]
        return [*self.partition, *self.events, *self.real, *self.first, *at, *groups, *end]

    @property
    def before(self) -> list[int]:
        """[again]: index in `first` of each repeatable event's first occurrence."""
        return [self.first.index(first) for _, first in self.again]

    def split(self, outcome: Tensor) -> "Split":
        """Split outcomes [..., width], in the network's order, by their kind of output."""
        groups = [len(group) for group in self.ending]
        sizes = [len(self.partition), len(self.events), len(self.real), len(self.first), len(self.again)]
        sizes += [sum(groups), int(self.over_time)]
        partition, events, real, first, again, ending, end = torch.split(outcome, sizes, dim=-1)
        ending = ending[..., np.cumsum([0, *groups])[:-1].tolist()]  # the group's other columns are equal
        return Split(partition, events, real, first, again, ending, end)

    @property
    def over_time(self) -> bool:
        """Whether termination is predicted as one distribution over the steps."""
        return not self.partition and self.width - 1 not in self.real

    @property
    def channels(self) -> int:
        """Number of outputs for each step ahead; a softmax has an extra one for "episode has ended"."""
        softmax = len(self.partition) + bool(self.partition)
        return softmax + len(self.events) + len(self.again) + len(self.real)

    def times(self, horizon: int) -> int:
        """Number of outputs for distributions over the steps."""
        ending = (len(self.ending) + 1) * horizon + 1 if self.over_time else 0
        return ending + len(self.first) * (horizon + 1)


def next_actions(columns: Columns, actions: IntArray, outcome: FloatArray) -> tuple[int, ...]:
    """The columns of events that follow from the discrete action alone, and exclude each other.

    They are found in observed actions [batch] and outcomes [batch, outcome]; none if these are too few.
    Events with a first occurrence are left out: scaled, they could fall below it.
    """
    if len(actions) < ENOUGH_SEEN:
        return ()
    count = np.bincount(actions)
    found, taken = list[int](), np.zeros(len(count), dtype=np.bool_)
    for k in sorted({*columns.events} - {columns.width - 1}):
        happened = np.bincount(actions, weights=outcome[:, k])
        always = (happened == count) & (count > 0)
        follows = (always | (happened == 0)).all() and always.any() and not always.all()
        if follows and not (always & taken).any():
            found.append(k)
            taken |= always
    return tuple(found) if len(found) > 1 else ()


def only_at_the_end(columns: Columns, outcome: FloatArray) -> tuple[int, ...]:
    """The real-valued columns that were 0 in all transitions except terminations.

    They are found in observed outcomes [batch, outcome]; none if these, or those other than 0, are too few.
    """
    if len(outcome) < ENOUGH_SEEN or not columns.over_time:
        return ()
    ended = outcome[:, -1] > 0
    ends, others = ((outcome[rows] != 0).sum(axis=0) for rows in (ended, ~ended))
    return tuple(k for k in columns.real if ends[k] >= ENOUGH_ENDS and not others[k])


def _tuples(value: Any) -> Any:
    """Lists as tuples, at any depth."""
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


class EndingEvents:
    """Finds events that happen only at termination and exclude each other.

    It evaluates the events on every transition twice, with `terminated` set to False and to True. Events that
    read `info` are skipped, because `info` would contradict the changed flag.
    """

    def __init__(self, outcomes: OutcomeSet) -> None:
        names = [outcome.name for outcome in outcomes.outcomes]
        self._asked = {
            k: outcome
            for k, outcome in enumerate(outcomes.outcomes)
            if outcome.is_event
            and not outcome.info_keys
            and not outcomes.partition
            and not (outcome.first and outcome.name.removeprefix(FIRST) in names)
        }
        size = len(outcomes.outcomes)
        self.otherwise: IntArray = np.zeros(size, dtype=np.int64)
        """[outcome]: how often the event happens with `terminated` set to False"""
        self.together: IntArray = np.zeros((size, size), dtype=np.int64)
        """[outcome, outcome]: how often both events happen with `terminated` set to True"""

    def ask(self, transitions: Transitions) -> None:
        """Count the events of a batch."""
        if not self._asked:
            return
        asked = list(self._asked)
        ended, not_ended = (self._happened(transitions, terminated) for terminated in (True, False))
        self.otherwise[asked] += not_ended.sum(axis=0).astype(np.int64)
        self.together[np.ix_(asked, asked)] += (ended.T @ ended).astype(np.int64)

    def _happened(self, transitions: Transitions, terminated: bool) -> FloatArray:
        """[batch, event]: the events with `terminated` set to this value in all transitions."""
        asked = replace(transitions, terminated=np.full(len(transitions), terminated))
        return np.stack([outcome.values(asked) for outcome in self._asked.values()], axis=1)

    @property
    def found(self) -> tuple[int, ...]:
        """The columns of the events found."""
        chosen = list[int]()
        for k in self._asked:
            ends = self.together[k, k] > 0 and not self.otherwise[k]
            if ends and not self.together[k, chosen].any():
                chosen.append(k)
        return tuple(chosen)
