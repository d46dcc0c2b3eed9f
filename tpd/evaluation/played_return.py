"""Compares the policy's return in this environment with the expected one, to detect a wrong setup."""

import math
from dataclasses import dataclass

import numpy as np

from tpd.core.types import Episodes, FloatArray
from tpd.policies.pretrained import ExpectedReturn

SHORT = 0.2
"""A shortfall must exceed this fraction of the expected return."""
ERRORS = 3
"""A shortfall must also exceed this number of standard errors of the mean."""


@dataclass(frozen=True)
class PlayedReturn:
    """The mean undiscounted return of the policy's episodes, and the expected return."""

    mean: float
    error: float
    """Standard error of the mean; NaN for a single episode."""
    episodes: int
    expected: ExpectedReturn | None

    @classmethod
    def of(cls, returns: FloatArray, expected: ExpectedReturn | None) -> "PlayedReturn":
        """From the return of every episode [episode]."""
        count = len(returns)
        error = float(returns.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
        return cls(float(returns.mean()), error, count, expected)

    @property
    def line(self) -> str:
        """The first line of every result."""
        over = f"over {self.episodes} episode{'' if self.episodes == 1 else 's'}"
        error = "" if math.isnan(self.error) else f" ± {self.error:.3g} (standard error)"
        said = f"mean return in this environment: {self.mean:.4g}{error} {over}"
        if self.expected is None:
            return f"{said}; no expected return is known"
        return f"{said}; expected: {self.expected.mean:.4g} ({self.expected.source})"

    @property
    def warning(self) -> str:
        """A warning about a large shortfall and its likely causes; empty if there is none."""
        if self.expected is None:
            return ""
        missing = self.expected.mean - self.mean
        noise = 0.0 if math.isnan(self.error) else ERRORS * self.error
        if missing <= max(SHORT * abs(self.expected.mean), noise):
            return ""
        return (
            f"the policy falls short of its expected return by {missing:.4g}: it may have been trained in "
            "another version of the environment, or under VecNormalize (set its statistics with "
            "policy.vec_normalize)"
        )

    def metrics(self) -> dict[str, float]:
        """Flat names and values."""
        expected = {} if self.expected is None else {"return/expected": self.expected.mean}
        return {"return/played": self.mean} | expected


def episode_returns(episodes: Episodes) -> FloatArray:
    """[episode]: the sum of all rewards."""
    return np.asarray(np.add.reduceat(episodes.transitions.reward.astype(np.float64), episodes.begins))


def all_ended(episodes: Episodes) -> bool:
    """Whether every episode was played to its end, so that its return is whole."""
    steps, last = episodes.transitions, np.append(episodes.begins[1:], len(episodes.transitions)) - 1
    return bool((steps.terminated[last] | steps.truncated[last]).all())
