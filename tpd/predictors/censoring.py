"""Inverse-probability-of-censoring weights for windows of steps that are cut before the horizon."""

import numpy as np

from tpd.core.types import FloatArray, IntArray


def censoring_weights(known: IntArray, ended: FloatArray) -> FloatArray:
    """[batch, horizon]: the weight of each step of each window; 0 where the step was not observed.

    known [batch]: the number of observed steps of each window; all steps if it terminates.
    ended [batch, horizon]: 1 at the step of termination.

    A window that terminates early is always fully observed. One that runs on is fully observed only if
    nothing cuts it. With equal weights, terminations would seem too likely. So each observed step is weighted
    by the inverse of the probability that a window is not cut before it (Kaplan-Meier estimate).
    """
    horizon, steps = ended.shape[1], np.arange(ended.shape[1])
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), horizon)
    at_risk = (last[:, None] >= steps) & (known[:, None] >= steps)
    cut = (known[:, None] == steps) & (known < horizon)[:, None]
    share = np.divide(cut.sum(axis=0), at_risk.sum(axis=0), out=np.zeros(horizon), where=at_risk.any(axis=0))
    uncut = np.cumprod(1 - share)
    reached = np.minimum(steps, np.minimum(last, horizon - 1)[:, None])
    weight = np.divide(1, uncut, out=np.zeros(horizon), where=uncut > 0)[reached]
    return np.where(steps < known[:, None], weight, 0)
