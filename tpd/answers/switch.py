"""What would switch the plan: the first branching of the future that decides how it goes on.

A condition is that an event happens within the first few steps. It divides the futures of a pair in two; the
one is told that explains most of whether a decisive event happens later. It is a statement about conditional
probabilities: the condition may be a cause, or the first sign of one.
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
"""The condition is looked for within so many steps."""
LEAST_SHARE = 0.02
"""How likely the rarer branch has to be."""
ENOUGH_TRIALS = 10
"""Rollouts, or visits, that each branch needs."""
LEAST_DIFFERENCE = 0.2
"""Of the chance of the decisive event between the branches."""
LEAST_EXPLAINED = 0.2
"""Share of the variance of the decisive event, whether it happens, that lies between the branches."""
NEARLY = 0.9
"""An earlier branching that explains this share of the best is told instead."""
ERROR_RATE = 0.01
"""How likely anything is told where nothing would switch the plan."""


@dataclass(frozen=True)
class Branches:
    """How likely an event is within the horizon, in both branches, with 90 % bands."""

    event: str
    if_met: float
    otherwise: float
    if_met_band: tuple[float, float]
    otherwise_band: tuple[float, float]


@dataclass(frozen=True)
class Switch:
    """A condition on the first steps that decides how the future of a pair goes on."""

    condition: str
    """The event that the condition is about."""
    happens: bool
    """Whether the condition is that it happens, or that it does not."""
    steps: int
    """Within so many of the first steps."""
    probability: float
    """That the condition is met."""
    horizon: int
    decisive: Branches
    """The decisive event that it explains most of."""
    response: Branches | None
    """Another event that differs most between the branches: what the agent then does, or meets."""


def switch_in_rollouts(explanation: Explanation) -> Switch | None:
    """What would switch the plan after a pair that was rolled out; None if nothing large and certain does."""
    assert explanation.rollouts is not None
    if explanation.certain[0]:
        return None
    events = plain_events(explanation.legend)
    seen = explanation.rollouts[:, 0][:, :, list(events.values())] > 0
    return _switch(_rolled_out_splits(seen), explanation, len(seen))


def switch_in_table(
    explanation: Explanation, dynamics: TabularDynamics, policy: DiscretePolicy
) -> Switch | None:
    """The same where the dynamics are known, or were counted: then the visits of the pair count as trials."""
    if explanation.unknown[0, -1] > TOLERATED or explanation.horizon < 2:
        return None
    columns = np.array(list(plain_events(explanation.legend).values()), dtype=np.int64)
    steps, state, action = _steps(explanation.horizon), explanation.observations[0], explanation.actions[0]
    splits = dynamics.splits(int(state), int(action), policy, columns, steps, explanation.horizon)
    return _switch(splits, explanation, float(explanation.support[0]))


def _steps(horizon: int) -> int:
    return min(MOST_STEPS, horizon - 1)


def _rolled_out_splits(seen: BoolArray) -> Splits:
    """From what rollouts saw [rollout, horizon, event]."""
    by = np.maximum.accumulate(seen, axis=1)
    early = by[:, : _steps(seen.shape[1])]
    still = ~early
    then = still & by[:, -1:]
    met, met_then = (
        np.einsum("rtc,rte->tce", early.astype(float), part) / len(seen) for part in (still, then)
    )
    return Splits(met, met_then, still.mean(axis=0), then.mean(axis=0))


def _switch(splits: Splits, explanation: Explanation, trials: float) -> Switch | None:
    """The earliest branching that explains most of a decisive event, if it is large and certain."""
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
    """Every condition, and how the chance of every event differs with it: arrays [t, condition, event]."""

    share: FloatArray
    """How likely the condition is met."""
    met: FloatArray
    """How likely the event then happens."""
    missed: FloatArray
    """How likely it happens if the condition is not met."""
    explained: FloatArray
    """Share of the variance of the event, whether it happens, that lies between the branches."""
    open: FloatArray
    """[t, 1, event]: how likely the event is still to come"""
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
        """Where the branches differ much, and not by chance, whichever of all that are looked at is told.

        lasting [t, 1, 1]: whether the episode runs on for so long.
        """
        rarer = np.minimum(self.share, 1 - self.share)
        looked_at = rarer >= max(LEAST_SHARE, ENOUGH_TRIALS / self.trials)
        looked_at &= (self.open >= 1 - TOLERATED) & lasting
        level = 1 - ERROR_RATE / (2 * max(1, looked_at.sum()))
        met, missed = (self._band(branch, ..., level) for branch in (True, False))
        apart = (met.low > missed.high) | (missed.low > met.high)
        return np.asarray(looked_at & apart & (np.abs(self.met - self.missed) >= LEAST_DIFFERENCE))

    def branches(self, names: Sequence[str], at: tuple[int, int, int], happens: bool) -> Branches:
        """Of one condition and event; `happens` is whether the condition is that its event happens."""
        bands = [self._band(branch, at, LEVEL) for branch in (happens, not happens)]
        first, second = (self.met, self.missed) if happens else (self.missed, self.met)
        ends = [(float(band.low), float(band.high)) for band in bands]
        return Branches(names[at[2]], float(first[at]), float(second[at]), ends[0], ends[1])

    def _band(self, met: bool, at: Any, level: float) -> Band:
        """Of the chance in one of the branches; no width where nothing is estimated."""
        chance = (self.met if met else self.missed)[at]
        if np.isinf(self.trials):
            return Band(chance, chance)
        share = (self.share if met else 1 - self.share) * self.open
        count = np.maximum(np.nan_to_num(share)[at] * self.trials, 1)
        return clopper_pearson(np.nan_to_num(chance) * count, count, level)


def _earliest(explained: FloatArray, share: FloatArray) -> tuple[int, int, int]:
    """Step, condition and event of the earliest branching that explains nearly the most [t, c, e].

    Of those that explain the same, the one whose condition is rarer.
    """
    t = int((explained >= NEARLY * explained.max()).any(axis=(1, 2)).argmax())
    best = explained[t] >= explained[t].max() - 1e-9
    c, e = np.unravel_index(np.where(best, share[t], np.inf).argmin(), best.shape)
    return t, int(c), int(e)
