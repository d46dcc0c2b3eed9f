"""Coverage and interval score of an explainer's bands.

If the truth comes from rollouts, a band covers it if the band overlaps with the confidence interval of the
rollouts at the same level (exact binomial limits for events). All forecasts count, confident ones too.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tpd.core.bands import ENOUGH_DRAWS, LEVEL, Band
from tpd.core.intervals import clopper_pearson
from tpd.core.pairs import IN_MEMORY, blocks
from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.evaluation.skill import ratio
from tpd.predictors.cases import Cases
from tpd.predictors.explainer import Explainer
from tpd.predictors.known_errors import NONE
from tpd.predictors.rollouts import SampledCases

CERTAIN = 1e-9
FORECASTS = {"below 1 %": 0.0, "1 to 20 %": 0.01, "above 20 %": 0.2}
"""Bins of forecasts for which coverage is reported, with their lower edges."""
LIKELY, LIKELY_NAME = 0.2, "truth above 20 %"
"""Coverage is also reported for truths above this."""


class Coverage(NamedTuple):
    """Counts of true expectations (one for each case and step) that were compared with a band."""

    held: IntArray
    """[outcome]: how many lie in their bands"""
    judged: IntArray
    """[outcome]: how many have a band; unknown futures have none"""
    tested: IntArray
    """[outcome]: how many there are"""

    @property
    def covered(self) -> FloatArray:
        """[outcome]: held / judged, the coverage; NaN if none is judged."""
        return ratio(self.held, self.judged)

    @property
    def shown(self) -> FloatArray:
        """[outcome]: judged / tested; NaN if there are none."""
        return ratio(self.judged, self.tested)

    @property
    def overall(self) -> "Coverage":
        """[1]: summed over all outcomes."""
        return Coverage(*(count.sum(keepdims=True) for count in self))


@dataclass(frozen=True)
class BandScores:
    """Coverage of the bands of events by bin of forecast, and their interval scores.

    For an event that happens at most once, these are bands of P(by step h), else of P(at step h).
    """

    names: tuple[str, ...]
    """[event]"""
    covered: FloatArray
    """[event, bin + 1]: fraction of forecasts whose band covers the truth; NaN without forecasts. The last is
    where the truth is above 0.2"""
    moments: IntArray
    """[event, bin + 1]: number of moments with such forecasts"""
    score: FloatArray
    """[event]: mean interval score, width plus 2 / 10 % times the distance to missed truths"""
    base_score: FloatArray
    """[event]: the score of a constant band that covers 90 % of the truths at each step"""

    def frame(self) -> pd.DataFrame:
        """A row for each event."""
        columns: dict[str, Any] = {"event": self.names}
        for b, name in enumerate((*FORECASTS, LIKELY_NAME)):
            columns |= {f"covered, {name}": self.covered[:, b], f"moments, {name}": self.moments[:, b]}
        return pd.DataFrame(columns | {"interval score": self.score, "constant band score": self.base_score})

    def metrics(self, prefix: str) -> dict[str, float]:
        """Flat names and values."""
        table = dict[str, float]()
        for k, name in enumerate(self.names):
            for b, forecasts in enumerate(("below_1", "1_to_20", "above_20", "likely")):
                table[f"{name}/{prefix}_covered_{forecasts}"] = float(self.covered[k, b])
            table[f"{name}/{prefix}_interval_score"] = float(self.score[k])
            table[f"{name}/{prefix}_base_interval_score"] = float(self.base_score[k])
        return {name: value for name, value in table.items() if not np.isnan(value)}


def coverage(explainer: Explainer, cases: Cases) -> Coverage | None:
    """The coverage of an explainer's bands on these cases; None if it has no bands."""
    if isinstance(cases, SampledCases):
        if (shown := _shown(explainer, cases)) is None:
            return None
        held = shown.held & shown.foreseen
        return Coverage(*(each.sum(axis=(0, 1)) for each in (held, shown.foreseen, np.ones_like(held))))
    counts = np.zeros((3, len(explainer.legend.names)), dtype=np.int64)
    for some in blocks(max(1, len(cases)), IN_MEMORY):
        if (found := _exactly(explainer, cases[some])) is None:
            return None
        counts += np.stack(found)
    return Coverage(*counts)


