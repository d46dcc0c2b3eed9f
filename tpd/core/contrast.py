"""Contrasts: the difference of two explanations, fact minus foil."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tpd.core import sections
from tpd.core.bands import LEVEL, Band, band_of
from tpd.core.beyond import Whole, alike, mean_of_both
from tpd.core.drawing import draw
from tpd.core.intervals import Binary, difference_band, paired
from tpd.core.types import BoolArray, FloatArray

if TYPE_CHECKING:
    import pandas as pd

    from tpd.core.explanation import Explanation, Told


@dataclass(frozen=True, repr=False)
class Contrast:
    """The difference of two explanations, fact minus foil, for each pair of the batch.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> contrast = explainer.why(explainer.play(seeds=[0])[0][0]).contrast
    >>> contrast.expected.shape == contrast.fact.expected.shape
    True
    """

    fact: "Explanation"
    foil: "Explanation"

    def __post_init__(self) -> None:
        if self.fact.expected.shape != self.foil.expected.shape:
            raise ValueError(
                f"cannot compare explanations of shapes {self.fact.expected.shape} and "
                f"{self.foil.expected.shape} [pair, step, outcome]: they must be equal"
            )
        if self.fact.legend.names != self.foil.legend.names:
            raise ValueError(f"cannot compare outcomes {self.fact.legend.names} and {self.foil.legend.names}")
        quantities = {(side.endless, side.endless and side.stepwise) for side in (self.fact, self.foil)}
        if len(quantities) > 1:
            raise ValueError(
                "cannot compare explanations by methods that predict different quantities: predict fact and "
                "foil with the same explainer"
            )
        counts = {len(self.fact.samples), len(self.foil.samples)} if self.drawn else set[int]()
        single = self.rolled_out and 1 in counts  # a deterministic side has a single rollout
        if len(counts) > 1 and not single:
            drawn = f"{len(self.fact.samples)} posterior samples with {len(self.foil.samples)}"
            raise ValueError(f"cannot compare {drawn}: request the same number for fact and foil")

    def __repr__(self) -> str:
        return f"<Contrast: {self.fact!r} minus {self.foil!r}>"

    @property
    def horizon(self) -> int:
        return self.fact.horizon

    @property
    def known(self) -> BoolArray:
        """[batch]: whether both pairs were ever tried."""
        return self.fact.known & self.foil.known

    @property
    def counted(self) -> bool:
        """Whether the support of both sides counts visits of each pair."""
        return self.fact.counted and self.foil.counted

    @property
    def sparse(self) -> BoolArray:
        """[batch]: whether fact or foil has too few visits for a point estimate."""
        return self.fact.sparse | self.foil.sparse

    @property
    def unknown(self) -> FloatArray:
        """[batch, horizon]: the larger of both sides' probabilities of an untried pair by step h."""
        return np.maximum(self.fact.unknown, self.foil.unknown)

    @property
    def told(self) -> "Told":
        """Which numbers may be reported for both sides."""
        return self.fact.told & self.foil.told

    @property
    def foreseen(self) -> BoolArray:
        """[batch, horizon]: whether both futures are known up to step h and so can be compared."""
        return self.fact.foreseen & self.foil.foreseen

    @property
    def expected(self) -> FloatArray:
        """[batch, horizon, outcome]"""
        return np.asarray(self.fact.expected - self.foil.expected)

    @property
    def drawn(self) -> bool:
        """Whether both sides have posterior samples, or both have rollouts. Only then there are bands."""
        return (self.fact.draws is not None and self.foil.draws is not None) or self.rolled_out

    @property
    def settled(self) -> BoolArray:
        """[batch]: whether the band of the return difference excludes 0.

        Without bands it is True if both sides are exact or were counted from enough visits. It is False for
        a network's estimates.
        """
        if not self.drawn:
            often = self.fact.often_tried & self.foil.often_tried
            return np.asarray((self.fact.certain & self.foil.certain) | often)
        fact, foil = (side.drawn_sums() @ side.legend.rewards for side in (self.fact, self.foil))
        if self.rolled_out:
            low, high = self._paired_band(fact, foil, np.False_, LEVEL)
        else:
            low, high = band_of(fact - foil, self.expected_return[:, -1], self.foreseen[:, -1])
        return np.asarray((low > 0) | (high < 0))

    @property
    def rolled_out(self) -> bool:
        """Whether both sides come from rollouts, which are then compared in pairs."""
        return self.fact.rollouts is not None and self.foil.rollouts is not None

    def band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, outcome]: the band of the difference, from joint posterior samples.

        From rollouts: Tango's interval for paired events, Student's t for other paired differences.
        """
        sides = self.fact.samples, self.foil.samples
        return self._band(*sides, self.expected, self.fact.legend.is_event, level)

    def return_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon]: the band of the difference of returns up to step h."""
        sides = self.fact.drawn_returns, self.foil.drawn_returns
        return self._band(*sides, self.expected_return, np.False_, level)

    def component_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, component]: the same for each component of the reward."""
        sides = self.fact.drawn_component_returns, self.foil.drawn_component_returns
        return self._band(*sides, self.component_returns, np.False_, level)

    def sums_band(self, weights: FloatArray | float, level: float = LEVEL) -> Band:
        """[batch, outcome]: the band of the difference of discounted sums over the horizon, times weights."""
        fact, foil = (side.drawn_sums() * weights for side in (self.fact, self.foil))
        if self.rolled_out:
            return self._paired_band(fact, foil, np.False_, level)
        gains = self.fact.discounts @ self.expected * weights
        return band_of(fact - foil, gains, self.foreseen[:, -1], level)

    def whole(self, level: float = LEVEL) -> Whole:
        """The return difference to the end of the episode; to the horizon if one side is not estimated."""
        weights = self.fact.legend.rewards
        mean = self.fact.discounts @ self.expected @ weights
        fact, foil = self.fact.beyond, self.foil.beyond
        estimated = np.zeros(len(mean), dtype=np.bool_)
        if fact is not None and foil is not None:
            estimated = fact.estimated & foil.estimated
            mean = mean + np.where(estimated, fact.mean - foil.mean, 0)
        if not self.drawn:
            return Whole(mean, None, estimated, estimated)
        within = paired(*(side.drawn_sums() @ weights for side in (self.fact, self.foil)))
        certain = fixed = self.fact.certain & self.foil.certain
        rest = np.zeros((1, len(mean)))
        if fact is not None and foil is not None:
            rest = np.where(estimated, paired(*alike([fact.draws, foil.draws])), 0)
            certain = fixed & (~estimated | (fact.certain & foil.certain))
        if not self.rolled_out:
            band = band_of(within + rest, mean, self.foreseen[:, -1], level)
            apart = (rest > 0).all(axis=0) | (rest < 0).all(axis=0)
            return Whole(mean, band, estimated, estimated & apart)
        plain = difference_band(within, np.zeros((1, 1)), np.False_, fixed, level)
        both = mean_of_both(within, rest, level)
        ends = [np.where(certain, mean, np.where(estimated, *pair)) for pair in zip(both, plain, strict=True)]
        later = mean_of_both(np.zeros((1, len(mean))), rest, level)
        return Whole(mean, Band(*ends), estimated, estimated & ((later.low > 0) | (later.high < 0)))

    def _band(
        self, fact: FloatArray, foil: FloatArray, expected: FloatArray, events: Binary, level: float
    ) -> Band:
        """The band from posterior samples or rollouts of both sides [draw, batch, horizon, ...]."""
        if self.rolled_out:
            return self._paired_band(fact, foil, events, level)
        return band_of(fact - foil, expected, self.foreseen, level)

    def _paired_band(self, fact: FloatArray, foil: FloatArray, events: Binary, level: float) -> Band:
        return difference_band(fact, foil, events, self.fact.certain & self.foil.certain, level)

    @property
    def component_returns(self) -> FloatArray:
        """[batch, horizon, component]: difference accumulated up to step h."""
        return np.asarray(self.fact.component_returns - self.foil.component_returns)

    @property
    def expected_return(self) -> FloatArray:
        """[batch, horizon]: difference accumulated up to step h."""
        return np.asarray(self.fact.expected_return - self.foil.expected_return)

    def to_frame(self) -> "pd.DataFrame":
        """One row for each pair, step and outcome: fact, foil and their difference at that step.

        Values are undiscounted; `expected_return` [batch, horizon] is the difference of the returns.
        """
        foils = {f"foil_{name}": values for name, values in self.foil.state_and_action.items()}
        fact, foil = (
            np.where(side.known[:, None, None] & side.told.at, side.expected, np.nan)
            for side in (self.fact, self.foil)
        )
        compared = {"fact": fact, "foil": foil, "difference": fact - foil}
        told, bands = self.told.at, self.band()._asdict() if self.drawn else {}
        compared |= {name: np.where(told, end, np.nan) for name, end in bands.items()}
        known = {"unknown": self.unknown, "support": np.minimum(self.fact.support, self.foil.support)}
        return self.fact.frame_of({**foils, **compared, **known})

    def plot(self) -> Any:
        """A matplotlib figure: fact and foil of the first pair, and their difference."""
        return draw(self, "contrast")

    def _repr_html_(self) -> str:
        return sections.of_contrast(self)
