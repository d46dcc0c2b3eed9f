"""Windows: pairs of a step and a number of steps ahead, each with one forecast and one observation."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import BoolArray, Episodes, FloatArray, IntArray

BINS = 10
BLOCKS = 500  # the bootstrap resamples at most this many blocks of episodes
NEVER = np.iinfo(np.int64).max


class Columns(NamedTuple):
    """The forecast quantities (columns), and how they are computed from a predictor's outcomes."""

    names: tuple[str, ...]
    is_event: BoolArray
    """[column]"""
    kept: int
    """Number of outcomes that are columns themselves; they come first, in order"""
    weights: FloatArray | None
    """[outcome]: reward weights for the return, which is the last column; None without a return"""
    discount: float

    def of(self, outcomes: FloatArray, h: int) -> FloatArray:
        """[step, column]: the columns of outcomes [step, outcome] h steps ahead."""
        kept = outcomes[:, : self.kept].astype(np.float64)
        if self.weights is None:
            return kept
        return np.column_stack([kept, self.discount**h * (outcomes.astype(np.float64) @ self.weights)])


class Course:
    """The outcomes of episodes, read forwards from any step.

    foils: start only at steps whose action is not the policy's, and stop at the next such step; else start at
    every step.
    """

    def __init__(self, outcomes: OutcomeSet, episodes: Episodes, foils: bool = False) -> None:
        transitions, begins = episodes.transitions, episodes.begins
        ends = np.append(begins[1:], len(transitions))
        lengths = ends - begins
        if len(begins) == 0 or begins[0] != 0 or (lengths <= 0).any():
            raise ValueError(
                f"begins must start with 0, increase and be below {len(transitions)}, got {begins}"
            )
        over = transitions.terminated | transitions.truncated
        over[ends - 1] = False
        if over.any():
            raise ValueError(f"an episode continues after its end, at transition {np.argmax(over)}")
        self.outcome, self.continuation = outcomes.observe(transitions)
        self.episode = np.repeat(np.arange(len(begins)), lengths)
        self._end = ends[self.episode]
        self._terminates = transitions.terminated[ends - 1][self.episode]
        # if the longest episodes were truncated, their length is the time limit; windows that end
        # within it are complete, whatever their outcome
        longest = lengths.max()
        limited = transitions.truncated[ends[lengths == longest] - 1].any()
        self._limit = begins[self.episode] + longest if limited else np.full(len(over), NEVER)
        self.steps: IntArray = np.arange(len(transitions))
        """[step]: the steps at which forecasts are made"""
        self.weight = np.ones(len(transitions))
        """[transition]: the number of steps that each one represents"""
        if foils:
            if transitions.own is None:
                raise ValueError(
                    "foils cannot be identified, because the transitions do not store which actions the "
                    "policy chose: collect them with tpd, or evaluate without foils"
                )
            self.steps = np.flatnonzero(~transitions.own)
            self._limit = np.minimum(self._limit, _next(~transitions.own))

    def thin(self, most: int, cuts: Sequence[int]) -> None:
        """Reduce the forecast steps to at most `most`, by stratified sampling.

        Strata are cut at these distances from the end of the episode: few steps decide how an episode ends,
        and uniform sampling would miss them. A step is weighted by the number of steps that it represents.
        """
        if len(self.steps) <= most:
            return
        stratum = np.searchsorted(cuts, self._end[self.steps] - 1 - self.steps)
        chosen, left = list[IntArray](), most
        for number in range(len(cuts) + 1):
            steps = self.steps[stratum == number]
            count = min(len(steps), left // (len(cuts) + 1 - number))
            left -= count
            if count:
                chosen.append(steps[np.linspace(0, len(steps) - 1, count).astype(np.int64)])
                self.weight[chosen[-1]] = len(steps) / count
        self.steps = np.sort(np.concatenate(chosen))

    def ahead(self, steps: IntArray, horizon: int) -> Iterator[tuple[FloatArray, BoolArray]]:
        """The outcomes 0, 1, ... steps after the steps [step, outcome], and whether they are known [step]."""
        going_on = np.ones((len(steps), self.outcome.shape[1]), np.float32)
        for h in range(horizon):
            later = steps + h
            known = ((later < self._end[steps]) | self._terminates[steps]) & (later < self._limit[steps])
            # after the end, going_on is 0 or the window is unknown, so the row does not matter
            later = np.minimum(later, len(self.outcome) - 1)
            yield going_on * self.outcome[later], known
            going_on *= self.continuation[later]


def _next(marked: BoolArray) -> IntArray:
    """[step]: the next marked step after each; `NEVER` if there is none."""
    at = np.where(marked, np.arange(len(marked)), NEVER)
    following = np.minimum.accumulate(at[::-1])[::-1]
    return np.append(following[1:], NEVER)


class Tally:
    """Running sums over windows, for forecasts at a step and for forecasts of sums up to a step."""

    def __init__(self, episodes: int, horizon: int, columns: Columns) -> None:
        blocks = min(episodes, BLOCKS)
        self._block = np.arange(episodes) * blocks // episodes
        self._columns = columns
        self._events = np.flatnonzero(columns.is_event)
        shape = (blocks, 4, horizon, len(columns.names))
        self.at = np.zeros(shape)
        """[block, 4, horizon, column]: sums of windows, observed, observed² and (forecast - observed)²; a
        block is an episode, or a few"""
        self.by = np.zeros(shape)
        """[block, 4, horizon, column]: the same for sums up to each step"""
        self.bins = np.zeros((3, horizon, len(columns.names), BINS))
        """[3, horizon, column, bin]: sums of windows, forecasts and observed events"""

    def add(self, course: Course, steps: IntArray, forecast: FloatArray) -> None:
        """Add forecasts [step, horizon, outcome]."""
        blocks = self._block[course.episode[steps]]
        firsts = np.flatnonzero(np.diff(blocks, prepend=-1))
        sums, weight = np.zeros((2, len(steps), len(self._columns.names))), course.weight[steps]
        for h, (outcome, known) in enumerate(course.ahead(steps, forecast.shape[1])):
            expected, observed = (self._columns.of(values, h) for values in (forecast[:, h], outcome))
            sums += expected, observed
            for tally, said, seen in ((self.at, expected, observed), (self.by, *sums)):
                terms = np.stack([np.ones_like(seen), seen, seen**2, (said - seen) ** 2], axis=1)
                terms *= np.where(known, weight, 0)[:, None, None]
                tally[blocks[firsts], :, h] += np.add.reduceat(terms, firsts)
            said, seen = expected[known][:, self._events], observed[known][:, self._events]
            self._add_to_bins(h, said, seen, weight[known, None])

    def leave_out(self, at: BoolArray, by: BoolArray, returns: BoolArray) -> None:
        """Set errors to NaN for quantities that a method does not predict.

        at, by [horizon, outcome] and returns [horizon] say which. The return up to the last step is left out
        too, because such a method adds all later rewards to it.
        """
        kept, errors = self._columns.kept, 3
        self.at[:, errors, :, :kept][:, at[:, :kept]] = np.nan
        self.by[:, errors, :, :kept][:, by[:, :kept]] = np.nan
        self.bins[:, :, :kept][:, at[:, :kept]] = 0
        if self._columns.weights is not None:
            later = np.append(returns[:-1], True)
            self.at[:, errors, later | np.append(True, later[:-1]), -1] = np.nan
            self.by[:, errors, later, -1] = np.nan

    def _add_to_bins(self, h: int, forecast: FloatArray, observed: FloatArray, weight: FloatArray) -> None:
        number = np.clip((forecast * BINS).astype(int), 0, BINS - 1) + BINS * np.arange(len(self._events))
        for part, values in enumerate((np.ones_like(forecast), forecast, observed)):
            sums = np.bincount(number.ravel(), (weight * values).ravel(), BINS * len(self._events))
            self.bins[part, h, self._events] += sums.reshape(-1, BINS)
