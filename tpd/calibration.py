"""Calibration: by how much draws have to be spread for their bands to hold the truth as often as they say.

Truth that comes from rollouts is noisy, and a band is not for the noise. So what was seen is taken to agree
with a band if it lies no farther from the estimate than both together allow: the square root of the squared
reach of the band and of the squared reach of the noise. The noise of an event is that of a binomial whose
probability is what the band allows nearest to what was seen.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from scipy import stats

from tpd.bands import ENOUGH_DRAWS, LEVEL, Band
from tpd.explainer import Explainer, SolvingPredictor
from tpd.truth.monte_carlo import MonteCarlo, SampledCases
from tpd.types import Array, BoolArray, FloatArray, Predictor

CERTAIN = 0.01
"""An event is not judged where it is expected with a probability as near to 0 or 1 as that."""
FEWEST = 20
"""An outcome that is judged in fewer cases is spread like all others of its kind."""
LARGEST, HALVINGS = 1000.0, 20


@runtime_checkable
class Calibratable(Predictor, Protocol):
    """A predictor whose draws can be spread more or less."""

    def deviations(self, observations: Array, actions: Array, count: int) -> FloatArray:
        """[count, batch, horizon, outcome]: by how much draws differ from the prediction, uncalibrated."""

    def calibrate(self, factor: FloatArray) -> None:
        """Spread what is drawn from now on by a factor [outcome] for each outcome."""


def calibrate(
    explainer: Explainer, truth: MonteCarlo, episodes: int, rng: np.random.Generator
) -> dict[str, float]:
    """Spread the draws so that their bands hold what is true at moments of episodes as often as they say.

    The factors by name; none where the explainer has no draws to spread.
    """
    predictor = explainer.predictor
    if isinstance(predictor, SolvingPredictor):
        predictor = predictor.solved()
    if not isinstance(predictor, Calibratable):
        return {}
    factor = factors(predictor, truth.cases(episodes, rng), truth.events)
    predictor.calibrate(factor)
    names = (*explainer.legend.names, "termination")
    return {f"{name}/spread": float(value) for name, value in zip(names, factor, strict=True)}


def factors(predictor: Calibratable, cases: SampledCases, events: BoolArray) -> FloatArray:
    """[outcome]: what the deviations of draws have to be multiplied with; events [outcome] are clipped."""
    estimate = predictor.predict(cases.observations, cases.actions)
    deviations = predictor.deviations(cases.observations, cases.actions, ENOUGH_DRAWS)
    low, high = np.quantile(deviations, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="weibull")
    unit = Band(np.minimum(low, 0), np.maximum(high, 0))
    judged = uncertain(estimate, events)

    def covered(factor: float, among: BoolArray) -> float:
        band = spread(unit, factor, estimate, events)
        return float(agrees(band, estimate, cases, events)[judged & among].mean())

    found = np.ones(len(events))
    for kind in (events, ~events):
        if (judged & kind).any():
            found[kind] = _factor(covered, kind) or 1.0
        for column in np.flatnonzero(kind):
            if judged[:, :, column].any(axis=1).sum() >= FEWEST:
                found[column] = _factor(covered, np.arange(len(events)) == column) or found[column]
    return found


def _factor(covered: Callable[[float, BoolArray], float], among: BoolArray) -> float | None:
    """The smallest factor that covers as much as it should, by bisection.

    None if bands without any width would do: then what was seen is too noisy to tell.
    """
    low, high = 1 / LARGEST, LARGEST
    if covered(low, among) >= LEVEL:
        return None
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if covered(middle, among) < LEVEL else (low, middle)
    return high


def spread(unit: Band, factor: float, estimate: FloatArray, events: BoolArray) -> Band:
    """The band around an estimate when deviations that reach from `low` to `high` are multiplied."""
    low, high = estimate + factor * unit.low, estimate + factor * unit.high
    return Band(np.where(events, np.clip(low, 0, 1), low), np.where(events, np.clip(high, 0, 1), high))


def uncertain(estimate: FloatArray, events: BoolArray) -> BoolArray:
    """[case, horizon, outcome]: which expectations the explainer itself does not take for certain."""
    return ~events | ((estimate > CERTAIN) & (estimate < 1 - CERTAIN))


def agrees(band: Band, estimate: FloatArray, cases: SampledCases, events: BoolArray) -> BoolArray:
    """[case, horizon, outcome]: whether the band holds what was seen, allowing for the noise of that."""
    assert cases.standard_error is not None
    seen = cases.expected
    nearest = np.where(events, np.clip(np.clip(seen, band.low, band.high), 0, 1), 0)
    variance = np.where(
        events, nearest * (1 - nearest) / cases.rollouts[:, None, None], cases.standard_error**2
    )
    return near(band, estimate, seen, variance)


def near(band: Band, estimate: FloatArray, seen: FloatArray, variance: FloatArray) -> BoolArray:
    """[...]: whether what was seen lies within a band that is widened by noise of that variance."""
    reach = np.where(seen > estimate, band.high - estimate, estimate - band.low)
    allowed = np.sqrt(reach**2 + stats.norm.ppf((1 + LEVEL) / 2) ** 2 * variance)
    return np.asarray(np.abs(seen - estimate) <= allowed + 1e-6)  # float32
