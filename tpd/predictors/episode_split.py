"""Which transitions are held out from training: whole episodes, as steps of one are much alike."""

import numpy as np

from tpd.core.types import BoolArray, IntArray, State, Transitions
from tpd.guards.files import CheckedArrays

HOLD_OUT = 10
"""One in so many episodes is held out."""
BLOCK = 1000
"""Transitions that stand for an episode where their order is not known."""


class EpisodeSplit:
    """Says of each batch, as it comes, which of its transitions belong to episodes that are held out."""

    def __init__(self) -> None:
        self._episodes: IntArray = np.zeros(0, dtype=np.int64)
        """[stream]: how many episodes have ended in it"""
        self._seen = 0

    def held_out(self, transitions: Transitions) -> BoolArray:
        """[batch]"""
        number = self._numbers(transitions)
        self._seen += len(transitions)
        return np.asarray(number % HOLD_OUT == HOLD_OUT - 1)

    def _numbers(self, transitions: Transitions) -> IntArray:
        """[batch]: of the episode that each belongs to; those of different streams are apart."""
        stream = transitions.stream
        if stream is None:
            return (self._seen + np.arange(len(transitions))) // BLOCK
        missing = max(0, int(stream.max(initial=-1)) + 1 - len(self._episodes))
        # another one starts with each stream, so that short data has episodes of both kinds
        self._episodes = np.append(self._episodes, len(self._episodes) + np.arange(missing))
        ended = transitions.terminated | transitions.truncated
        order = np.argsort(stream, kind="stable")
        counts = np.cumsum(ended[order])
        before = np.empty(len(order), dtype=np.int64)
        starts = np.searchsorted(stream[order], stream[order], side="left")
        earlier: IntArray = counts - ended[order]  # endings before each step, of streams before it too
        before[order] = earlier - earlier[starts]
        numbers = self._episodes[stream] + before
        np.add.at(self._episodes, stream[ended], 1)
        return np.asarray(numbers)

    def state(self) -> State:
        """How far each stream is."""
        return {"episodes": self._episodes, "seen": np.array(self._seen)}

    def restore(self, state: State) -> None:
        """Go on from there."""
        stored = CheckedArrays(state)
        episodes = stored.like("episodes", np.zeros(0, dtype=np.int64), rows=None, low=0)
        self._episodes, self._seen = episodes.copy(), stored.number("seen")
