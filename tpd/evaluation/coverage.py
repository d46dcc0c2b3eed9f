"""How often the bands that an explainer shows hold the truth, and whether they are worth having.

Where the truth comes from rollouts, a band holds it if it overlaps with what the rollouts alone say of it
with the same confidence: exact binomial limits for events. Every forecast counts, the confident ones too.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tpd.core.bands import ENOUGH_DRAWS, LEVEL, Band
from tpd.core.intervals import clopper_pearson
from tpd.core.types import BoolArray, FloatArray, IntArray
from tpd.predictors.cases import Cases
from tpd.predictors.explainer import Explainer, blocks
from tpd.predictors.known_errors import NONE
from tpd.predictors.rollouts import SampledCases

CERTAIN = 1e-9
FORECASTS = {"below 1 %": 0.0, "1 to 20 %": 0.01, "above 20 %": 0.2}
"""The bins of forecasts in which coverage is reported, by where they begin."""
LIKELY = 0.2
"""Coverage is reported apart where the truth is above that."""


class Coverage(NamedTuple):
    """Counts of expectations, each of one case at one step, that test a band."""

    held: IntArray
    """[outcome]: how many lie in their bands"""
    judged: IntArray
    """[outcome]: how many have a band; what leads to the unknown has none"""
    tested: IntArray
    """[outcome]: how many there are"""

    @property
    def covered(self) -> FloatArray:
        """[outcome]: the share of those judged that lie in their bands; NaN if none is judged."""
        return _share(self.held, self.judged)

    @property
    def shown(self) -> FloatArray:
        """[outcome]: the share that is judged; NaN if there are none."""
        return _share(self.judged, self.tested)

    @property
    def overall(self) -> "Coverage":
        """Of all outcomes together: [1]."""
        return Coverage(*(count.sum(keepdims=True) for count in self))


@dataclass(frozen=True)
class BandScores:
    """What the bands of events are worth, by how likely the events are said to be.

    Of an event that happens but once it is the band of having happened by each step, else of each step.
    """

    names: tuple[str, ...]
    """[event]"""
    covered: FloatArray
    """[event, bin]: the share of forecasts whose band holds the truth; NaN where there are none"""
    moments: IntArray
    """[event, bin]: at how many moments such forecasts were made"""
    likely_covered: FloatArray
    """[event]: the same where the truth is above 0.2"""
    likely_moments: IntArray
    """[event]"""
    score: FloatArray
    """[event]: mean interval score, the width and 2 / 10 % times what is missed; less is better"""
    base_score: FloatArray
    """[event]: that of the base rate's band, which holds 90 % of the truths at each step"""

    def frame(self) -> pd.DataFrame:
        """A row for each event."""
        columns: dict[str, Any] = {"event": self.names}
        for b, name in enumerate(FORECASTS):
            columns |= {f"covered, {name}": self.covered[:, b], f"moments, {name}": self.moments[:, b]}
        likely = {"covered": self.likely_covered, "moments": self.likely_moments}
        columns |= {f"{name}, truth above 20 %": values for name, values in likely.items()}
        return pd.DataFrame(columns | {"interval score": self.score, "base rate's score": self.base_score})

    def metrics(self, prefix: str) -> dict[str, float]:
        """Flat names and values."""
        table = dict[str, float]()
        for k, name in enumerate(self.names):
            for b, forecasts in enumerate(("below_1", "1_to_20", "above_20")):
                table[f"{name}/{prefix}_covered_{forecasts}"] = float(self.covered[k, b])
            table[f"{name}/{prefix}_covered_likely"] = float(self.likely_covered[k])
            table[f"{name}/{prefix}_interval_score"] = float(self.score[k])
            table[f"{name}/{prefix}_base_interval_score"] = float(self.base_score[k])
        return {name: value for name, value in table.items() if not np.isnan(value)}


def coverage(explainer: Explainer, cases: Cases) -> Coverage | None:
    """As far as the bands are put to a test; None where there are no bands."""
    if isinstance(cases, SampledCases):
        shown = _shown(explainer, cases)
        if shown is None:
            return None
        held = shown.held & shown.foreseen
        return Coverage(*(each.sum(axis=(0, 1)) for each in (held, shown.foreseen, np.ones_like(held))))
    counts = np.zeros((3, len(explainer.legend.names)), dtype=np.int64)
    for some in blocks(max(1, len(cases))):
        found = _exactly(explainer, cases[some])
        if found is None:
            return None
        counts += np.stack(found)
    return Coverage(*counts)


