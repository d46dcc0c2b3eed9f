"""Turning points of one episode, found by rollouts, without any learning.

The probability of a decisive event by a fixed step is estimated by rollouts from several moments of the
episode. It stays constant as long as everything goes as expected. If it differs between two moments,
bisection finds the step at which it jumps. Each jump is confirmed with fresh rollouts, because the largest of
many noisy differences is biased upwards.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tpd.answers.decisive import decisive_in, plain_events
from tpd.answers.sentences.turning import turned
from tpd.answers.turning_points import happened_in_words
from tpd.core.intervals import clopper_pearson
from tpd.core.types import FloatArray
from tpd.predictors.simulation import Choices, Simulator, seed_at
from tpd.sources.episodes import Recording
from tpd.sources.moments import Moment

GRID = (1, 0, 0.5, 0.75, 0.25)
"""The first moments of the search, as fractions of the episode: the last, the first, and some between."""
SCANNED, CONFIRMED = 30, 100
"""Rollouts of a moment in the search, and to confirm a jump."""
LEAST_JUMP = 0.15
"""Minimum change of a probability at a turning point."""
LEVEL = 0.99
"""Level of the bands before and after a step, which must not overlap."""
BEYOND_NOISE = 2
"""The search continues between two moments if they differ by more than this many standard errors."""
MOST_ASKED = 60
"""Maximum number of moments, even if time is left."""


@dataclass(frozen=True)
class TurningPoint:
    """A step of an episode that made a decisive event more or less likely.

    `before` and `after` are probabilities given the recorded action, so the change is due to the outcome of
    the step, not to the choice of its action.
    """

    moment: Moment
    """The moment before the step, to ask about."""
    last: int
    """The last step of the range that contains it: the step itself, unless time ran out."""
    happened: str
    """What happened at the step; empty if only a range of steps was found."""
    event: str
    until: int
    """The event is predicted by this step of the episode."""
    before: float
    after: float
    rollouts: int
    """The number of rollouts behind each of the two probabilities."""

    @property
    def step(self) -> int:
        """The step, or the first of the range that contains it."""
        return self.moment.step

    @property
    def change(self) -> float:
        """The change of the event's probability."""
        return self.after - self.before

    def __str__(self) -> str:
        place = f"step {self.step}" if self.last == self.step else f"steps {self.step} to {self.last}"
        when = f"by step {self.until}"
        said = turned(self.happened, self.event, when, self.before, self.after)
        which, whose = (
            ("this step", "its action") if self.last == self.step else ("these steps", "their actions")
        )
        why = f"due to the random result of {which}, not to the choice of {whose}"
        return f"{place}: {said} ({self.rollouts} rollouts each); {why}"


def search_turning_points(
    simulator: Simulator, recording: Recording, number: int, seconds: float, most: int
) -> tuple[list[TurningPoint], bool]:
    """The turning points of one recorded episode, largest first, at most `most`, in about `seconds`.

    Also whether the search was finished: if not, there may be others.
    """
    names = decisive_in(recording, simulator.outcomes.legend)
    if not names:
        return [], True
    search = _Search(simulator, recording, number, names, seconds)
    finished = search.bisect()
    found = [point for pair in search.jumps()[: 2 * most] if (point := search.confirmed(*pair))]
    return sorted(found, key=lambda point: -abs(point.change))[:most], finished


class _Search:
    """The search state: event probabilities at the moments that were rolled out so far."""

    def __init__(
        self, simulator: Simulator, recording: Recording, number: int, names: Sequence[str], seconds: float
    ) -> None:
        self._simulator, self._recording, self._number, self._names = simulator, recording, number, names
        columns = plain_events(simulator.outcomes.legend)
        self._columns = [columns[name] for name in names]
        self._steps = len(recording.episodes[number])
        limit = simulator.env.time_limit
        self._until = min(self._steps + simulator.horizon, np.inf if limit is None else limit)
        self._ends, self._found = time.monotonic() + seconds, dict[int, FloatArray]()

    def bisect(self) -> bool:
        """Roll out moments until every jump is found, or time is up; returns whether every jump is found."""
        for share in GRID:
            self._ask(round(share * (self._steps - 1)))
        while wide := [(first, last) for first, last in self.jumps() if last - first > 1]:
            if len(self._found) >= MOST_ASKED or self._late:
                return False
            self._ask(sum(wide[0]) // 2)
        return len(self._found) >= min(len(GRID), self._steps)

    def jumps(self) -> list[tuple[int, int]]:
        """Neighbouring moments whose probabilities differ, largest difference first."""
        pairs = [(self._gap(a, b), a, b) for a, b in pairwise(sorted(self._found))]
        return [(a, b) for gap, a, b in sorted(pairs, key=lambda pair: -pair[0]) if gap >= LEAST_JUMP]

    def confirmed(self, first: int, last: int) -> TurningPoint | None:
        """The turning point between two moments, confirmed by fresh rollouts; None if not confirmed."""
        rollouts = SCANNED if self._late else CONFIRMED
        before, after = (self._chances(step, rollouts, stream=1) for step in (first, last))
        k = int(np.abs(after - before).argmax())
        band = clopper_pearson(np.array([before[k], after[k]]) * rollouts, np.array(rollouts), LEVEL)
        overlap = band.low.max() <= band.high.min()
        if overlap or abs(after[k] - before[k]) < LEAST_JUMP:
            return None
        return TurningPoint(
            self._recording.moment(self._number, first),
            last - 1,
            self._cause(first) if last == first + 1 else "",
            self._names[k],
            int(self._until) - 1,
            float(before[k]),
            float(after[k]),
            rollouts,
        )

    @property
    def _late(self) -> bool:
        return time.monotonic() > self._ends

    def _gap(self, first: int, last: int) -> float:
        """The largest significant difference of probabilities between two moments; 0 if there is none."""
        before, after = self._found[first], self._found[last]
        middle, gap = (before + after) / 2, np.abs(after - before)
        noise = np.sqrt(2 * middle * (1 - middle) / SCANNED)
        return float(np.where(gap > BEYOND_NOISE * noise, gap, 0).max())

    def _ask(self, step: int) -> None:
        if step not in self._found and not (self._late and len(self._found) >= 2):
            self._found[step] = self._chances(step, SCANNED, stream=0)

    def _chances(self, step: int, rollouts: int, stream: int) -> FloatArray:
        """[event]: probability that each event has happened by step `until`, past events included."""
        begin = int(self._recording.episodes.begins[self._number])
        past = self._recording.happened[begin : begin + step, self._columns].any(axis=0)
        ahead = self._simulator.but(horizon=int(self._until) - step)
        moment = self._recording.moment(self._number, step)
        assert moment.taken is not None
        asked = Choices(moment, np.asarray(moment.taken)[None], seed_at(ahead.seed + stream, moment))
        (sample,) = ahead.sample([asked], rollouts)
        seen = sample.seen[:, 0][..., self._columns].any(axis=1)
        return np.asarray((seen | past).mean(axis=0))

    def _cause(self, step: int) -> str:
        """The new events of the step, or its action if there are none."""
        legend, env = self._simulator.outcomes.legend, self._simulator.env
        row = int(self._recording.episodes.begins[self._number]) + step
        happened = self._recording.happened[row]
        if not legend.partition and step:
            happened = np.where(self._recording.happened[row - 1] > 0, 0, happened)
        action = env.name_of_action(self._recording.episodes[self._number].action[step])
        (news,) = happened_in_words(legend, happened[None])
        return news or action
