"""Outcomes: bounded functions of a transition whose future values are predicted; events are 0 or 1."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from tpd.core.types import Array, BoolArray, FloatArray, Transitions
from tpd.guards.settings import boolean

FIRST = "first "
UNACCOUNTED = (
    "these outcomes do not account for the reward: add its missing terms as outcomes, and set "
    "accounts_for_reward=True in the OutcomeSet"
)
REWARD_TOLERANCE = 1e-5  # outcomes are float32


class OutcomeError(ValueError):
    """An outcome violates its declaration, such as its bounds."""


@dataclass(frozen=True)
class Outcome:
    """A bounded function of transitions, and how much of the reward it accounts for.

    >>> import tpd
    >>> tpd.Outcome("speed", lambda t: t.next_observation[:, 1], low=-0.07, high=0.07).name
    'speed'
    """

    name: str
    function: Callable[[Transitions], Array]
    """transitions -> [batch]"""
    low: float
    high: float
    weight: float | None = None
    """Reward per unit of outcome; None if the outcome is not part of the reward."""
    is_event: bool = False
    """Takes only the values 0 and 1."""
    first: bool = False
    """Counts only the first occurrence of the event in an episode."""
    info_keys: tuple[str, ...] = ()
    """The entries of the environment's `info` that the function reads."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "function", _plain(self.function))
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise OutcomeError(
                f"outcome {self.name!r} needs finite bounds low < high, got [{self.low}, {self.high}]"
            )

    def values(self, transitions: Transitions) -> FloatArray:
        """[batch], checked against what the outcome declares."""
        for key in self.info_keys:
            if key not in transitions.info:
                raise OutcomeError(
                    f"outcome {self.name!r} reads info[{key!r}], which these transitions do not have: "
                    "collect them again with this outcome"
                )
        values = self._given(transitions)
        if values.shape != (len(transitions),):
            raise OutcomeError(
                f"outcome {self.name!r} must return shape ({len(transitions)},), one value per transition, "
                f"got shape {values.shape}"
            )
        within = self.allows(values)
        allowed = "{0, 1}" if self.is_event else f"[{self.low}, {self.high}]"
        _refuse(
            ~within,
            transitions,
            lambda row: (
                f"outcome {self.name!r} is {values[row]}, outside {allowed}: correct its function or its "
                "bounds"
            ),
        )
        return values

    def allows(self, values: FloatArray) -> BoolArray:
        """[batch]: whether each value is within the declared bounds; NaN is not."""
        within = (values >= self.low) & (values <= self.high)
        if self.is_event:
            within &= (values == 0) | (values == 1)
        return np.asarray(within)

    def simulated(self, transitions: Transitions) -> FloatArray:
        """[batch], clipped to the declared bounds; for transitions of a learned model."""
        values = np.clip(self._given(transitions), self.low, self.high)
        _refuse(
            np.isnan(values),
            transitions,
            lambda row: f"outcome {self.name!r} is NaN: its function must return numbers",
        )
        return np.rint(values) if self.is_event else values

    def _given(self, transitions: Transitions) -> FloatArray:
        """[batch]: what the user's function returns, as float32."""
        try:
            given = np.asarray(self.function(transitions.read_only()))
            if given.dtype.kind not in "biuf":
                raise TypeError(f"expected an array of numbers, got {given.dtype}")
            with np.errstate(over="ignore"):  # overflow gives inf, which the bounds refuse
                return given.astype(np.float32)
        except (Exception, SystemExit) as error:  # a user's function may raise anything
            said = f"outcome {self.name!r} failed: {type(error).__name__}: {' '.join(str(error).split())}"
            if isinstance(error, KeyError):
                said += "; list the entries of info that it reads: event(name, function, info_keys=[...])"
            raise OutcomeError(said) from error


def _plain(function: Callable[[Transitions], Array]) -> Callable[[Transitions], Array]:
    """The function without Hydra's wrapper, whose overhead per call exceeds the cost of most outcomes."""
    if not isinstance(function, partial) or type(function) is partial:
        return function
    bound = function.args or function.keywords
    return partial(function.func, *function.args, **function.keywords) if bound else function.func


def event(
    name: str,
    function: Callable[[Transitions], Array],
    reward: float | None = None,
    first: bool = False,
    info_keys: Sequence[str] = (),
) -> Outcome:
    """An outcome that happens or not, worth `reward` each time it does.

    With `first` only the first occurrence in an episode counts, and the name gets the prefix "first ".
    `info_keys` names the entries of the environment's `info` that the function reads.

    >>> import tpd
    >>> tpd.event("success", lambda t: t.info["is_success"], info_keys=["is_success"], first=True).name
    'first success'
    """
    name = f"{FIRST}{name}" if boolean("first", first) else name
    return Outcome(name, function, 0.0, 1.0, reward, True, first, tuple(info_keys))


