"""How often the bands that an explainer shows hold the truth."""

from typing import NamedTuple

import numpy as np

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.types import BoolArray, DiscretePolicy, FloatArray, IntArray
from tpd.evaluation.calibration import agrees, uncertain
from tpd.predictors.cases import Cases
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import HasTable
from tpd.predictors.replayed.posterior import CountedTable, Posterior
from tpd.predictors.rollouts import SampledCases

CERTAIN = 1e-9


class Coverage(NamedTuple):
    """Counts of expectations, each of one case at one step, that are not certain and so test a band."""

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


def coverage(explainer: Explainer, cases: Cases) -> Coverage | None:
    """As far as the bands are put to a test; None where there are no bands.

    The noise of a truth that comes from rollouts is allowed for.
    """
    events = np.array([name in explainer.legend.events for name in explainer.legend.names])
    if isinstance(cases, SampledCases):
        explanation = explainer.explain(cases.observations, cases.actions, draws=ENOUGH_DRAWS)
        if explanation.draws is None:
            return None
        band, expected = explanation.band(), explanation.expected
        held = agrees(band, expected, cases, events)
        return _counted(held, explanation.foreseen, uncertain(expected, events))
    table = explainer.predictor.table() if isinstance(explainer.predictor, HasTable) else None
    if not isinstance(table, CountedTable):
        return None
    assert isinstance(explainer.policy, DiscretePolicy)
    band = Posterior(table, explainer.policy).band(cases.observations, cases.actions)
    exact = cases.expected[:, :, :-1]
    foreseen = explainer.explain(cases.observations, cases.actions).foreseen
    tested = ~events | ((exact > CERTAIN) & (exact < 1 - CERTAIN))
    return _counted((band.low <= exact) & (exact <= band.high), foreseen, tested)


def _counted(held: BoolArray, foreseen: BoolArray, tested: BoolArray) -> Coverage:
    judged = tested & foreseen[:, :, None]
    return Coverage(*(each.sum(axis=(0, 1)) for each in (held & judged, judged, tested)))


def _share(part: IntArray, whole: IntArray) -> FloatArray:
    return np.where(whole > 0, part / np.maximum(1, whole), np.nan)
