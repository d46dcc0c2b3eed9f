"""Finds outcomes (events, reward terms) by playing a policy, for environments without named events."""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tpd.core.outcomes import FIRST, Outcome, OutcomeSet, component, event, reward
from tpd.core.types import Array, Policy, Transitions
from tpd.envs import Environment
from tpd.envs.events.default import default_outcomes, ended, next_actions
from tpd.envs.events.found import ended_with, ended_without, flag, term
from tpd.sources.reward_patterns import MOST_CANDIDATES, OF_REWARD, find_terms, reward_thresholds
from tpd.sources.trials import SECONDS, try_out

WIDEST = 1e6
"""Default bound of rewards and their terms if it is unknown, as in the default outcomes."""
MARGIN = 100
"""Bounds are at least this many times the largest value observed."""
OFTEN = 0.5
"""Events that happen in at least this fraction of transitions are too frequent to predict their first one."""
TERMINATES = "terminates"
FLAG = re.compile(
    r"^(is|has|was|did)_|success|crash|colli|fail|fell|fallen|dead|died|alive|healthy|reached|solved|done"
    r"|terminat|out_of_|(^|_)(win|won|lost)($|_)",
    re.IGNORECASE,
)
"""Names of numbers that count as flags if they are always 0 or 1; booleans count under any name."""
NO_EVENT = re.compile(r"^_|mask|truncat|time_?limit|time_?out", re.IGNORECASE)
"""Action masks and time limits are no events of the environment."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FoundOutcomes:
    """Outcomes, and notes on what was found and how it was checked."""

    outcomes: OutcomeSet
    notes: tuple[str, ...]


class _Event(NamedTuple):
    """A found event."""

    name: str
    function: Callable[[Transitions], Array]
    info_keys: tuple[str, ...] = ()
    often: bool = False
    """Happens so often that its first occurrence is uninformative."""


def found_outcomes(env: Environment, policy: Policy, seed: int = 0) -> OutcomeSet:
    """The outcomes from `find_outcomes`; its notes are logged."""
    found = find_outcomes(env, policy, seed=seed)
    for note in found.notes:
        log.info("outcomes of %s: %s", env.id, note)
    return found.outcomes


def find_outcomes(env: Environment, policy: Policy, *, seed: int = 0) -> FoundOutcomes:
    """Find next actions, reward terms, flags in `info`, and kinds of termination.

    Exactly one of the discrete actions is taken at each step, so they form a partition, as in the default
    outcomes. Found events may coincide with them; so only their first occurrence is predicted, which is
    outside the partition. A flag that is set too often for that becomes an ordinary event, and then the set
    claims no partition.
    """
    if not env.playable:
        note = (
            f"{env.id} cannot be stepped, so no events were detected; the outcomes are next actions, reward "
            "and termination"
        )
        return FoundOutcomes(default_outcomes(env), (note,))
    trials = try_out(env, policy, seed=seed)
    steps, notes = trials.transitions, list[str]()
    if not trials.in_time:
        notes.append(
            f"{env.id} is slow: only {len(steps):,} transitions were tried within {SECONDS:g} seconds, "
            "so the outcomes may differ next time"
        )
    rewards, told = _rewards(steps)
    flags, seen = _flags(steps, {key for each in rewards for key in each.info_keys})
    endings, kinds = _endings(steps, flags)
    notes += [*told, *seen, *kinds]
    notes += [f"info[{key!r}] {reason}, so it is not used" for key, reason in trials.unusable.items()]
    outcomes = _together(env, rewards, [*flags, *endings])
    outcomes.observe(steps)  # checks every claim of the set, as runs do
    return FoundOutcomes(outcomes, tuple(notes))


def _together(env: Environment, rewards: Sequence[Outcome], events: Sequence[_Event]) -> OutcomeSet:
    """Join everything to one set of outcomes that accounts for the reward."""
    actions, seldom = next_actions(env), [each for each in events if not each.often]
    partition = env.discrete and len(seldom) == len(events)
    asked = [event(e.name, e.function, first=partition, info_keys=e.info_keys) for e in events]
    first = [] if partition else [each.name for each in seldom]
    return OutcomeSet([*actions, *rewards, *asked], partition, accounts_for_reward=True, first=first)


def _rewards(steps: Transitions) -> tuple[list[Outcome], list[str]]:
    """The terms that add up to the reward, or else the reward itself; and a note on how that was checked."""
    numbers = {
        key: values
        for key, values in steps.info.items()
        if values.dtype.kind != "b" and not NO_EVENT.search(key) and not _may_be_flag(key, values)
    }
    weights, checked = find_terms(numbers, steps.reward), f"on {len(steps):,} transitions"
    if not weights:
        found = "no numbers in info add up to it" if numbers else "info has no numbers to add up to it"
        some = " (not all sums were tried)" if len(numbers) > MOST_CANDIDATES else ""
        note = f"the reward is one outcome: {found} {checked}{some}{_seen({'reward': steps.reward})}"
        return [reward(-_bound(steps.reward), _bound(steps.reward))], [note]
    terms = [
        component(_name(key, weights), partial(term, key=key), -bound, bound, weight, [key])
        for key, weight in weights.items()
        for bound in [_bound(numbers[key])]
    ]
    total = " ".join(f"{'-' if weight < 0 else '+'} {key}" for key, weight in weights.items())
    seen = _seen({key: numbers[key] for key in weights})
    return terms, [f"reward = {total.removeprefix('+ ')}, checked {checked}{seen}"]


def _bound(values: Array) -> float:
    """A power of ten far above the observed values."""
    largest = MARGIN * float(np.abs(values).max())
    return max(WIDEST, float(10.0 ** np.ceil(np.log10(largest)))) if largest else WIDEST


def _seen(columns: Mapping[str, Array]) -> str:
    """The observed range of some numbers, and the bound used for them, as text."""
    seen = ", ".join(f"{name} {values.min():.3g} to {values.max():.3g}" for name, values in columns.items())
    return f" (seen: {seen}; values beyond ±{max(map(_bound, columns.values())):,.0f} raise an error)"


def _flags(steps: Transitions, terms: Collection[str]) -> tuple[list[_Event], list[str]]:
    """Flags in `info` that were observed both set and unset, and a note on each."""
    events, notes, taken = list[_Event](), list[str](), dict[bytes, str]()
    ends = steps.terminated | steps.truncated
    keys = [key for key, values in steps.info.items() if _may_be_flag(key, values) and key not in terms]
    for key in keys:
        up = steps.info[key].astype(np.bool_)
        same = taken.setdefault(up.tobytes(), key)
        count = f"true in {up.sum():,} of {len(up):,} transitions"
        if up.all() or not up.any():
            notes.append(f"info[{key!r}] is not an event: it was {'always' if up.all() else 'never'} true")
        elif steps.truncated.any() and (np.array_equal(up, steps.truncated) or np.array_equal(up, ends)):
            notes.append(
                f"info[{key!r}] is not an event: it marks every end of an episode, time limits included"
            )
        elif same != key:
            notes.append(f"info[{key!r}] is not an event: it always equals info[{same!r}]")
        else:
            name = _name(key, [*keys, *terms])
            found = _Event(name, partial(flag, key=key), (key,), bool(up.mean() >= OFTEN))
            events.append(found)
            notes.append(f"event {found.name!r}: info[{key!r}], {count}")
    return events, notes


def _may_be_flag(key: str, values: Array) -> bool:
    """Whether it is boolean, or a number that has the name of a flag and is always 0 or 1."""
    if NO_EVENT.search(key):
        return False
    named = FLAG.search(key) and not OF_REWARD.search(key)
    return values.dtype.kind == "b" or bool(named and np.isin(values, (0, 1)).all())


def _name(key: str, keys: Collection[str]) -> str:
    """A readable name for a key; the key itself if the name would be ambiguous."""

    def words(key: str) -> str:
        key = re.sub(r"^is_(?=.)", "", key)
        return re.sub(r"^reward_(.+)", r"\1_reward", key).replace("_", " ").strip()

    name, reserved = words(key), ("", "reward", TERMINATES)
    alone = sum(words(other) == name for other in keys) == 1
    return name if alone and name not in reserved and not name.startswith((FIRST, TERMINATES)) else key


def _endings(steps: Transitions, flags: Sequence[_Event]) -> tuple[list[_Event], list[str]]:
    """The kinds of termination, except those that a flag already marks."""
    ends, count = steps.terminated, int(steps.terminated.sum())
    if not count:
        return [], [f"no episode terminated in {len(steps):,} transitions, so termination is not an event"]
    if at_ends := [each for each in flags if ends[each.function(steps)].all()]:
        return _other_endings(steps, at_ends)
    thresholds = reward_thresholds(steps.reward[ends], steps.reward[~ends])
    if not thresholds:
        last = f"{steps.reward[ends].min():.3g} to {steps.reward[ends].max():.3g}"
        note = (
            f"event {TERMINATES!r}: {count:,} episodes terminated; flags and rewards do not distinguish how"
        )
        return [_Event(TERMINATES, ended)], [f"{note} (rewards of last steps: {last})"]
    events = [
        _Event(_ending_name(low, high), partial(ended_with, low=low, high=high))
        for low, high in pairwise([None, *thresholds, None])
    ]
    told = ", ".join(f"{each.name!r} {each.function(steps).sum():,} times" for each in events)
    ways = "the episode terminates in {} ways, distinguished by the reward of the last step"
    return events, [f"{ways.format(len(events))}: {told}, of {count:,}"]


def _other_endings(steps: Transitions, at_ends: Sequence[_Event]) -> tuple[list[_Event], list[str]]:
    """Terminations without any of the flags that are set only at terminations."""
    keys = [key for each in at_ends for key in each.info_keys]
    names, count = ", ".join(repr(each.name) for each in at_ends), int(steps.terminated.sum())
    others = ended_without(steps, keys)
    note = f"{count:,} episodes terminated, {count - others.sum():,} of them with a flag in info: {names}"
    if not others.any():
        return [], [note]
    otherwise = _Event(f"{TERMINATES} otherwise", partial(ended_without, keys=keys), tuple(keys))
    return [otherwise], [f"{note}; event {otherwise.name!r}: the other {others.sum():,}"]


def _ending_name(low: float | None, high: float | None) -> str:
    if low is None:
        return f"ends with reward below {high:g}"
    return f"ends with reward above {low:g}" if high is None else f"ends with reward {low:g} to {high:g}"