def component(
    name: str,
    function: Callable[[Transitions], Array],
    low: float,
    high: float,
    weight: float = 1.0,
    info_keys: Sequence[str] = (),
) -> Outcome:
    """One term of a reward that is a weighted sum of terms.

    >>> import tpd
    >>> tpd.component("fuel", lambda t: -(t.action == 2), low=-1, high=0, weight=0.3).weight
    0.3
    """
    return Outcome(name, function, low, high, weight, info_keys=tuple(info_keys))


def reward(low: float, high: float) -> Outcome:
    """The whole reward as one outcome.

    >>> import tpd
    >>> tpd.reward(low=-1, high=0).high
    0
    """
    return component("reward", given_reward, low, high)


def given_reward(transitions: Transitions) -> FloatArray:
    """[batch]"""
    return transitions.reward


@dataclass(frozen=True)
class Legend:
    """Names, reward weights and kinds of the outcomes, without their functions."""

    names: tuple[str, ...]
    weights: tuple[float | None, ...]
    partition: tuple[str, ...]
    """The events of which exactly one happens at each step; empty if the set claims no partition."""
    reward_bound: float | None
    """The largest possible |reward|; None unless the outcomes account for the whole reward."""
    events: tuple[str, ...] = ()
    """The outcomes with values 0 and 1, whose expectations are probabilities."""

    @property
    def rewards(self) -> FloatArray:
        """[outcome]: reward per unit of each outcome; 0 for those that are not part of the reward."""
        return np.array([weight or 0.0 for weight in self.weights])

    @property
    def components(self) -> list[int]:
        """The indices of the outcomes that are part of the reward."""
        return [k for k, weight in enumerate(self.weights) if weight is not None]

    @property
    def is_event(self) -> BoolArray:
        """[outcome]"""
        return np.array([name in self.events for name in self.names], dtype=np.bool_)


class Observed(NamedTuple):
    """The outcomes of a batch of transitions."""

    outcome: FloatArray
    """[batch, K + 1]: the K outcomes, then whether the episode terminates"""
    continuation: FloatArray
    """[batch, K + 1]: 0 where no future values of that outcome follow this step, else 1"""


