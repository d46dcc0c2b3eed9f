"""Explanations and contrasts: pure data about expected future outcomes."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpd.core import notebook as html
from tpd.core.bands import LEVEL, Band, band_of
from tpd.core.beyond import Beyond, Whole, alike, all_beyond, mean_of_both
from tpd.core.colours import colour
from tpd.core.drawing import draw
from tpd.core.efo import compose
from tpd.core.intervals import difference_band, mean_band, paired
from tpd.core.observations import MOST_NUMBERS, numbers
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import Array, BoolArray, FloatArray, Index
from tpd.core.verdicts import Verdict, Verdicts, is_told

if TYPE_CHECKING:
    import pandas as pd

TOLERATED = 0.02
"""How likely the unknown may be in a future that is still taken for known."""
ENOUGH_VISITS = 3
"""Of a pair, to draw a line of what is expected after it, and not only its band."""
FEW_VISITS = 30
"""Fewer of a pair are said, and settle nothing where there are no bands."""
SMALLEST_GAIN = 0.005
MOST_SHOWN = 3
"""How many pairs a notebook shows."""
CONTRASTED = ("steps ahead (▀ more after the fact, ▄ the foil)", "fact in all", "foil in all")


class Remainder(NamedTuple):
    """What is not explained: what lies beyond the horizon, and what was never tried."""

    running: FloatArray
    """[batch]: probability that the episode still runs after the last step explained"""
    unknown: FloatArray
    """[batch]: probability that by the last step it has come to what was never tried"""
    bound: FloatArray
    """[batch]: the largest possible |value| of both; inf where nothing bounds it"""
    gap: FloatArray | None
    """[batch]: the agent's own value minus the explained return, where the agent has values"""


class Told(NamedTuple):
    """Which numbers of an explanation may be given."""

    at: BoolArray
    """[batch, horizon, outcome]: what is expected at step h"""
    by: BoolArray
    """[batch, horizon, outcome]: its sum up to step h"""
    ended: BoolArray
    """[batch, horizon]: how likely the episode has ended by step h"""
    returns: BoolArray
    """[batch, horizon]: the return up to step h"""

    def __and__(self, other: "Told") -> "Told":
        """What may be given of both."""
        return Told(*(one & another for one, another in zip(self, other, strict=True)))


