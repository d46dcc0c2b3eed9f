"""Explanations: expected future outcomes of state-action pairs, step by step, as frozen data."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tpd.core import sections
from tpd.core.bands import LEVEL, Band, band_of
from tpd.core.beyond import Beyond, all_beyond, mean_of_both
from tpd.core.contrast import Contrast
from tpd.core.drawing import draw
from tpd.core.efo import compose, powers
from tpd.core.intervals import Binary, mean_band
from tpd.core.observations import MOST_NUMBERS, numbers
from tpd.core.outcomes import UNACCOUNTED, Legend
from tpd.core.types import Array, BoolArray, FloatArray, Index
from tpd.core.verdicts import Verdict, Verdicts, is_limit, is_told

if TYPE_CHECKING:
    import pandas as pd

TOLERATED = 0.02
"""A future counts as known while the probability of an untried pair is at most this."""
ENOUGH_VISITS = 3
"""Visits of a pair from which on its point estimate is shown, and not only its band."""
FEW_VISITS = 30
"""With fewer visits of a pair the number of visits is reported, and without bands nothing is settled."""
NO_DRAWS = (
    "this explanation has no bands: request them with explain(..., draws=59); the errors of a network must "
    "also be measured by rollouts after learning (evaluation=monte_carlo)"
)
OF_PAIRS = ("observations", "actions", "expected", "running", "support", "agent_value", "unknown")
DRAWN = ("draws", "rollouts")
"""Fields whose first axis is the pair, and those whose second axis is."""


class Remainder(NamedTuple):
    """The part of the return that is not explained: beyond the horizon, or after an untried pair."""

    running: FloatArray
    """[batch]: probability that the episode still runs after the last step explained"""
    unknown: FloatArray
    """[batch]: probability of having reached an untried pair by the last step"""
    bound: FloatArray
    """[batch]: the largest possible |return| of this part; inf where nothing bounds it"""
    gap: FloatArray | None
    """[batch]: the agent's own value minus the explained return, where the agent has values"""


class Told(NamedTuple):
    """Which numbers of an explanation may be reported, by the verdicts on the predictor."""

    at: BoolArray
    """[batch, horizon, outcome]: the expected outcome at step h"""
    by: BoolArray
    """[batch, horizon, outcome]: its sum up to step h"""
    ended: BoolArray
    """[batch, horizon]: the probability that the episode has ended by step h"""
    returns: BoolArray
    """[batch, horizon]: the return up to step h; at the last step also the return over an infinite horizon"""
    terms: BoolArray
    """[batch, outcome]: its contribution to the return up to the last step"""

    def __and__(self, other: "Told") -> "Told":
        """What may be reported for both."""
        return Told(*(one & another for one, another in zip(self, other, strict=True)))


