"""The switch: a condition on the first steps that best predicts how the future continues.

A condition is that an event happens within the first few steps. It splits the futures of a pair into two
branches. The condition is reported that explains most of the variance of a later decisive event. This is a
statement about conditional probabilities: the condition may be a cause, or the first sign of one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpd.answers.decisive import decisive_after, plain_events
from tpd.core.bands import LEVEL, Band
from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.intervals import clopper_pearson
from tpd.core.types import BoolArray, DiscretePolicy, FloatArray
from tpd.predictors.tabular_dynamics import Splits, TabularDynamics

MOST_STEPS = 5
"""Conditions are searched within this number of first steps."""
LEAST_SHARE = 0.02
"""Minimum probability of the rarer branch."""
ENOUGH_TRIALS = 10
"""Minimum number of rollouts, or visits, of each branch."""
LEAST_DIFFERENCE = 0.2
"""Minimum difference of the decisive event's probability between the branches."""
LEAST_EXPLAINED = 0.2
"""Minimum fraction of the decisive event's variance that is explained by the condition."""
NEARLY = 0.9
"""An earlier condition is preferred if it explains at least this fraction of the best."""
ERROR_RATE = 0.01
"""Probability of reporting a switch where there is none."""


@dataclass(frozen=True)
class Branches:
    """The probability of an event within the horizon, in both branches, with 90 % bands."""

    event: str
    if_met: float
    otherwise: float
    if_met_band: tuple[float, float]
    otherwise_band: tuple[float, float]


@dataclass(frozen=True)
class Switch:
    """A condition on the first steps that decides how the future of a pair continues."""

    condition: str
    """The event that the condition is about."""
    happens: bool
    """Whether the condition is that the event happens, or that it does not."""
    steps: int
    """The number of first steps in which the condition is checked."""
    probability: float
    """Probability that the condition is met."""
    horizon: int
    decisive: Branches
    """The decisive event that the condition explains best."""
    response: Branches | None
    """The other event that differs most between the branches, such as the agent's next actions."""


def switch_in_rollouts(explanation: Explanation) -> Switch | None:
    """The switch in the rollouts of a pair; None if none is large and certain."""
    assert explanation.rollouts is not None
    if explanation.certain[0]:
        return None
    seen = explanation.rollouts[:, 0][:, :, list(plain_events(explanation.legend).values())] > 0
    return _switch(_rolled_out_splits(seen), explanation, len(seen))


def switch_in_table(
    explanation: Explanation, dynamics: TabularDynamics, policy: DiscretePolicy
) -> Switch | None:
    """The same for known or counted dynamics; the visits of the pair count as trials."""
    if explanation.unknown[0, -1] > TOLERATED or explanation.horizon < 2:
        return None
    columns = np.array(list(plain_events(explanation.legend).values()), dtype=np.int64)
    steps, state, action = _steps(explanation.horizon), explanation.observations[0], explanation.actions[0]
    splits = dynamics.splits(int(state), int(action), policy, columns, steps, explanation.horizon)
    return _switch(splits, explanation, float(explanation.support[0]))


def _steps(horizon: int) -> int:
    return min(MOST_STEPS, horizon - 1)


def _rolled_out_splits(seen: BoolArray) -> Splits:
    """Splits from events in rollouts [rollout, horizon, event]."""
    by = np.maximum.accumulate(seen, axis=1)
    early = by[:, : _steps(seen.shape[1])]
    still = ~early
    then, now = still & by[:, -1:], early.astype(float)
    met, met_then = (np.einsum("rtc,rte->tce", now, part) / len(seen) for part in (still, then))
    return Splits(met, met_then, still.mean(axis=0), then.mean(axis=0))


