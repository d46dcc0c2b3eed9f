"""Calibration: measures an explainer's errors at moments with known truth, to give it bands elsewhere.

The truth comes from rollouts and is noisy. A band must not cover that noise, so each error is reduced by its
expected noise. With few moments the quantiles of errors are uncertain, so the ends of a band are moved
outwards: with probability `CONFIDENCE` a band covers at least its level.
"""

import numpy as np
import pandas as pd
from scipy import special

from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import BoolArray, FloatArray, IntArray, Rng
from tpd.evaluation.forecasts import step_ranges
from tpd.predictors.explainer import Explainer
from tpd.predictors.known_errors import EDGES, NONE, RANKS, KnownErrors, bins, happened, relative
from tpd.predictors.rollouts import SampledCases

FEWEST = 20
"""Minimum number of moments: with fewer, even the largest error lies within a 90 % band."""
ENOUGH = 30
"""Minimum number of moments of a bin; a bin with fewer also uses the errors of neighbouring bins."""
APART = (0.01, 0.2)
"""Edges that errors are never shared across: nearly impossible events say nothing about likely ones."""
CONFIDENCE = 0.5
"""Probability that the true quantile of errors lies within the one that is used. With 0.75, bands of rare
events were wider than the band of the base rate, and covered 99 % instead of 90 %."""


def calibrate(explainer: Explainer, cases: SampledCases, rng: Rng) -> None:
    """Measure an explainer's errors at these moments, and store them in the explainer.

    It stays without bands if there are too few moments, or if its method does not predict single steps.
    """
    if cases.own.sum() >= FEWEST and explainer.limits is None:
        predicted = explainer.predict(cases.observations, cases.actions)
        explainer.errors = known_errors(predicted, cases, explainer.legend, rng)


def known_errors(predicted: FloatArray, cases: SampledCases, legend: Legend, rng: Rng) -> KnownErrors:
    """The errors of predictions [case, horizon, outcome], by moment, in random order."""
    events = np.append(legend.is_event, True)
    ends = events & (cases.expected <= cases.expected[..., -1:] + 1e-9).all(axis=(0, 1))
    once = first_columns(legend, ends)
    moment = np.cumsum(cases.own) - 1
    ranges = step_ranges(predicted.shape[1])
    span = np.repeat(np.arange(len(ranges)), [len(steps) for steps in ranges])
    quantiles = np.zeros((len(events), len(ranges), len(EDGES) + 1, RANKS), dtype=np.float32)
    sizes = np.full(predicted[:, 0].shape, np.nan)
    for column in np.flatnonzero(events):
        said, seen = predicted[..., column], cases.expected[..., column]
        if once[column] == column:
            said, seen = happened(said), happened(seen)
        errors = relative(said, said + without_noise(seen - said, seen, cases.rollouts))
        quantiles[column] = span_quantiles(errors, bins(said), moment, span)
        sizes[:, column] = relative_size(errors, bins(said) + len(EDGES) * 2 * span)
    real = cases.expected[..., ~events] - predicted[..., ~events]
    sizes[:, ~events] = _ranks(real.sum(axis=1)) / len(real)
    order = rng.permutation(moment[-1] + 1)
    choice = (~cases.own).astype(np.int64)
    sizes += 1e-6 * rng.random(sizes.shape)  # random order of ties
    return KnownErrors(
        quantiles=quantiles,
        span=span,
        ranks=_by_moment(sizes, moment, choice, rng)[order].astype(np.float32),
        steps=_by_moment(real, moment, choice, rng)[order].astype(np.float32),
        once=once,
        ends=ends,
        events=events,
    )


def first_columns(legend: Legend, ends: BoolArray) -> IntArray:
    """[outcome]: the column of each event's first occurrence; its own if the event happens at most once."""
    once = np.full(len(ends), NONE)
    once[ends] = np.flatnonzero(ends)
    for column, name in enumerate(legend.names):
        if name.startswith(FIRST) and name in legend.events:
            once[column] = column
            if (event := name.removeprefix(FIRST)) in legend.names:
                once[legend.names.index(event)] = column
    return once


def without_noise(errors: FloatArray, seen: FloatArray, rollouts: FloatArray) -> FloatArray:
    """[case, horizon]: errors reduced by the sampling noise of a finite number of rollouts [case].

    An event that happened in all rollouts or in none has no estimated noise.
    """
    noise = seen * (1 - seen) / (rollouts[:, None] - 1)
    return np.asarray(np.sign(errors) * np.sqrt(np.maximum(0, errors**2 - noise)))


