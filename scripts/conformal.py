"""Intervals for what will be observed, with coverage that holds whatever made the forecasts.

Split-conformal: forecasts are compared with what was observed in windows of episodes that they were not
learned from, one window of each episode. An interval is then as wide as it takes to contain the observed
in the share of windows asked for. Windows of another policy count by how much likelier they are after
the policy explained.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpd.core.types import DiscretePolicy, Episodes, FloatArray, IntArray
from tpd.guards.settings import number, whole_number

FEWEST = 100
"""With an effective number of weighted windows below this, no interval is given."""


@dataclass(frozen=True)
class Forecast:
    """What is expected to be observed, as the ends of a range: the same where it is one number.

    NaN where there is no forecast: that counts as infinitely wrong, and its interval is infinite.
    """

    low: FloatArray
    """[window]"""
    high: FloatArray
    """[window]"""
    scale: FloatArray
    """[window]: above 0; the interval is widened in proportion"""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.scale) & (self.scale > 0)).all():
            raise ValueError(f"the scale of a forecast must be above 0, got {np.min(self.scale)}")
        crossed = np.asarray(self.low > self.high)
        if crossed.any():
            low, high = (np.asarray(end)[crossed][0] for end in (self.low, self.high))
            raise ValueError(f"a forecast ranges from low to high, got {low} to {high}")

    @classmethod
    def around(cls, centre: FloatArray, scale: FloatArray | None = None) -> "Forecast":
        """One number [window], with an estimate of the spread [window] where there is one."""
        return cls(centre, centre, np.ones(len(centre)) if scale is None else scale)

    @classmethod
    def between(cls, low: FloatArray, high: FloatArray) -> "Forecast":
        """A range, such as between two quantiles of a distribution."""
        return cls(low, high, np.ones(len(low)))

    def scores(self, observed: FloatArray) -> FloatArray:
        """[window]: how far outside of the range it came; inf where that is not known."""
        outside = np.maximum(self.low - observed, observed - self.high) / self.scale
        return np.where(np.isnan(outside), np.inf, outside)


class Interval(NamedTuple):
    """Where the observed will lie; infinite where the windows cannot tell."""

    low: FloatArray
    """[window]"""
    high: FloatArray
    """[window]"""

    def contains(self, observed: FloatArray) -> FloatArray:
        """[window]: 1 or 0; NaN where nobody knows what would have been observed."""
        within = (self.low <= observed) & (observed <= self.high)
        return np.where(np.isnan(observed), np.nan, within)


@dataclass(frozen=True)
class ConformalCalibration:
    """How far off the forecasts were, in windows of episodes that they were not learned from."""

    scores: FloatArray
    """[window]; NaN counts as infinitely wrong"""
    weights: FloatArray | None = None
    """[window]: how much likelier each is after the policy explained; None if it is that policy's own"""
    largest_weight: float = 1.0
    """What the window to come may weigh at most."""

    def __post_init__(self) -> None:
        if self.weights is not None and self.weights.shape != self.scores.shape:
            raise ValueError(f"{self.weights.size} weights for {self.scores.size} scores")
        if self.weights is not None and not (self.weights >= 0).all():
            raise ValueError(f"weights must be 0 or more, got {np.min(self.weights)}")
        heaviest = 1.0 if self.weights is None else float(np.max(self.weights, initial=0))
        if heaviest > self.largest_weight * (1 + 1e-9):
            raise ValueError(
                f"a window weighs {heaviest:g}, more than the largest weight {self.largest_weight:g}"
            )

    @property
    def effective_size(self) -> float:
        """How many windows of equal weight would tell as much."""
        if self.weights is None:
            return float(len(self.scores))
        return float(self.weights.sum() ** 2 / np.square(self.weights).sum()) if self.weights.any() else 0.0

    def threshold(self, level: float) -> float:
        """The score that a window to come exceeds with a probability of 1 - level at most."""
        number("level", level, 0, 1, above_low=True)
        if self.weights is not None and self.effective_size < FEWEST:
            return np.inf
        weights = np.ones(len(self.scores)) if self.weights is None else self.weights
        return float(
            np.quantile(
                np.append(np.where(np.isnan(self.scores), np.inf, self.scores), np.inf),
                level,
                weights=np.append(weights, self.largest_weight),
                method="inverted_cdf",
            )
        )

    def interval(self, forecast: Forecast, level: float) -> Interval:
        """Contains the observed with this probability or more, taken over episodes."""
        room = self.threshold(level) * forecast.scale
        low, high = forecast.low - room, forecast.high + room
        middle = (forecast.low + forecast.high) / 2
        low, high = np.minimum(low, middle), np.maximum(high, middle)
        return Interval(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def random_steps(
    episodes: Episodes, horizon: int, time_limit: int | None, rng: np.random.Generator
) -> IntArray:
    """[episode]: one step of each episode, any whose window the time limit could not cut.

    Windows that it could cut are left out whatever happens in them: to keep those that terminate before
    would be a choice by what happened.
    """
    if time_limit is not None and time_limit < horizon:
        raise ValueError(f"episodes end after {time_limit} steps, so none shows {horizon} steps")
    lengths = np.diff(np.append(episodes.begins, len(episodes.transitions)))
    allowed = lengths if time_limit is None else np.minimum(lengths, time_limit - horizon + 1)
    return np.asarray(episodes.begins + rng.integers(allowed))


def observed(episodes: Episodes, steps: IntArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    """[window]: the weighted sum of the values [transition] in the windows that begin at the steps.

    Weights [horizon] are powers of a discount for a return, ones for a sum, a single one for what is
    observed at that step. After a termination there is nothing more to come; NaN where the window was
    cut otherwise, for nobody knows.
    """
    ahead = steps[:, None] + np.arange(len(weights))
    within = ahead < _ends(episodes, steps)[:, None]
    sums = np.where(within, values[np.minimum(ahead, len(values) - 1)], 0) @ weights
    complete = within[:, -1] | episodes.transitions.terminated[_ends(episodes, steps) - 1]
    return np.where(complete, sums, np.nan)


def likelihood_ratios(
    policy: DiscretePolicy, behaviour: DiscretePolicy, episodes: Episodes, horizon: int
) -> FloatArray:
    """[episode]: how much likelier the first steps of each are after the policy than after the behaviour.

    Windows that begin later would have to count the way there as well.
    """
    transitions = episodes.transitions
    rows = np.arange(len(transitions))
    wanted, shown = (
        each.probabilities(transitions.observation)[rows, transitions.action] for each in (policy, behaviour)
    )
    ahead = episodes.begins[:, None] + np.arange(horizon)
    within = ahead < _ends(episodes, episodes.begins)[:, None]
    ratios = np.where(within, (wanted / shown)[np.minimum(ahead, len(rows) - 1)], 1)
    return np.asarray(ratios.prod(axis=1))


def largest_ratio(epsilon: float, num_actions: int, horizon: int) -> float:
    """The most a window can weigh if the behaviour, at rate epsilon, takes any valid action instead."""
    number("epsilon", epsilon, 0, 1)
    whole_number("num_actions", num_actions, at_least=1)
    whole_number("horizon", horizon, at_least=1)
    return float((1 - epsilon + epsilon / num_actions) ** -horizon)


def _ends(episodes: Episodes, steps: IntArray) -> IntArray:
    """[window]: where the episode of each step ends, which is where the next one begins."""
    ends = np.append(episodes.begins[1:], len(episodes.transitions))
    return np.asarray(ends[np.searchsorted(episodes.begins, steps, side="right") - 1])