@dataclass(frozen=True, repr=False)
class Explanation:
    """What is expected to happen h = 0, 1, ... steps after doing each action in each observation.

    `Explainer.explain` and the sides of an `Answer` give it; two explanations subtract to a `Contrast`.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> explanation = explainer.why(explainer.play(seeds=[0])[0][0]).fact.explanation
    >>> explanation.expected.shape  # [batch, horizon, outcome]
    (1, 30, 10)
    >>> explanation.legend.names[:3]
    ('push left', 'push right', 'leans left')
    """

    observations: Array
    """[batch, ...]"""
    actions: Array
    """[batch, ...]"""
    expected: FloatArray
    """[batch, horizon, outcome]: the expected future outcomes"""
    running: FloatArray
    """[batch, horizon]: probability that the episode, as far as it is known, goes on after step h"""
    support: FloatArray
    """[batch]: visits behind each pair; 0 means unknown, inf means exact"""
    legend: Legend
    discount: float
    """Weighs the returns; the agent's own."""
    agent_value: FloatArray | None = None
    """[batch]: what the agent itself thinks the pair is worth"""
    unknown: FloatArray = None  # type: ignore[assignment]  # no entry means 0
    """[batch, horizon]: probability that by step h the future has come to what was never tried"""
    draws: FloatArray | None = None
    """[draw, batch, horizon, outcome]: what could be expected as well, by what was seen, where it was asked
    for; in one draw all pairs belong together"""
    rollouts: FloatArray | None = None
    """[rollout, batch, horizon, outcome]: what each rollout saw, where the simulator was asked; number i of
    every pair shares one random stream. `expected` is their mean, and nothing learned is mixed in."""
    verdicts: Verdicts | None = None
    """Whether the predictor was found to know what it says; None where nobody judged it, or nobody has to"""
    action_names: tuple[str, ...] = ()
    """What actions are called, by their number; empty where they have no names"""
    beyond: Beyond | None = None
    """The rest of the return to the end of the episode, where it was asked for and can be estimated"""

    def __post_init__(self) -> None:
        if self.unknown is None:
            object.__setattr__(self, "unknown", np.zeros(self.expected.shape[:2]))

    def __len__(self) -> int:
        return len(self.support)

    def __getitem__(self, index: Index | int) -> "Explanation":
        if isinstance(index, int | np.integer):  # one pair is a batch of one
            index = np.array([range(len(self))[index]])
        return Explanation(
            self.observations[index],
            self.actions[index],
            self.expected[index],
            self.running[index],
            self.support[index],
            self.legend,
            self.discount,
            None if self.agent_value is None else self.agent_value[index],
            self.unknown[index],
            None if self.draws is None else self.draws[:, index],
            None if self.rollouts is None else self.rollouts[:, index],
            None if self.verdicts is None else self.verdicts[index],
            self.action_names,
            None if self.beyond is None else self.beyond[index],
        )

    def __repr__(self) -> str:
        pairs, names = len(self), len(self.legend.names)
        return f"<Explanation: {pairs} pairs, {self.horizon} steps, {names} outcomes, {self.obtained}>"

    def __sub__(self, foil: "Explanation") -> "Contrast":
        return Contrast(self, foil)

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    @property
    def certain(self) -> BoolArray:
        """[batch]: whether nothing is left to chance or to learning."""
        return np.isinf(self.support)

    @property
    def banded(self) -> bool:
        """Whether it has bands, from draws or from rollouts."""
        return self.draws is not None or self.rollouts is not None

    @property
    def obtained(self) -> str:
        """How its numbers were obtained."""
        if self.rollouts is None:
            if self.certain.all():
                return "exact"
            if not self.counted and not self.known.any():
                return "not learned"
            return "learned" if self.counted or self.verdicts is not None else "learned, but never judged"
        if self.certain.all():
            return "by one rollout: nothing is random here"
        return f"by {len(self.rollouts)} rollouts"

    @property
    def known(self) -> BoolArray:
        """[batch]: whether the pair was ever tried."""
        return np.asarray(self.support > 0)

    @property
    def counted(self) -> bool:
        """Whether the support counts visits of each pair, and not all that a network learned from."""
        return self.verdicts is None and self.rollouts is None and self._numbered

    @property
    def _numbered(self) -> bool:
        """Whether states are numbers; those of Dict spaces are records."""
        return self.observations.ndim == 1 and self.observations.dtype.names is None

    @property
    def sparse(self) -> BoolArray:
        """[batch]: whether the pair was tried too rarely to say more than how unsure it is."""
        return np.asarray(self.known & (self.support < ENOUGH_VISITS))

    @property
    def foreseen(self) -> BoolArray:
        """[batch, horizon]: whether all that may happen up to step h is known, but for a few percent."""
        return np.asarray(self.known[:, None] & (self.unknown <= TOLERATED))

    @property
    def learned(self) -> BoolArray | None:
        """[batch, horizon, outcome]: False where the predictor does not know what is expected at step h."""
        return None if self.verdicts is None else is_told(self.verdicts.at[..., :-1])

    @property
    def told(self) -> "Told":
        """Which numbers may be given: all but those that the predictor was found not to know."""
        if self.verdicts is None:
            every = np.ones((len(self), self.horizon, len(self.legend.names)), dtype=np.bool_)
            return Told(every, every, every[..., 0], every[..., 0])
        at, by = (is_told(each) for each in (self.verdicts.at, self.verdicts.by))
        return Told(at[..., :-1], by[..., :-1], by[..., -1], is_told(self.verdicts.returns))

    @property
    def ended(self) -> FloatArray:
        """[batch, horizon]: probability that no event happens at step h, by exclusion.

        The episode has terminated by then. With a predictor that does not track what is unknown, it
        may also be that too little was learned.
        """
        if not self.legend.partition:
            raise ValueError("termination follows by exclusion only from a partition of events")
        members = [self.legend.names.index(name) for name in self.legend.partition]
        return np.asarray(1 - self.expected[:, :, members].sum(axis=2) - self.unknown)

    @property
    def component_names(self) -> tuple[str, ...]:
        """The outcomes that are part of the reward."""
        pairs = zip(self.legend.names, self.legend.weights, strict=True)
        return tuple(name for name, weight in pairs if weight is not None)

    @property
    def reward_components(self) -> FloatArray:
        """[batch, horizon, component]: expected reward at step h from each outcome."""
        if self.legend.reward_bound is None:
            raise ValueError("these outcomes do not account for the reward")
        columns = [k for k, weight in enumerate(self.legend.weights) if weight is not None]
        return np.asarray(self.expected[:, :, columns] * self._weights[columns])

    @property
    def expected_reward(self) -> FloatArray:
        """[batch, horizon]"""
        if self.legend.reward_bound is None:
            raise ValueError("these outcomes do not account for the reward")
        return np.asarray(self.expected @ self._weights)

    @property
    def component_returns(self) -> FloatArray:
        """[batch, horizon, component]: discounted reward accumulated up to step h."""
        return compose(self.reward_components, self.discount, axis=1)

    @property
    def expected_return(self) -> FloatArray:
        """[batch, horizon]: discounted reward accumulated up to step h."""
        return compose(self.expected_reward, self.discount, axis=1)

    @property
    def _weights(self) -> FloatArray:
        """[outcome]: what each adds to the reward."""
        return np.array([weight or 0.0 for weight in self.legend.weights])

    def band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, outcome]: where what is expected lies.

        From rollouts: exact binomial limits (Clopper and Pearson) for events, Student's t for the rest.
        """
        if self.rollouts is not None:
            return mean_band(self.rollouts, self._events, self.certain, level)
        return band_of(self._drawn, self.expected, self.foreseen, level)

    def sum_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, outcome]: the same up to step h; of a first occurrence, that it has happened."""
        if self.rollouts is not None:
            sums = np.cumsum(self.rollouts, axis=2)
            return mean_band(sums, self._events & happens_once(sums), self.certain, level)
        sums = np.cumsum(self.expected, axis=1)
        return band_of(np.cumsum(self._drawn, axis=2), sums, self.foreseen, level)

    def return_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon]: where the expected return up to step h lies."""
        if self.rollouts is not None:
            return mean_band(self.drawn_returns, np.False_, self.certain, level)
        return band_of(self.drawn_returns, self.expected_return, self.foreseen, level)

    def reward_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon]: where the expected reward at step h lies."""
        drawn = self._drawn @ self._weights
        if self.rollouts is not None:
            return mean_band(drawn, np.False_, self.certain, level)
        return band_of(drawn, self.expected_reward, self.foreseen, level)

    def beyond_band(self, level: float = LEVEL) -> Band | None:
        """[batch]: where the rest of the return after the last step lies; None without draws of it."""
        if self.beyond is None or not len(self.beyond.draws):
            return None
        if self.beyond.certain.all():
            return Band(self.beyond.mean, self.beyond.mean)
        if self.rollouts is not None:
            band = mean_of_both(np.zeros((1, len(self))), self.beyond.draws, level)
        else:
            band = band_of(self.beyond.draws, self.beyond.mean, self.beyond.estimated, level)
        return Band(*(np.where(self.beyond.certain, self.beyond.mean, end) for end in band))

    def _drawn_sums(self) -> FloatArray:
        """[draw, batch, outcome]: discounted sums over the horizon, in every draw or rollout."""
        powers = (self.discount ** np.arange(self.horizon)).astype(self._drawn.dtype)
        return np.asarray(powers @ self._drawn)

    @property
    def _events(self) -> BoolArray:
        """[outcome]: which happen or not."""
        return np.array([name in self.legend.events for name in self.legend.names])

    @property
    def _drawn(self) -> FloatArray:
        if self.rollouts is not None:
            return self.rollouts
        if self.draws is None:
            raise ValueError("bands come from draws, and none were asked for: explain(..., draws=59)")
        return self.draws

    def _drawn_counts(self, outcome: str) -> FloatArray:
        """[draw, batch]: the discounted count of an outcome in every draw, or rollout."""
        powers = self.discount ** np.arange(self.horizon)
        return np.asarray(self._drawn[..., self.legend.names.index(outcome)] @ powers)

    @property
    def drawn_returns(self) -> FloatArray:
        """[draw, batch, horizon]: the return of every draw, or rollout, up to step h."""
        return compose(self._drawn @ self._weights, self.discount, axis=2)

    @property
    def drawn_component_returns(self) -> FloatArray:
        """[draw, batch, horizon, component]: the same by where it comes from."""
        columns = [k for k, weight in enumerate(self.legend.weights) if weight is not None]
        return compose(self._drawn[..., columns] * self._weights[columns], self.discount, axis=2)

    @property
    def remainder(self) -> Remainder:
        """What the horizon cuts off, and what is unknown before."""
        running, unknown = np.clip(self.running[:, -1], 0, 1), self.unknown[:, -1]
        largest = np.inf if self.legend.reward_bound is None else self.legend.reward_bound
        steps = np.inf if self.discount == 1 else 1 / (1 - self.discount)
        worst = self.discount**self.horizon * largest * steps
        bound, lasting, within = np.zeros(len(self)), running + unknown, self.unknown.any(axis=1)
        bound[lasting > 0] = lasting[lasting > 0] * worst
        bound[within] += self.unknown[within] @ self.discount ** np.arange(self.horizon) * largest
        gap = None
        if self.agent_value is not None and self.legend.reward_bound is not None:
            gap = self.agent_value - self.expected_return[:, -1]
        return Remainder(running, unknown, bound, gap)

    def to_frame(self) -> "pd.DataFrame":
        """One row for each pair, step and outcome: what is expected at that step, and how well it is known.

        Values are undiscounted; `expected_return` [batch, horizon] is the discounted return.
        """
        known = {"unknown": self.unknown, "support": self.support}
        told = self.told.at
        expected = np.where(self.known[:, None, None] & told, self.expected, np.nan)
        bands = self.band()._asdict() if self.banded else {}
        bands = {name: np.where(told, end, np.nan) for name, end in bands.items()}
        learned = {} if self.verdicts is None else {"learned": told}
        return _tidy(
            {**self._pairs(), "expected": expected, **bands, **known, **learned}, self.expected.shape
        )

    def plot(self) -> Any:
        """A matplotlib figure: what is expected after each of the first pairs, step by step."""
        return draw(self, "explanation")

    def _pairs(self) -> dict[str, Array]:
        """What pair, step and outcome each expectation belongs to; the state where it is a number."""
        states = {"state": self.observations} if self._numbered else {}
        return {
            "pair": np.arange(len(self)),
            **states,
            "action": plain(self.actions),
            "step": np.arange(self.horizon)[None, :, None],
            "outcome": np.array(self.legend.names, dtype=object)[None, None],
        }

    def _repr_html_(self) -> str:
        sections = [self._section(row) for row in range(min(len(self), MOST_SHOWN))]
        return html.page(sections, ("steps ahead", "in all", "peak"), len(self) - len(sections))

    def _section(self, row: int) -> html.Section:
        strips = []
        for column, name in enumerate(self.legend.names):
            values, is_event = self.expected[row, :, column], name in self.legend.events
            full = 1.0 if is_event else float(np.abs(self.expected[:, :, column]).max())
            signed = bool((values < 0).any()) and not is_event
            said = _in_all(self, row, column), _peak(self, row, column)
            told = self.told.at[row, :, column]
            strips.append(
                html.Strip(name, colour(self.legend.names, name), values, full, is_event, signed, said, told)
            )
        return html.Section(self.name_of(row), _remark(self, row), strips, self.foreseen[row])

    def name_of(self, row: int) -> str:
        """A pair in a few words."""
        return f"{self._state_name(row)}: {self.action_name(row)}"

    def _state_name(self, row: int) -> str:
        """The numbers of the state, or that of the observation where they are many."""
        state = self.observations[row]
        if self._numbered:
            return f"state {state}"
        few = state.dtype.names is None and state.size <= MOST_NUMBERS
        return f"state {numbers(state)}" if few else f"observation {row}"

    def action_name(self, row: int) -> str:
        """The action of a pair in a few words."""
        action = self.actions[row]
        if self.action_names:
            return self.action_names[int(action)]
        return f"action {numbers(action) if np.ndim(action) else action}"