def _exactly(explainer: Explainer, cases: Cases) -> Coverage | None:
    """Against the exact truth, where that is uncertain."""
    explanation = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS)
    if explanation.draws is None:
        return None
    band, exact = explanation.band(), cases.expected[:, :, :-1]
    tested = ~explainer.legend.is_event | ((exact > CERTAIN) & (exact < 1 - CERTAIN))
    judged = tested & explanation.foreseen[:, :, None]
    held = judged & (band.low <= exact) & (exact <= band.high)
    return Coverage(*(each.sum(axis=(0, 1)) for each in (held, judged, tested)))


def band_scores(explainer: Explainer, cases: Cases) -> BandScores | None:
    """By how likely events are said to be; None where there are no bands, or the truth is not of rollouts."""
    shown = _shown(explainer, cases) if isinstance(cases, SampledCases) and len(cases) else None
    if shown is None:
        return None
    events = np.flatnonzero(explainer.legend.is_event)
    number = np.searchsorted(list(FORECASTS.values()), shown.said, side="right") - 1
    judged = [shown.foreseen & (np.maximum(number, 0) == b) for b in range(len(FORECASTS))]
    likely = shown.foreseen & (shown.true > LIKELY)
    covered, moments = zip(*(_within(shown.held, cells) for cells in [*judged, likely]), strict=True)
    base = Band(*np.quantile(shown.true, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="weibull"))
    return BandScores(
        names=tuple(explainer.legend.names[k] for k in events),
        covered=np.stack(covered[:-1], axis=1)[events],
        moments=np.stack(moments[:-1], axis=1)[events],
        likely_covered=covered[-1][events],
        likely_moments=moments[-1][events],
        score=_interval_score(shown.band, shown)[events],
        base_score=_interval_score(base, shown)[events],
    )


class _Shown(NamedTuple):
    """Bands as they are shown, beside the truth: [case, horizon, outcome] all."""

    said: FloatArray
    true: FloatArray
    band: Band
    held: BoolArray
    foreseen: BoolArray


def _shown(explainer: Explainer, cases: SampledCases) -> _Shown | None:
    """What is said of having happened, where that is a probability, and of each step elsewhere."""
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
    """[outcome]: which events have a band of having happened."""
    if explainer.errors is None:
        return np.zeros(len(explainer.legend.names), dtype=np.bool_)
    once, ends = explainer.errors.once[:-1], explainer.errors.ends[:-1]
    return np.asarray((once == np.arange(len(once))) | (ends & (once != NONE)))


def _limits(seen: FloatArray, cases: SampledCases, events: BoolArray) -> Band:
    """[case, horizon, outcome]: where the truth lies, by the rollouts alone."""
    assert cases.standard_error is not None
    rollouts = cases.rollouts[:, None, None]
    drawn = np.isfinite(rollouts)
    trials = np.where(drawn, rollouts, 1)
    exact = clopper_pearson(np.clip(np.rint(seen * trials), 0, trials), trials)
    reach = 1.645 * cases.standard_error[:, :, :-1]
    ends = ((exact.low, seen - reach), (exact.high, seen + reach))
    return Band(*(np.where(drawn, np.where(events, event, other), seen) for event, other in ends))


def _within(held: BoolArray, cells: BoolArray) -> tuple[FloatArray, IntArray]:
    """[outcome] both: the share held of some cells [case, horizon, outcome]; how many cases have any."""
    return _share((held & cells).sum(axis=(0, 1)), cells.sum(axis=(0, 1))), cells.any(axis=1).sum(axis=0)


def _interval_score(band: Band, shown: _Shown) -> FloatArray:
    """[outcome]: the mean over what is foreseen."""
    missed = np.maximum(0, band.low - shown.true) + np.maximum(0, shown.true - band.high)
    score = np.where(shown.foreseen, band.high - band.low + 2 / (1 - LEVEL) * missed, 0)
    return np.asarray(score.sum(axis=(0, 1)) / np.maximum(1, shown.foreseen.sum(axis=(0, 1))))


def _share(part: IntArray, whole: IntArray) -> FloatArray:
    return np.where(whole > 0, part / np.maximum(1, whole), np.nan)
