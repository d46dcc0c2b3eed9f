"""Splits transitions into training and held-out data by whole episodes, whose steps are correlated."""

import numpy as np

from tpd.core.types import BoolArray, IntArray, State, Transitions
from tpd.guards.files import CheckedArrays

HOLD_OUT = 10
"""One in this many episodes is held out."""
BLOCK = 1000
"""Number of transitions that count as one episode if their order is unknown."""


class EpisodeSplit:
    """Decides, batch by batch, which transitions belong to held-out episodes."""

    def __init__(self) -> None:
        self._episodes: IntArray = np.zeros(0, dtype=np.int64)
        """[stream]: number of the current episode of each stream"""
        self._seen = 0

    def held_out(self, transitions: Transitions) -> BoolArray:
        """[batch]"""
        number = self._numbers(transitions)
        self._seen += len(transitions)
        return np.asarray(number % HOLD_OUT == HOLD_OUT - 1)

    def _numbers(self, transitions: Transitions) -> IntArray:
        """[batch]: the episode number of each transition; each stream counts its own episodes."""
        stream = transitions.stream
        if stream is None:
            return (self._seen + np.arange(len(transitions))) // BLOCK
        missing = max(0, int(stream.max(initial=-1)) + 1 - len(self._episodes))
        # each stream starts with another number, so that even short data has held-out episodes
        self._episodes = np.append(self._episodes, len(self._episodes) + np.arange(missing))
        ended = transitions.terminated | transitions.truncated
        order = np.argsort(stream, kind="stable")
        counts = np.cumsum(ended[order])
        before = np.empty(len(order), dtype=np.int64)
        starts = np.searchsorted(stream[order], stream[order], side="left")
        earlier: IntArray = counts - ended[order]  # episode ends before each step, incl. earlier streams
        before[order] = earlier - earlier[starts]
        numbers = self._episodes[stream] + before
        np.add.at(self._episodes, stream[ended], 1)
        return np.asarray(numbers)

    def state(self) -> State:
        """The episode number of each stream, and the number of transitions seen."""
        return {"episodes": self._episodes, "seen": np.array(self._seen)}

    def restore(self, state: State) -> None:
        """Continue from that state."""
        stored = CheckedArrays(state)
        episodes = stored.like("episodes", np.zeros(0, dtype=np.int64), rows=None, low=0)
        self._episodes, self._seen = episodes.copy(), stored.number("seen")