@dataclass(frozen=True, repr=False)
class Contrast:
    """Fact against foil: how two explanations, pair by pair, differ.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> contrast = explainer.why(explainer.play(seeds=[0])[0][0]).contrast
    >>> contrast.expected.shape == contrast.fact.expected.shape
    True
    """

    fact: Explanation
    foil: Explanation

    def __post_init__(self) -> None:
        if self.fact.expected.shape != self.foil.expected.shape:
            raise ValueError(
                f"cannot compare explanations of shapes {self.fact.expected.shape} "
                f"and {self.foil.expected.shape}"
            )
        if self.fact.legend.names != self.foil.legend.names:
            raise ValueError(f"cannot compare outcomes {self.fact.legend.names} and {self.foil.legend.names}")
        if self.drawn and len(self.fact._drawn) != len(self.foil._drawn) and not self._pairable:
            drawn = f"{len(self.fact._drawn)} draws with {len(self.foil._drawn)}"
            raise ValueError(f"cannot compare {drawn}: ask for as many of both")

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
        """Whether the support of both counts visits of each pair."""
        return self.fact.counted and self.foil.counted

    @property
    def sparse(self) -> BoolArray:
        """[batch]: whether one of the pairs was tried too rarely to say more than how unsure it is."""
        return self.fact.sparse | self.foil.sparse

    @property
    def unknown(self) -> FloatArray:
        """[batch, horizon]: probability that the less known of both futures is unknown by step h."""
        return np.maximum(self.fact.unknown, self.foil.unknown)

    @property
    def told(self) -> Told:
        """Which numbers may be given of both."""
        return self.fact.told & self.foil.told

    @property
    def foreseen(self) -> BoolArray:
        """[batch, horizon]: whether both futures are known up to step h, so that they can be compared."""
        return self.fact.foreseen & self.foil.foreseen

    @property
    def expected(self) -> FloatArray:
        """[batch, horizon, outcome]"""
        return np.asarray(self.fact.expected - self.foil.expected)

    @property
    def drawn(self) -> bool:
        """Whether there are draws of both, or rollouts of both, so that it has bands."""
        draws = self.fact.draws is not None and self.foil.draws is not None
        return draws or self.rolled_out

    @property
    def settled(self) -> BoolArray:
        """[batch]: whether the band of the return difference excludes 0.

        Without bands: what is exact is settled, and what was learned from enough visits of both pairs; what a
        network guesses is not.
        """
        if not self.drawn:
            visits = np.minimum(self.fact.support, self.foil.support)
            return np.asarray(np.isinf(visits) | (self.counted & (visits >= FEW_VISITS)))
        low, high = (end[:, -1] for end in self.return_band())
        return np.asarray((low > 0) | (high < 0))

    @property
    def rolled_out(self) -> bool:
        """Whether both were rolled out, so that they are compared rollout by rollout."""
        return self.fact.rollouts is not None and self.foil.rollouts is not None

    @property
    def _pairable(self) -> bool:
        """Whether one of them was rolled out once because nothing is random there."""
        return self.rolled_out and 1 in (len(self.fact._drawn), len(self.foil._drawn))

    def band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, outcome]: where the difference lies, both futures drawn together.

        From rollouts: Tango's interval for paired events, Student's t for other paired differences.
        """
        return self._band(self.fact._drawn, self.foil._drawn, self.expected, self.fact._events, level)

    def return_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon]: where the difference of the returns up to step h lies."""
        sides = self.fact.drawn_returns, self.foil.drawn_returns
        return self._band(*sides, self.expected_return, np.False_, level)

    def component_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, component]: the same by where the difference comes from."""
        sides = self.fact.drawn_component_returns, self.foil.drawn_component_returns
        return self._band(*sides, self.component_returns, np.False_, level)

    def count_band(self, outcome: str, level: float = LEVEL) -> Band:
        """[batch]: where the difference of the discounted counts of an outcome lies."""
        fact, foil = (side._drawn_counts(outcome) for side in (self.fact, self.foil))
        k, powers = self.fact.legend.names.index(outcome), self.fact.discount ** np.arange(self.horizon)
        if self.rolled_out:
            return self._paired_band(fact, foil, np.False_, level)
        difference = self.expected[:, :, k] @ powers
        return band_of(fact - foil, difference, self.foreseen[:, -1], level)

    def gain_band(self, level: float = LEVEL) -> Band:
        """[batch, outcome]: where the difference of what each outcome adds to the return lies."""
        weights = self.fact._weights
        fact, foil = (side._drawn_sums() * weights for side in (self.fact, self.foil))
        if self.rolled_out:
            return self._paired_band(fact, foil, np.False_, level)
        powers = self.fact.discount ** np.arange(self.horizon)
        return band_of(fact - foil, powers @ self.expected * weights, self.foreseen[:, -1], level)

    def whole(self, level: float = LEVEL) -> Whole:
        """How the returns differ to the end of the episode; to the horizon where one end is not estimated."""
        powers, weights = self.fact.discount ** np.arange(self.horizon), self.fact._weights
        mean = powers @ self.expected @ weights
        fact, foil = self.fact.beyond, self.foil.beyond
        estimated = np.zeros(len(mean), dtype=np.bool_)
        if fact is not None and foil is not None:
            estimated = fact.estimated & foil.estimated
            mean = mean + np.where(estimated, fact.mean - foil.mean, 0)
        if not self.drawn:
            return Whole(mean, None, estimated, estimated)
        within = paired(*(side._drawn_sums() @ weights for side in (self.fact, self.foil)))
        certain = self.fact.certain & self.foil.certain
        rest = np.zeros((1, len(mean)))
        if fact is not None and foil is not None:
            rest = np.where(estimated, paired(*alike([fact.draws, foil.draws])), 0)
            certain &= ~estimated | (fact.certain & foil.certain)
        if not self.rolled_out:
            band = band_of(within + rest, mean, self.foreseen[:, -1], level)
            apart = (rest > 0).all(axis=0) | (rest < 0).all(axis=0)
            return Whole(mean, band, estimated, estimated & apart)
        plain = difference_band(within, np.zeros((1, 1)), np.False_, certain, level)
        both = mean_of_both(within, rest, level)
        ends = [np.where(certain, mean, np.where(estimated, *pair)) for pair in zip(both, plain, strict=True)]
        later = mean_of_both(np.zeros((1, len(mean))), rest, level)
        return Whole(mean, Band(*ends), estimated, estimated & ((later.low > 0) | (later.high < 0)))

    def _band(
        self,
        fact: FloatArray,
        foil: FloatArray,
        expected: FloatArray,
        events: BoolArray | np.bool_,
        level: float,
    ) -> Band:
        """From what was drawn of both [draw, batch, horizon, ...]."""
        if self.rolled_out:
            return self._paired_band(fact, foil, events, level)
        return band_of(fact - foil, expected, self.foreseen, level)

    def _paired_band(
        self, fact: FloatArray, foil: FloatArray, events: BoolArray | np.bool_, level: float
    ) -> Band:
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
        pairs, foils = self.fact._pairs(), self.foil._pairs()
        foils = {f"foil_{name}": foils[name] for name in ("state", "action") if name in foils}
        fact, foil = (
            np.where(side.known[:, None, None] & side.told.at, side.expected, np.nan)
            for side in (self.fact, self.foil)
        )
        compared = {"fact": fact, "foil": foil, "difference": fact - foil}
        told, bands = self.told.at, self.band()._asdict() if self.drawn else {}
        compared |= {name: np.where(told, end, np.nan) for name, end in bands.items()}
        known = {"unknown": self.unknown, "support": np.minimum(self.fact.support, self.foil.support)}
        return _tidy({**pairs, **foils, **compared, **known}, self.expected.shape)

    def plot(self) -> Any:
        """A matplotlib figure: fact and foil of the first pair, and how they differ."""
        return draw(self, "contrast")

    def _repr_html_(self) -> str:
        sections = [self._section(row) for row in range(min(len(self.known), MOST_SHOWN))]
        return html.page(sections, CONTRASTED, len(self.known) - len(sections))

    def _section(self, row: int) -> html.Section:
        names, events = self.fact.legend.names, self.fact.legend.events
        strips = []
        for column, name in enumerate(names):
            values, is_event = self.expected[row, :, column], name in events
            full = 1.0 if is_event else float(np.abs(self.expected[:, :, column]).max())
            said = _in_all(self.fact, row, column), _in_all(self.foil, row, column)
            told = self.told.at[row, :, column]
            strips.append(html.Strip(name, colour(names, name), values, full, is_event, True, said, told))
        title = f"{self.fact.name_of(row)} against {self.foil.name_of(row)}"
        remark = f"{_remark(self.fact, row)} against {_remark(self.foil, row)}"
        if (
            self.fact.legend.reward_bound is not None
            and self.foreseen[row, -1]
            and self.told.returns[row, -1]
        ):
            remark += f"; {self._worth(row)}"
        return html.Section(title, remark, strips, self.foreseen[row])

    def _worth(self, row: int) -> str:
        """How far the return of the fact is ahead, and by which components."""
        said = f"return difference {self.expected_return[row, -1]:+.2f}"
        if self.drawn:
            band = self.return_band()
            said += f" ({band.low[row, -1]:+.2f} to {band.high[row, -1]:+.2f})"
        gains = zip(self.fact.component_names, self.component_returns[row, -1], strict=True)
        largest = sorted(gains, key=lambda gain: -abs(gain[1]))
        told = dict(zip(self.fact.legend.names, self.told.by[row, -1], strict=True))
        parts = [f"{n} {gain:+.2f}" for n, gain in largest if abs(gain) >= SMALLEST_GAIN and told[n]]
        return f"{said}: {', '.join(parts)}" if parts else said


def together(parts: Sequence[Explanation]) -> Explanation:
    """The pairs of all parts, in order, as one explanation; they are explained in the same way."""

    def joined(name: str) -> Array:
        return np.concatenate([getattr(part, name) for part in parts])

    def over_pairs(name: str) -> FloatArray | None:
        held = [getattr(part, name) for part in parts]
        if any(one is None for one in held):
            return None
        most = max(map(len, held))  # what is certain was rolled out once
        return np.concatenate([np.broadcast_to(one, (most, *one.shape[1:])) for one in held], axis=1)

    valued = all(part.agent_value is not None for part in parts)
    return replace(
        parts[0],
        observations=joined("observations"),
        actions=joined("actions"),
        expected=joined("expected"),
        running=joined("running"),
        support=joined("support"),
        agent_value=joined("agent_value") if valued else None,
        unknown=joined("unknown"),
        draws=over_pairs("draws"),
        rollouts=over_pairs("rollouts"),
        verdicts=_joined_verdicts([part.verdicts for part in parts]),
        beyond=all_beyond([part.beyond for part in parts]),
    )


def _joined_verdicts(parts: Sequence[Verdicts | None]) -> Verdicts | None:
    """Those of all parts, if all have them."""
    held = [part for part in parts if part is not None]
    return functools.reduce(Verdicts.joined, held) if len(held) == len(parts) else None


def happens_once(sums: FloatArray) -> BoolArray:
    """[batch, horizon, outcome]: which counts up to step h [rollout, batch, horizon, outcome] are 0 or 1.

    First occurrences always are; another event is taken to be, as long as no rollout saw it twice.
    """
    return np.asarray((sums <= 1).all(axis=0))


def plain(actions: Array) -> Array:
    """[batch]: actions as a table holds them, which are tuples where an action has several numbers."""
    if actions.ndim == 1:
        return actions
    held = np.empty(len(actions), dtype=object)
    held[:] = [tuple(np.ravel(action).tolist()) for action in actions]
    return held


def _tidy(columns: Mapping[str, Array], shape: tuple[int, ...]) -> "pd.DataFrame":
    """A row for each pair, step and outcome; columns are [batch], [batch, horizon] or of the whole shape."""
    import pandas as pd  # takes long to import, and most answers need none

    whole = {
        name: values.reshape(values.shape + (1,) * (3 - values.ndim)) for name, values in columns.items()
    }
    return pd.DataFrame({name: np.broadcast_to(values, shape).ravel() for name, values in whole.items()})


def _in_all(explanation: Explanation, row: int, column: int) -> str:
    """The sum of an outcome over the steps ahead: of a first occurrence, how likely it is at all."""
    if not explanation.foreseen[row, -1]:
        return "unknown"
    if not explanation.told.by[row, -1, column]:
        return _untold(explanation, row, column)
    first = explanation.legend.names[column].startswith(FIRST)
    return html.number(float(explanation.expected[row, :, column].sum()), in_percent=first)


def _peak(explanation: Explanation, row: int, column: int) -> str:
    """When most of an outcome is expected, as far as it is known."""
    foreseen = explanation.foreseen[row]
    if not explanation.told.at[row, :, column].all():
        return _untold(explanation, row, column)
    values = np.where(foreseen, explanation.expected[row, :, column], 0)
    step = int(np.abs(values).argmax())
    if not values[step]:
        return "never" if foreseen.all() else "unknown"
    is_event = explanation.legend.names[column] in explanation.legend.events
    return f"{html.number(float(values[step]), is_event)} at step {step}"


def _untold(explanation: Explanation, row: int, column: int) -> str:
    """Why no number is given of an outcome."""
    assert explanation.verdicts is not None
    every = np.maximum(explanation.verdicts.at, explanation.verdicts.by)
    return Verdict(every[row, :, column].max()).words


def _remark(explanation: Explanation, row: int) -> str:
    """How well the pair is known, and what it is worth."""
    visits = explanation.support[row]
    if not visits:
        return "never tried: unknown"
    unit = "visits" if explanation.counted else "transitions"
    said = "exact" if np.isinf(visits) else f"{visits:.0f} {unit}"
    if explanation.rollouts is not None:
        said = explanation.obtained
    if explanation.legend.reward_bound is None or not explanation.foreseen[row, -1]:
        return said
    if not explanation.told.returns[row, -1]:
        return f"{said}, return not learned"
    return f"{said}, return {explanation.expected_return[row, -1]:.3g} within {explanation.horizon} steps"