class OutcomeSet:
    """The outcomes that are explained together, and two claims that are checked on every transition.

    first: names of events whose first occurrence is predicted as well.
    partition: the claim that exactly one event (except first occurrences) happens in each transition.
    accounts_for_reward: the claim that the reward is the weighted sum of the outcomes.
    A set that claims both is *complete*: rewards are rebuilt from event probabilities.

    >>> import tpd
    >>> goal = tpd.event("goal", lambda t: t.terminated)
    >>> tpd.OutcomeSet([goal, tpd.reward(-1, 0)], accounts_for_reward=True, first=["goal"]).legend.names
    ('goal', 'reward', 'first goal')
    """

    def __init__(
        self,
        outcomes: Sequence[Outcome],
        partition: bool = False,
        accounts_for_reward: bool = False,
        first: Sequence[str] = (),
    ) -> None:
        self.outcomes = (*outcomes, *_first_occurrences(outcomes, first))
        if not self.outcomes:
            raise OutcomeError("an outcome set needs at least one outcome")
        names = [outcome.name for outcome in self.outcomes]
        if len(set(names)) < len(names):
            raise OutcomeError(f"outcome names must be unique, got {names}")
        self.partition = boolean("partition", partition)
        self.accounts_for_reward = boolean("accounts_for_reward", accounts_for_reward)
        self._in_partition = np.array([o.is_event and not o.first for o in self.outcomes])
        if partition and not self._in_partition.any():
            raise OutcomeError("a partition needs events, but this set has none")
        if accounts_for_reward:
            self._check_weights()

    def _check_weights(self) -> None:
        for outcome, in_partition in zip(self.outcomes, self._in_partition, strict=True):
            if self.partition and in_partition and outcome.weight is None:
                raise OutcomeError(
                    f"event {outcome.name!r} needs a reward, because partition and accounts_for_reward are "
                    "set"
                )
            if outcome.first and outcome.weight is not None:
                raise OutcomeError(
                    f"{outcome.name!r} is a first occurrence, which cannot have a weight in the reward: give "
                    "the weight to the event itself"
                )

    @property
    def legend(self) -> Legend:
        """The set without its functions."""
        bound = None
        if self.accounts_for_reward:
            terms = [abs(o.weight or 0) * max(abs(o.low), abs(o.high)) for o in self.outcomes]
            bound = max(terms) if self.partition else sum(terms)
        return Legend(
            names=tuple(o.name for o in self.outcomes),
            weights=tuple(o.weight for o in self.outcomes),
            partition=tuple(
                o.name
                for o, member in zip(self.outcomes, self._in_partition, strict=True)
                if self.partition and member
            ),
            reward_bound=bound,
            events=tuple(o.name for o in self.outcomes if o.is_event),
        )

    @property
    def info_keys(self) -> tuple[str, ...]:
        """The `info` entries that a source of transitions must keep."""
        return tuple(sorted({key for outcome in self.outcomes for key in outcome.info_keys}))

    @property
    def width(self) -> int:
        """K + 1: the outcomes and termination."""
        return len(self.outcomes) + 1

    def observe(self, transitions: Transitions) -> Observed:
        """The outcomes of a batch. Every claim is checked on every transition."""
        check_finite(transitions)
        terminated = transitions.terminated.astype(np.float32)
        outcome = np.stack([o.values(transitions) for o in self.outcomes] + [terminated], axis=1)
        if self.partition:
            self._check_partition(outcome, transitions)
        if self.accounts_for_reward:
            self._check_reward(outcome, transitions)
        return Observed(outcome, self._continuation(outcome))

    def _continuation(self, outcome: FloatArray) -> FloatArray:
        """[batch, K + 1]"""
        continuation = np.repeat(1 - outcome[:, -1:], self.width, axis=1)
        for k, o in enumerate(self.outcomes):
            if o.first:
                continuation[:, k] *= 1 - outcome[:, k]
        return continuation

    def check_observed(self, observed: Observed) -> None:
        """Refuse impossible values in stored outcomes whose transitions are not stored."""
        outcome = observed.outcome
        if outcome.shape[1:] != (self.width,):
            raise OutcomeError(f"stored outcomes: expected [batch, {self.width}], got {list(outcome.shape)}")
        for k, o in enumerate(self.outcomes):
            if not (allowed := o.allows(outcome[:, k])).all():
                raise OutcomeError(f"outcome {o.name!r} must not be {outcome[:, k][~allowed][0]}")
        if not ((outcome[:, -1] == 0) | (outcome[:, -1] == 1)).all():
            raise OutcomeError("stored terminations must be 0 or 1")
        if self.partition and (outcome[:, :-1][:, self._in_partition].sum(axis=1) != 1).any():
            raise OutcomeError(
                "the events do not form a partition: exactly one must happen in each transition"
            )
        if not np.array_equal(observed.continuation, self._continuation(outcome)):
            raise OutcomeError(
                "the file is damaged: whether outcomes can still occur does not follow from those stored"
            )

    def simulated(self, transitions: Transitions) -> FloatArray:
        """[batch, K]: the outcomes of a learned model's transitions, which need not account for the reward.

        In a partition only the first event that happens is kept; if none happens, the last one is set.
        """
        outcome = np.stack([o.simulated(transitions) for o in self.outcomes], axis=1)
        if self.partition:
            members = np.flatnonzero(self._in_partition)
            happened = outcome[:, members] > 0
            happened[:, -1] |= ~happened.any(axis=1)
            outcome[:, members] = np.eye(len(members))[happened.argmax(axis=1)]
        return outcome

    def _check_partition(self, outcome: FloatArray, transitions: Transitions) -> None:
        happened = outcome[:, :-1][:, self._in_partition]

        def complaint(row: int) -> str:
            found = np.array(self.legend.partition)[happened[row] > 0].tolist()
            return (
                f"the events do not form a partition: {found or 'no event'} in one transition, expected "
                "exactly one event"
            )

        _refuse(happened.sum(axis=1) != 1, transitions, complaint)

    def _check_reward(self, outcome: FloatArray, transitions: Transitions) -> None:
        rebuilt = outcome[:, :-1] @ self.legend.rewards
        wrong = np.abs(rebuilt - transitions.reward) > REWARD_TOLERANCE * (1 + np.abs(rebuilt))

        def complaint(row: int) -> str:
            parts = ", ".join(o.name for o, value in zip(self.outcomes, outcome[row], strict=False) if value)
            return (
                f"the outcomes do not account for the reward: {parts or 'none of them'} should give "
                f"{rebuilt[row]:g}, but the reward is {transitions.reward[row]:g}; correct the outcomes, or "
                "set accounts_for_reward=False"
            )

        _refuse(wrong, transitions, complaint)


def _first_occurrences(outcomes: Sequence[Outcome], names: Sequence[str]) -> list[Outcome]:
    by_name = {outcome.name: outcome for outcome in outcomes if outcome.is_event}
    for name in names:
        if name not in by_name:
            raise OutcomeError(
                f"first: there is no event {name!r}; known events: {', '.join(by_name) or 'none'}"
            )
    return [event(name, by_name[name].function, None, True, by_name[name].info_keys) for name in names]


def check_finite(transitions: Transitions) -> None:
    """Refuse a batch with NaN or infinite numbers, which would corrupt everything learned from it."""
    for name in ("reward", "observation", "action", "next_observation"):
        values = getattr(transitions, name)
        if values.dtype.names is None:
            _check_finite(name, values, transitions)
        for key in values.dtype.names or ():
            _check_finite(f"{name} {key!r}", values[key], transitions)


def _check_finite(name: str, values: Array, transitions: Transitions) -> None:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        wrong = np.asarray(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        _refuse(wrong, transitions, lambda row: f"the {name} is not finite")


def _refuse(wrong: BoolArray, transitions: Transitions, complaint: Callable[[int], str]) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise OutcomeError(f"{complaint(row)} ({' '.join(transitions.describe(row).split())})")
