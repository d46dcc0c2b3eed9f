"""Windows that end before the horizon: weights that make up for those whose future is not known."""

import numpy as np

from tpd.core.types import FloatArray, IntArray


def censoring_weights(known: IntArray, ended: FloatArray) -> FloatArray:
    """[batch, horizon]: how much each step of each window counts, 0 where it is not known.

    known [batch]: of how many steps each window is known; after a termination, of all.
    ended [batch, horizon]: 1 at the step of termination.

    A window that terminates early is always known, one that runs on only if nothing cuts it: if both counted
    alike, terminations would seem too likely. So each known step is weighted by the inverse probability that
    a window is not cut before, by its Kaplan-Meier estimate.
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