def _switch(splits: Splits, explanation: Explanation, trials: float) -> Switch | None:
    """The earliest condition that explains most of a decisive event, if its effect is large and certain."""
    found, names = _Branchings.of(splits, trials), list(plain_events(explanation.legend))
    lasting = explanation.running[0] + explanation.unknown[0] >= 1 - TOLERATED
    certain = found.certain(lasting[: len(splits.open), None, None])
    decisive = np.isin(names, decisive_after(explanation))
    told = certain & decisive & (found.explained >= LEAST_EXPLAINED)
    if not told.any():
        return None
    t, c, e = _earliest(np.where(told, found.explained, 0), found.share)
    others = np.where(certain[t, c], np.abs(found.met - found.missed)[t, c], 0)
    others[[c, e]] = 0
    happens = bool(found.share[t, c, e] <= 0.5)
    return Switch(
        condition=names[c],
        happens=happens,
        steps=t + 1,
        probability=float(found.share[t, c, e] if happens else 1 - found.share[t, c, e]),
        horizon=explanation.horizon,
        decisive=found.branches(names, (t, c, e), happens),
        response=found.branches(names, (t, c, int(others.argmax())), happens) if others.any() else None,
    )


@dataclass(frozen=True)
class _Branchings:
    """Probabilities of every event under every condition: arrays [t, condition, event]."""

    share: FloatArray
    """Probability that the condition is met."""
    met: FloatArray
    """Probability of the event if the condition is met."""
    missed: FloatArray
    """Probability of the event if the condition is not met."""
    explained: FloatArray
    """Fraction of the event's variance that is explained by the condition."""
    open: FloatArray
    """[t, 1, event]: probability that event and end of the episode are still to come"""
    trials: float

    @classmethod
    def of(cls, splits: Splits, trials: float) -> "_Branchings":
        still, then = splits.open[:, None], splits.open_then[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            share, overall = splits.condition / still, then / still
            met = splits.condition_then / splits.condition
            missed = (then - splits.condition_then) / (still - splits.condition)
            explained = share * (1 - share) * (met - missed) ** 2 / (overall * (1 - overall))
        return cls(share, met, missed, np.nan_to_num(explained), still, trials)

    def certain(self, lasting: BoolArray) -> BoolArray:
        """Where the branches differ by a large and significant amount, with correction for multiple tests.

        lasting [t, 1, 1]: whether the episode surely runs for at least t steps.
        """
        rarer = np.minimum(self.share, 1 - self.share)
        looked_at = rarer >= max(LEAST_SHARE, ENOUGH_TRIALS / self.trials)
        looked_at &= (self.open >= 1 - TOLERATED) & lasting
        level = 1 - ERROR_RATE / (2 * max(1, looked_at.sum()))
        met, missed = (self._band(branch, ..., level) for branch in (True, False))
        apart = (met.low > missed.high) | (missed.low > met.high)
        return np.asarray(looked_at & apart & (np.abs(self.met - self.missed) >= LEAST_DIFFERENCE))

    def branches(self, names: Sequence[str], at: tuple[int, int, int], happens: bool) -> Branches:
        """The branches of one condition and event; `happens`: whether the condition's event happens."""
        bands = [self._band(branch, at, LEVEL) for branch in (happens, not happens)]
        first, second = (self.met, self.missed) if happens else (self.missed, self.met)
        ends = [(float(band.low), float(band.high)) for band in bands]
        return Branches(names[at[2]], float(first[at]), float(second[at]), ends[0], ends[1])

    def _band(self, met: bool, at: Any, level: float) -> Band:
        """The band of the probability in one branch; without width if the dynamics are exact."""
        chance = (self.met if met else self.missed)[at]
        if np.isinf(self.trials):
            return Band(chance, chance)
        share = (self.share if met else 1 - self.share) * self.open
        count = np.maximum(np.nan_to_num(share)[at] * self.trials, 1)
        return clopper_pearson(np.nan_to_num(chance) * count, count, level)


def _earliest(explained: FloatArray, share: FloatArray) -> tuple[int, int, int]:
    """Step, condition and event of the earliest split that explains nearly the most [t, c, e].

    On ties, the one with the rarer condition.
    """
    t = int((explained >= NEARLY * explained.max()).any(axis=(1, 2)).argmax())
    best = explained[t] >= explained[t].max() - 1e-9
    c, e = np.unravel_index(np.where(best, share[t], np.inf).argmin(), best.shape)
    return t, int(c), int(e)
