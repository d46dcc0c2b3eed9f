"""Calibration: an explainer finds out its own errors where the truth is known, and draws from them elsewhere.

Truth that comes from rollouts is noisy, and a band is not for the noise: errors are made smaller by what of
them must be noise. What was seen is taken to agree with a band if it lies no farther from the estimate than
both together allow: the square root of the squared reach of the band and of the squared reach of the noise.
The noise of an event is that of a binomial whose probability is the one within the band nearest to what was
seen.
"""

from statistics import NormalDist
from typing import Protocol, runtime_checkable

import numpy as np

from tpd.core.bands import LEVEL, Band
from tpd.core.types import BoolArray, FloatArray, Predictor
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.errors import LEVELS, KnownErrors, happened, unit
from tpd.predictors.rollouts import MonteCarlo, SampledCases

CERTAIN = 0.01
"""An event is not judged where it is expected with a probability as near to 0 or 1 as that."""
FEWEST = 20
"""Moments it takes: of the errors of fewer, not even the largest lies outside a band of 90 %."""
MOST_NOISE = 0.5
"""Of a squared error: a few noisy moments must not make it look as if there were none."""


@runtime_checkable
class Calibratable(Predictor, Protocol):
    """A predictor that can draw from errors it is known to make."""

    def calibrate(self, errors: KnownErrors) -> None:
        """Draw from these errors, as long as what is predicted stays as it is."""


def calibrate(explainer: Explainer, truth: MonteCarlo, cases: SampledCases, rng: np.random.Generator) -> None:
    """Let an explainer that can be calibrated know its errors at moments of episodes of the policy.

    It is left without bands where the moments are too few to tell.
    """
    if not isinstance(explainer.predictor, Calibratable):
        return
    if cases.own.sum() >= FEWEST:
        predicted = explainer.predictor.predict(cases.observations, cases.actions)
        explainer.predictor.calibrate(known_errors(predicted, cases, truth.events, truth.once, rng))


def known_errors(
    predicted: FloatArray, cases: SampledCases, events: BoolArray, once: BoolArray, rng: np.random.Generator
) -> KnownErrors:
    """The errors of what is predicted [case, horizon, outcome], by moments in random order.

    Where something was certain, a moment does not show how wrong it is when it is not: the moment before
    stands in.
    """
    moment, choice = np.cumsum(cases.own) - 1, (~cases.own).astype(np.int64)
    order = rng.permutation(moment[-1] + 1)

    def by_moment(errors: FloatArray) -> FloatArray:
        placed = np.full((len(order), 2, *errors.shape[1:]), np.nan)
        placed[moment, choice] = errors
        return filled(placed[order])

    steps = by_moment(step_errors(predicted, cases, events))
    curves = by_moment(curve_errors(predicted[..., once], cases.expected[..., once], cases.rollouts))
    curves = np.maximum.accumulate(LEVELS[:, None] + curves, axis=2)
    return KnownErrors(steps.astype(np.float32), curves.astype(np.float32), events, once)


def step_errors(predicted: FloatArray, cases: SampledCases, events: BoolArray) -> FloatArray:
    """[case, horizon, outcome]: in their units, NaN where it is certain.

    At each step the mean square is made smaller by the variance of the noise, as far as few moments tell it.
    """
    assert cases.standard_error is not None
    judged, size = uncertain(predicted, events), unit(predicted, events)
    errors, noise = np.full((2, *predicted.shape), np.nan)
    np.divide(cases.expected - predicted, size, out=errors, where=judged)
    np.divide(cases.standard_error, size, out=noise, where=judged)
    seen, unavoidable = (np.nansum(values**2, axis=0) for values in (errors, noise))
    share = np.divide(unavoidable, seen, out=np.zeros_like(seen), where=seen > 0)
    return np.asarray(errors * np.sqrt(1 - np.minimum(share, MOST_NOISE)))


def curve_errors(predicted: FloatArray, seen: FloatArray, rollouts: FloatArray) -> FloatArray:
    """[case, level, once]: of having happened, where that is said to be LEVELS; NaN if it never is.

    From chances of first occurrences [case, horizon, once]. Each is made smaller by its own noise, for what
    was seen always or never is next to certain.
    """
    said, true = happened(predicted), happened(seen)
    found = np.full((len(said), len(LEVELS), said.shape[2]), np.nan)
    for case, outcome in np.ndindex(len(said), said.shape[2]):
        reached = said[case, -1, outcome] >= LEVELS
        x, y = (np.append(0, values[case, :, outcome]) for values in (said, true))
        found[case, reached, outcome] = np.interp(LEVELS[reached], x, y)
    found[:, 0] = 0  # what is taken to be impossible stays so
    errors, noise = found - LEVELS[:, None], found * (1 - found) / (rollouts[:, None, None] - 1)
    return np.asarray(np.sign(errors) * np.sqrt(np.maximum(0, errors**2 - noise)))


def filled(errors: FloatArray) -> FloatArray:
    """[moment, ...]: the moment before where one is NaN, the first following the last; 0 where all are."""
    twice = np.concatenate([errors, errors])
    number = np.arange(len(twice)).reshape(-1, *[1] * (errors.ndim - 1))
    latest = np.maximum.accumulate(np.where(np.isnan(twice), 0, number), axis=0)[len(errors) :]
    return np.asarray(np.nan_to_num(np.take_along_axis(twice, latest, axis=0)))


def uncertain(estimate: FloatArray, events: BoolArray) -> BoolArray:
    """[case, horizon, outcome]: which expectations the explainer itself does not take for certain."""
    return ~events | ((estimate > CERTAIN) & (estimate < 1 - CERTAIN))


def agrees(band: Band, estimate: FloatArray, cases: SampledCases, events: BoolArray) -> BoolArray:
    """[case, horizon, outcome]: whether the band holds what was seen, allowing for the noise of that.

    Judged are the first outcomes of the cases, as many as the estimate has.
    """
    assert cases.standard_error is not None
    judged = (..., slice(estimate.shape[-1]))
    seen, error = cases.expected[judged], cases.standard_error[judged]
    nearest = np.where(events, np.clip(np.clip(seen, band.low, band.high), 0, 1), 0)
    variance = np.where(events, nearest * (1 - nearest) / cases.rollouts[:, None, None], error**2)
    return near(band, estimate, seen, variance)


def near(band: Band, estimate: FloatArray, seen: FloatArray, variance: FloatArray) -> BoolArray:
    """[...]: whether what was seen lies within a band that is widened by noise of that variance."""
    reach = np.where(seen > estimate, band.high - estimate, estimate - band.low)
    allowed = np.sqrt(reach**2 + NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2 * variance)
    return np.asarray(np.abs(seen - estimate) <= allowed + 1e-6)  # float32