def neighbours(number: IntArray, moment: IntArray) -> list[tuple[int, int]]:
    """[bin]: the first and last bin whose errors each bin uses; only itself if it has enough moments.

    number [case, horizon]: the bin of each forecast; moment [case]: the moment of each case. A bin with few
    moments also uses neighbouring bins, those of less certain forecasts first. Neighbours are not changed.
    """
    kinds = np.searchsorted(APART, np.append(0, EDGES), side="right")
    moments, found = np.broadcast_to(moment[:, None], number.shape), []
    for low in range(len(kinds)):
        high, upwards = low, low < len(kinds) / 2
        first = low
        while effective_moments(moments[(number >= first) & (number <= high)]) < ENOUGH:
            sides = [high + 1, first - 1] if upwards else [first - 1, high + 1]
            near = [side for side in sides if 0 <= side < len(kinds) and kinds[side] == kinds[low]]
            if not near:
                break
            first, high = min(first, near[0]), max(high, near[0])
        found.append((first, high))
    return found


def effective_moments(moments: IntArray) -> int:
    """The effective number of independent moments, given the moment of each error."""
    count = np.unique(moments, return_counts=True)[1].astype(np.float64)
    return int(count.sum() ** 2 / (count**2).sum()) if len(count) else 0


def span_quantiles(errors: FloatArray, number: IntArray, moment: IntArray, span: IntArray) -> FloatArray:
    """[span, bin, rank]: quantiles of the errors [case, horizon] of forecasts in each bin.

    They use the steps of each span [horizon], or all steps if a span has too few moments.
    """
    everywhere, _ = bin_quantiles(errors, number, moment)
    found = []
    for one in range(span.max() + 1):
        quantiles, moments = bin_quantiles(errors[:, span == one], number[:, span == one], moment)
        found.append(np.where((moments >= ENOUGH)[:, None], quantiles, everywhere))
    return np.stack(found)


def bin_quantiles(errors: FloatArray, number: IntArray, moment: IntArray) -> tuple[FloatArray, IntArray]:
    """[bin, rank] and [bin]: quantiles of the errors [case, horizon] in each bin, and effective moments."""
    moments = np.broadcast_to(moment[:, None], number.shape)
    quantiles, counts = np.zeros((len(EDGES) + 1, RANKS)), np.zeros(len(EDGES) + 1, dtype=np.int64)
    for name, (first, last) in enumerate(neighbours(number, moment)):
        own = (number >= first) & (number <= last)
        counts[name] = effective_moments(moments[own])
        quantiles[name] = confident_quantiles(errors[own], int(counts[name]))
    return quantiles, counts


def confident_quantiles(errors: FloatArray, count: int) -> FloatArray:
    """[rank]: conservative quantiles of errors; `count` is the effective number of independent errors.

    The largest possible error if there are too few.
    """
    levels = np.arange(RANKS // 2 + 1, RANKS + 1) / (RANKS + 1)  # the median and above
    taken = confident_levels(count, levels)
    high, low = np.ones(len(levels)), -np.ones(len(levels))
    known = taken <= 1
    if known.any():
        high[known] = np.quantile(errors, taken[known], method="inverted_cdf")
        low[known] = -np.quantile(-errors, taken[known], method="inverted_cdf")
    return np.concatenate([np.minimum(low, high)[:0:-1], (low + high)[:1] / 2, np.maximum(low, high)[1:]])


def confident_levels(count: int, levels: FloatArray) -> FloatArray:
    """[level]: the empirical quantile r / n to use for each level, of n = count errors; above 1 if too few.

    The r-th smallest of n errors exceeds the true quantile with the probability that fewer than r errors lie
    below the quantile.
    """
    if not count:
        return np.full(len(levels), np.inf)
    order = np.arange(1, count + 1)
    sure = special.bdtr(order - 1, count, levels[:, None]) >= CONFIDENCE
    first = np.where(sure.any(axis=1), sure.argmax(axis=1) + 1, np.inf)
    return np.asarray(np.maximum.accumulate(first / count))


def relative_size(errors: FloatArray, number: IntArray) -> FloatArray:
    """[case]: the mean rank, from 0 to 1, of the errors [case, horizon] among errors in the same bin."""
    ranks = np.zeros(errors.shape)
    for name in np.unique(number):
        own = number == name
        ranks[own] = _ranks(errors[own]) / own.sum()
    return np.asarray(ranks.mean(axis=1))


def _ranks(values: FloatArray) -> FloatArray:
    """[row, ...]: the rank of each value in its column, from 1 on; equal values share their mean rank."""
    return np.asarray(pd.DataFrame(values).rank()).reshape(values.shape)


def _by_moment(values: FloatArray, moment: IntArray, choice: IntArray, rng: Rng) -> FloatArray:
    """[moment, choice, ...]: the values of cases [case, ...]; a missing foil is taken from another moment."""
    placed = np.full((moment[-1] + 1, 2, *values.shape[1:]), np.nan)
    placed[moment, choice] = values
    had = np.zeros((len(placed), 2), dtype=np.bool_)
    had[moment, choice] = True
    for column in range(2):
        lacking, others = np.flatnonzero(~had[:, column]), np.flatnonzero(had[:, column])
        placed[lacking, column] = placed[rng.choice(others, len(lacking)), column] if len(others) else 0.5
    return placed
