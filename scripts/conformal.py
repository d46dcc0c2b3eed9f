"""Conformal prediction intervals for observed quantities; coverage holds for any forecaster.

Split-conformal: forecasts are compared with observations in windows of held-out episodes, one window per
episode. An interval is then widened until it contains the observation in the desired fraction of windows.
Windows of another policy are weighted by their likelihood ratio under the explained policy.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpd.core.types import DiscretePolicy, Episodes, FloatArray, IntArray
from tpd.guards.settings import number, whole_number

FEWEST = 100
"""Below this effective number of weighted windows, no interval is given."""


@dataclass(frozen=True)
class Forecast:
    """A forecast of an observation as a range; both ends are equal for a point forecast.

    NaN means no forecast: its score and its interval are infinite.
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
        """A point forecast [window], optionally with an estimate of the spread [window]."""
        return cls(centre, centre, np.ones(len(centre)) if scale is None else scale)

    @classmethod
    def between(cls, low: FloatArray, high: FloatArray) -> "Forecast":
        """A range, for example between two quantiles of a distribution."""
        return cls(low, high, np.ones(len(low)))

    def scores(self, observed: FloatArray) -> FloatArray:
        """[window]: distance of the observation outside the range, in units of the scale.

        Inf without a forecast.
        """
        outside = np.maximum(self.low - observed, observed - self.high) / self.scale
        return np.where(np.isnan(outside), np.inf, outside)


class Interval(NamedTuple):
    """A prediction interval; infinite if the windows are too few."""

    low: FloatArray
    """[window]"""
    high: FloatArray
    """[window]"""

    def contains(self, observed: FloatArray) -> FloatArray:
        """[window]: 1 or 0; NaN if the observation is unknown."""
        within = (self.low <= observed) & (observed <= self.high)
        return np.where(np.isnan(observed), np.nan, within)


@dataclass(frozen=True)
class ConformalCalibration:
    """Scores of the forecasts in windows of held-out episodes."""

    scores: FloatArray
    """[window]; NaN counts as infinite"""
    weights: FloatArray | None = None
    """[window]: likelihood ratios under the explained policy; None if the windows are that policy's own"""
    largest_weight: float = 1.0
    """Upper bound on the weight of a new window."""

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
        """The effective number of windows (of equal weight)."""
        if self.weights is None:
            return float(len(self.scores))
        return float(self.weights.sum() ** 2 / np.square(self.weights).sum()) if self.weights.any() else 0.0

    def threshold(self, level: float) -> float:
        """The score that a new window exceeds with a probability of at most 1 - level."""
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
        """An interval that contains the observation with at least this probability, over episodes."""
        room = self.threshold(level) * forecast.scale
        low, high = forecast.low - room, forecast.high + room
        middle = (forecast.low + forecast.high) / 2
        low, high = np.minimum(low, middle), np.maximum(high, middle)
        return Interval(np.where(np.isnan(low), -np.inf, low), np.where(np.isnan(high), np.inf, high))


def random_steps(
    episodes: Episodes, horizon: int, time_limit: int | None, rng: np.random.Generator
) -> IntArray:
    """[episode]: a random step of each episode whose window the time limit cannot cut.

    Windows that it could cut are left out whatever happens in them: keeping those that terminate earlier
    would be a selection by outcome.
    """
    if time_limit is not None and time_limit < horizon:
        raise ValueError(f"episodes end after {time_limit} steps, so none shows {horizon} steps")
    lengths = np.diff(np.append(episodes.begins, len(episodes.transitions)))
    allowed = lengths if time_limit is None else np.minimum(lengths, time_limit - horizon + 1)
    return np.asarray(episodes.begins + rng.integers(allowed))


def observed(episodes: Episodes, steps: IntArray, values: FloatArray, weights: FloatArray) -> FloatArray:
    """[window]: the weighted sum of the values [transition] in the windows that begin at the steps.

    Weights [horizon] are powers of the discount for a return, ones for a sum, and a single one for the value
    at a step. Values after a termination are 0; NaN if the window was cut otherwise.
    """
    ahead = steps[:, None] + np.arange(len(weights))
    within = ahead < _ends(episodes, steps)[:, None]
    sums = np.where(within, values[np.minimum(ahead, len(values) - 1)], 0) @ weights
    complete = within[:, -1] | episodes.transitions.terminated[_ends(episodes, steps) - 1]
    return np.where(complete, sums, np.nan)


def likelihood_ratios(
    policy: DiscretePolicy, behaviour: DiscretePolicy, episodes: Episodes, horizon: int
) -> FloatArray:
    """[episode]: likelihood ratio of the first steps of each episode, policy over behaviour.

    Windows that begin later would have to include the steps before them as well.
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
    """The largest possible weight if the behaviour takes a random valid action at rate epsilon."""
    number("epsilon", epsilon, 0, 1)
    whole_number("num_actions", num_actions, at_least=1)
    whole_number("horizon", horizon, at_least=1)
    return float((1 - epsilon + epsilon / num_actions) ** -horizon)


def _ends(episodes: Episodes, steps: IntArray) -> IntArray:
    """[window]: the end of the episode of each step, which is the begin of the next one."""
    ends = np.append(episodes.begins[1:], len(episodes.transitions))
    return np.asarray(ends[np.searchsorted(episodes.begins, steps, side="right") - 1])