@dataclass(frozen=True, repr=False)
class Explanation:
    """Expected outcomes h = 0, 1, ... steps after each pair of observation and action.

    `Explainer.explain` returns one, and each side of an `Answer` has one. `fact - foil` is a `Contrast`.

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
    """[batch, horizon]: probability that the episode goes on after step h without reaching an untried pair"""
    support: FloatArray
    """[batch]: number of rollouts, or of visits to the pair; 0 means unknown, inf means exact"""
    legend: Legend
    discount: float
    """Discount of the returns; the agent's own."""
    agent_value: FloatArray | None = None
    """[batch]: the agent's own value estimate of the pair"""
    unknown: FloatArray = None  # type: ignore[assignment]  # no entry means 0
    """[batch, horizon]: probability of having reached an untried pair by step h"""
    draws: FloatArray | None = None
    """[draw, batch, horizon, outcome]: posterior samples of `expected`, if asked for. One sample is joint
    over all pairs."""
    rollouts: FloatArray | None = None
    """[rollout, batch, horizon, outcome]: outcomes of each rollout in the simulator, if it was used. Rollout
    i has the same random stream for every pair. `expected` is their mean; nothing learned is mixed in."""
    verdicts: Verdicts | None = None
    """Which predictions were found to be learned; None if the predictor was not judged or needs no judging"""
    action_names: tuple[str, ...] = ()
    """Names of the actions by their number; empty if they have none"""
    remark: str = ""
    """What users must know about the method to read its numbers, as a clause; empty if nothing"""
    beyond: Beyond | None = None
    """The return from the horizon to the end of the episode, if asked for and if it can be estimated"""

    def __post_init__(self) -> None:
        if self.unknown is None:
            object.__setattr__(self, "unknown", np.zeros(self.expected.shape[:2]))

    def __len__(self) -> int:
        return len(self.support)

    def __getitem__(self, index: Index | int) -> "Explanation":
        if isinstance(index, int | np.integer):  # one pair is a batch of one
            index = np.array([range(len(self))[index]])
        by_pair = (*OF_PAIRS, "verdicts", "beyond")
        one = {name: getattr(self, name)[index] for name in by_pair if getattr(self, name) is not None}
        drawn = {name: getattr(self, name)[:, index] for name in DRAWN if getattr(self, name) is not None}
        return replace(self, **one, **drawn)

    def __repr__(self) -> str:
        pairs, names = len(self), len(self.legend.names)
        return f"<Explanation: {pairs} pairs, {self.horizon} steps, {names} outcomes, {self.obtained}>"

    def __sub__(self, foil: "Explanation") -> Contrast:
        return Contrast(self, foil)

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    @property
    def certain(self) -> BoolArray:
        """[batch]: whether the prediction is exact: neither random nor learned."""
        return np.isinf(self.support)

    @property
    def banded(self) -> bool:
        """Whether it has bands, from posterior samples or from rollouts."""
        return self.draws is not None or self.rollouts is not None

    @property
    def obtained(self) -> str:
        """How its numbers were obtained."""
        if self.rollouts is None:
            if self.certain.all():
                return "exact"
            if not self.counted and not self.known.any():
                return "not learned"
            evaluated = self.judged if self.endless else self.verdicts is not None
            return "learned" if self.counted or evaluated else "learned, but not evaluated"
        if self.certain.all():
            return "by one rollout: policy and environment are deterministic here"
        return f"by {len(self.rollouts)} rollouts"

    @property
    def known(self) -> BoolArray:
        """[batch]: whether the pair was ever tried."""
        return np.asarray(self.support > 0)

    @property
    def counted(self) -> bool:
        """Whether the support counts visits of each pair, not all transitions that a network learned from."""
        return not self.judged and self.rollouts is None and self._numbered

    @property
    def judged(self) -> bool:
        """Whether any prediction was judged by fresh episodes."""
        if self.verdicts is None:
            return False
        return any(
            (~is_limit(each) & (each > Verdict.NOT_JUDGED)).any() for each in vars(self.verdicts).values()
        )

    @property
    def endless(self) -> bool:
        """Whether the return up to the last step is the return over an infinite horizon."""
        return self.verdicts is not None and bool((self.verdicts.returns[:, -1] == Verdict.ENDLESS).any())

    @property
    def stepwise(self) -> bool:
        """Whether the method predicts the reward of each step, and not which outcomes it comes from."""
        return not self.told.terms.any()

    @property
    def _numbered(self) -> bool:
        """Whether states are single numbers. Observations of Dict spaces are structured arrays."""
        return self.observations.ndim == 1 and self.observations.dtype.names is None

    @property
    def sparse(self) -> BoolArray:
        """[batch]: whether the pair has too few visits for a point estimate."""
        return np.asarray(self.known & (self.support < ENOUGH_VISITS))

    @property
    def often_tried(self) -> BoolArray:
        """[batch]: whether the pair has enough counted visits to settle a comparison without bands."""
        return np.asarray(self.counted & (self.support >= FEW_VISITS))

    @property
    def foreseen(self) -> BoolArray:
        """[batch, horizon]: whether the future up to step h is known, except for `TOLERATED` probability."""
        return np.asarray(self.known[:, None] & (self.unknown <= TOLERATED))

    @property
    def told(self) -> "Told":
        """Which numbers may be reported: all except those that were judged as not learned."""
        if self.verdicts is None:
            every = np.ones((len(self), self.horizon, len(self.legend.names)), dtype=np.bool_)
            return Told(every, every, every[..., 0], every[..., 0], every[:, -1])
        at, by = (is_told(each) for each in (self.verdicts.at, self.verdicts.by))
        endless = self.verdicts.by[:, -1, :-1] == Verdict.ENDLESS
        returns = is_told(self.verdicts.returns) | (self.verdicts.returns == Verdict.ENDLESS)
        return Told(at[..., :-1], by[..., :-1], by[..., -1], returns, by[:, -1, :-1] | endless)

    @property
    def ended(self) -> FloatArray:
        """[batch, horizon]: probability that the episode ended before step h: no event happens at step h.

        If the predictor does not track `unknown`, this also contains what it has not learned.
        """
        if not self.legend.partition:
            raise ValueError(
                "termination can only be derived if the events form a partition: set partition=True in the "
                "OutcomeSet"
            )
        members = [self.legend.names.index(name) for name in self.legend.partition]
        return np.asarray(1 - self.expected[:, :, members].sum(axis=2) - self.unknown)

    @property
    def component_names(self) -> tuple[str, ...]:
        """The outcomes that are part of the reward."""
        return tuple(self.legend.names[k] for k in self.legend.components)

    @property
    def reward_components(self) -> FloatArray:
        """[batch, horizon, component]: expected reward at step h from each outcome."""
        if self.legend.reward_bound is None:
            raise ValueError(UNACCOUNTED)
        columns = self.legend.components
        return np.asarray(self.expected[:, :, columns] * self.legend.rewards[columns])

    @property
    def expected_reward(self) -> FloatArray:
        """[batch, horizon]"""
        if self.legend.reward_bound is None:
            raise ValueError(UNACCOUNTED)
        return np.asarray(self.expected @ self.legend.rewards)

    @property
    def component_returns(self) -> FloatArray:
        """[batch, horizon, component]: discounted reward accumulated up to step h."""
        return compose(self.reward_components, self.discount, axis=1)

    @property
    def expected_return(self) -> FloatArray:
        """[batch, horizon]: discounted reward accumulated up to step h."""
        return compose(self.expected_reward, self.discount, axis=1)

    @property
    def discounts(self) -> FloatArray:
        """[horizon]: `discount^h`, the weight of a reward at step h."""
        return powers(self.discount, self.horizon)

    def band(self, level: float = LEVEL) -> Band:
        """[batch, horizon, outcome]: the band of `expected`.

        From rollouts: exact binomial limits (Clopper and Pearson) for events, Student's t for the rest.
        """
        return self._band(self.samples, self.expected, self.legend.is_event, level)

    def sum_band(self, level: float = LEVEL, columns: Sequence[int] | None = None) -> Band:
        """[batch, horizon, outcome]: the band of the sum up to step h; for first occurrences P(by step h).

        columns: the outcomes; None for all.
        """
        asked = slice(None) if columns is None else list(columns)
        drawn = np.cumsum(self.samples[..., asked], axis=2)
        once = (drawn <= 1).all(axis=0)  # first occurrences, and events that no rollout saw twice
        expected = np.cumsum(self.expected[..., asked], axis=1)
        return self._band(drawn, expected, self.legend.is_event[asked] & once, level)

    def return_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon]: the band of the expected return up to step h."""
        return self._band(self.drawn_returns, self.expected_return, np.False_, level)

    def reward_band(self, level: float = LEVEL) -> Band:
        """[batch, horizon]: the band of the expected reward at step h."""
        return self._band(self.samples @ self.legend.rewards, self.expected_reward, np.False_, level)

    def _band(self, drawn: FloatArray, expected: FloatArray, events: Binary, level: float) -> Band:
        """The band from posterior samples or rollouts [draw, batch, horizon, ...]."""
        if self.rollouts is not None:
            return mean_band(drawn, events, self.certain, level)
        return band_of(drawn, expected, self.foreseen, level)

    def beyond_band(self, level: float = LEVEL) -> Band | None:
        """[batch]: the band of the return after the horizon; None without samples of it."""
        if self.beyond is None or not len(self.beyond.draws):
            return None
        if self.beyond.certain.all():
            return Band(self.beyond.mean, self.beyond.mean)
        if self.rollouts is not None:
            band = mean_of_both(np.zeros((1, len(self))), self.beyond.draws, level)
        else:
            band = band_of(self.beyond.draws, self.beyond.mean, self.beyond.estimated, level)
        return Band(*(np.where(self.beyond.certain, self.beyond.mean, end) for end in band))

    def drawn_sums(self) -> FloatArray:
        """[draw, batch, outcome]: discounted sums over the horizon, for each posterior sample or rollout."""
        return np.asarray(self.discounts.astype(self.samples.dtype) @ self.samples)

    @property
    def samples(self) -> FloatArray:
        """[draw, batch, horizon, outcome]: the posterior samples, or the outcomes of the rollouts."""
        if self.rollouts is not None:
            return self.rollouts
        if self.draws is None:
            raise ValueError(NO_DRAWS)
        return self.draws

    @property
    def drawn_returns(self) -> FloatArray:
        """[draw, batch, horizon]: the return up to step h in each posterior sample or rollout."""
        rewards = self.legend.rewards.astype(self.samples.dtype)  # otherwise all samples would be converted
        return compose(self.samples @ rewards, self.discount, axis=2)

    @property
    def drawn_component_returns(self) -> FloatArray:
        """[draw, batch, horizon, component]: the same for each component of the reward."""
        columns = self.legend.components
        return compose(self.samples[..., columns] * self.legend.rewards[columns], self.discount, axis=2)

    @property
    def remainder(self) -> Remainder:
        """The unexplained part of the return: beyond the horizon, and unknown within it."""
        running, unknown = np.clip(self.running[:, -1], 0, 1), self.unknown[:, -1]
        largest = np.inf if self.legend.reward_bound is None else self.legend.reward_bound
        steps = np.inf if self.discount == 1 else 1 / (1 - self.discount)
        worst = self.discount**self.horizon * largest * steps
        bound, lasting, within = np.zeros(len(self)), running + unknown, self.unknown.any(axis=1)
        bound[lasting > 0] = lasting[lasting > 0] * worst
        bound[within] += self.unknown[within] @ self.discounts * largest
        gap = None
        if self.agent_value is not None and self.legend.reward_bound is not None:
            gap = self.agent_value - self.expected_return[:, -1]
        return Remainder(running, unknown, bound, gap)

    def to_frame(self) -> "pd.DataFrame":
        """One row for each pair, step and outcome: expected value, band, `unknown` and `support`.

        Values are undiscounted; `expected_return` [batch, horizon] is the discounted return.
        """
        known = {"unknown": self.unknown, "support": self.support}
        told = self.told.at
        expected = np.where(self.known[:, None, None] & told, self.expected, np.nan)
        bands = self.band()._asdict() if self.banded else {}
        bands = {name: np.where(told, end, np.nan) for name, end in bands.items()}
        learned = {} if self.verdicts is None else {"learned": told}
        return self.frame_of({"expected": expected, **bands, **known, **learned})

    def plot(self) -> Any:
        """A matplotlib figure: expected outcomes after each of the first pairs, step by step."""
        return draw(self, "explanation")

    @property
    def state_and_action(self) -> dict[str, Array]:
        """Columns [batch] of a table: the action, and the state if it is a number."""
        states = {"state": self.observations} if self._numbered else {}
        return {**states, "action": plain(self.actions)}

    def frame_of(self, columns: Mapping[str, Array]) -> "pd.DataFrame":
        """A row for each pair, step and outcome; columns are [batch], [batch, horizon] or the whole shape."""
        import pandas as pd  # takes long to import, and most answers need none

        named = {
            "pair": np.arange(len(self)),
            **self.state_and_action,
            "step": np.arange(self.horizon)[None, :, None],
            "outcome": np.array(self.legend.names, dtype=object)[None, None],
            **columns,
        }
        whole = {name: part.reshape(part.shape + (1,) * (3 - part.ndim)) for name, part in named.items()}
        shape = self.expected.shape
        return pd.DataFrame({name: np.broadcast_to(part, shape).ravel() for name, part in whole.items()})

    def _repr_html_(self) -> str:
        return sections.of_explanation(self)

    def name_of(self, row: int) -> str:
        """The pair as a short text, with the row of the observation if it has too many numbers."""
        state = self.observations[row]
        name = f"state {state}" if self._numbered else f"observation {row}"
        if not self._numbered and state.dtype.names is None and state.size <= MOST_NUMBERS:
            name = f"state {numbers(state)}"
        return f"{name}: {self.action_name(row)}"

    def action_name(self, row: int) -> str:
        """The action of a pair as a short text."""
        action = self.actions[row]
        if self.action_names:
            return self.action_names[int(action)]
        return f"action {numbers(action) if np.ndim(action) else action}"


Explained = Explanation | Contrast


def together(parts: Sequence[Explanation]) -> Explanation:
    """Concatenate explanations that were obtained in the same way."""

    def joined(name: str) -> Array | None:
        held = [getattr(part, name) for part in parts]
        if any(one is None for one in held):
            return None
        if name not in DRAWN:
            return np.concatenate(held)
        most = max(map(len, held))  # a deterministic pair has a single rollout
        return np.concatenate([np.broadcast_to(one, (most, *one.shape[1:])) for one in held], axis=1)

    whole: dict[str, Any] = {name: joined(name) for name in (*OF_PAIRS, *DRAWN)}
    judged = [part.verdicts for part in parts if part.verdicts is not None]
    whole["verdicts"] = functools.reduce(Verdicts.joined, judged) if len(judged) == len(parts) else None
    return replace(parts[0], **whole | {"beyond": all_beyond([part.beyond for part in parts])})


def plain(actions: Array) -> Array:
    """[batch]: actions as a table column: tuples if an action has several numbers."""
    if actions.ndim == 1:
        return actions
    held = np.empty(len(actions), dtype=object)
    held[:] = [tuple(np.ravel(action).tolist()) for action in actions]
    return held