def _exactly(explainer: Explainer, cases: Cases) -> Coverage | None:
    """Coverage against the exact truth; events whose truth is 0 or 1 are left out."""
    explanation = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS)
    if explanation.draws is None:
        return None
    band, exact = explanation.band(), cases.expected[:, :, :-1]
    tested = ~explainer.legend.is_event | ((exact > CERTAIN) & (exact < 1 - CERTAIN))
    judged = tested & explanation.foreseen[:, :, None]
    held = judged & (band.low <= exact) & (exact <= band.high)
    return Coverage(*(each.sum(axis=(0, 1)) for each in (held, judged, tested)))


def band_scores(explainer: Explainer, cases: Cases) -> BandScores | None:
    """Coverage and interval scores by forecast; None without bands, or if the truth is not from rollouts."""
    shown = _shown(explainer, cases) if isinstance(cases, SampledCases) and len(cases) else None
    if shown is None:
        return None
    events = np.flatnonzero(explainer.legend.is_event)
    number = np.searchsorted(list(FORECASTS.values()), shown.said, side="right") - 1
    cells = [np.maximum(number, 0) == b for b in range(len(FORECASTS))] + [shown.true > LIKELY]
    covered, moments = zip(*(_within(shown.held, shown.foreseen & each) for each in cells), strict=True)
    base = Band(*np.quantile(shown.true, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="weibull"))
    return BandScores(
        names=tuple(explainer.legend.names[k] for k in events),
        covered=np.stack(covered, axis=1)[events],
        moments=np.stack(moments, axis=1)[events],
        score=_interval_score(shown.band, shown)[events],
        base_score=_interval_score(base, shown)[events],
    )


class _Shown(NamedTuple):
    """Forecasts, truth and bands, all [case, horizon, outcome]."""

    said: FloatArray
    true: FloatArray
    band: Band
    held: BoolArray
    foreseen: BoolArray


def _shown(explainer: Explainer, cases: SampledCases) -> _Shown | None:
    """Forecasts and bands of P(by step h) for events that happen at most once, else of each step."""
    explanation = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS)
    if explanation.draws is None:
        return None
    by, true = _happens_once(explainer), cases.expected[:, :, :-1]

    def either(sums: FloatArray, steps: FloatArray) -> FloatArray:
        return np.where(by, sums, steps)

    said = either(np.cumsum(explanation.expected, axis=1), explanation.expected)
    seen = either(np.cumsum(true, axis=1), true)
    band = Band(*map(either, explanation.sum_band(), explanation.band()))
    rolled_out = _limits(seen, cases, explainer.legend.is_event)
    held = (band.low <= rolled_out.high + 1e-6) & (rolled_out.low <= band.high + 1e-6)  # float32
    foreseen = np.broadcast_to(explanation.foreseen[:, :, None], seen.shape)
    return _Shown(said, seen, band, held, foreseen)


def _happens_once(explainer: Explainer) -> BoolArray:
    """[outcome]: which events have a band of P(by step h)."""
    if explainer.errors is None:
        return np.zeros(len(explainer.legend.names), dtype=np.bool_)
    once, ends = explainer.errors.once[:-1], explainer.errors.ends[:-1]
    return np.asarray((once == np.arange(len(once))) | (ends & (once != NONE)))


def _limits(seen: FloatArray, cases: SampledCases, events: BoolArray) -> Band:
    """[case, horizon, outcome]: the confidence interval of the truth, given the rollouts."""
    assert cases.standard_error is not None
    rollouts = cases.rollouts[:, None, None]
    drawn = np.isfinite(rollouts)
    trials = np.where(drawn, rollouts, 1)
    exact = clopper_pearson(np.clip(np.rint(seen * trials), 0, trials), trials)
    reach = 1.645 * cases.standard_error[:, :, :-1]
    ends = ((exact.low, seen - reach), (exact.high, seen + reach))
    return Band(*(np.where(drawn, np.where(events, event, other), seen) for event, other in ends))


def _within(held: BoolArray, cells: BoolArray) -> tuple[FloatArray, IntArray]:
    """[outcome] both: the coverage of some cells [case, horizon, outcome]; the number of cases with any."""
    return ratio((held & cells).sum(axis=(0, 1)), cells.sum(axis=(0, 1))), cells.any(axis=1).sum(axis=0)


def _interval_score(band: Band, shown: _Shown) -> FloatArray:
    """[outcome]: the mean interval score over known futures."""
    missed = np.maximum(0, band.low - shown.true) + np.maximum(0, shown.true - band.high)
    score = np.where(shown.foreseen, band.high - band.low + 2 / (1 - LEVEL) * missed, 0)
    return np.asarray(score.sum(axis=(0, 1)) / np.maximum(1, shown.foreseen.sum(axis=(0, 1))))
