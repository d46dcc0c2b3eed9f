"""Turns what a user passes as `events` (functions by name, outcomes, or nothing) into outcomes."""

from collections.abc import Callable, Mapping, Sequence

from omegaconf import DictConfig

from tpd.api.environments import known_base, why_not_known
from tpd.core.outcomes import Outcome, OutcomeSet, event, reward
from tpd.core.types import Array, Policy, Transitions
from tpd.envs import Environment
from tpd.guards.settings import shown
from tpd.run.configs import group
from tpd.run.parts import make_outcomes
from tpd.sources.found_outcomes import FoundOutcomes, find_outcomes

Events = Mapping[str, "Callable[[Transitions], Array] | Outcome"] | Sequence[Outcome] | OutcomeSet | None
LARGEST_REWARD, REWARD = 1e6, "reward"
WHOLE_REWARD = (
    "the reward is one outcome, because events are given: its terms are only detected if no events are "
    "given; tpd.component defines a term"
)


def outcomes_of(events: Events, env: Environment, policy: Policy) -> FoundOutcomes:
    """The outcomes to explain, and notes on where they come from."""
    if events is None:
        return _known_or_found(env, policy)
    given = given_outcomes(events)
    whole = any(outcome.name == REWARD and outcome.weight is not None for outcome in given.outcomes)
    return FoundOutcomes(given, (WHOLE_REWARD,) if whole and not isinstance(events, OutcomeSet) else ())


def given_outcomes(events: Events) -> OutcomeSet:
    """The outcomes that a user gives; each function becomes an event, with its first occurrence as another.

    The reward is explained as well, unless the outcomes already account for it.
    """
    if isinstance(events, OutcomeSet):
        return events
    assert events is not None
    if isinstance(events, Mapping):
        if unnamed := [name for name in events if not isinstance(name, str) or not name.strip()]:
            raise TypeError(f"events: a name must be a non-empty string, got {shown(unnamed[0])}")
        given = [one if isinstance(one, Outcome) else event(name, one) for name, one in events.items()]
    elif isinstance(events, Sequence) and all(isinstance(one, Outcome) for one in events):
        given = [*events]
    else:
        raise TypeError('events: pass each function with a name, {"crash": function}')
    firsts = [one.name for one in given if one.is_event and not one.first]
    if not any(one.weight is not None for one in given):
        if any(one.name == REWARD for one in given):
            raise ValueError(f"events: {REWARD!r} is reserved for the reward, which is always explained")
        given.append(reward(-LARGEST_REWARD, LARGEST_REWARD))
    return OutcomeSet(given, accounts_for_reward=True, first=firsts)


def _known_or_found(env: Environment, policy: Policy) -> FoundOutcomes:
    if (known := known_base(env)) is None:
        return find_outcomes(env, policy)
    if reason := why_not_known(env):
        found = find_outcomes(env, policy)
        unused = f"tpd's own events for {env.registered_id} are not used ({reason})"
        return FoundOutcomes(found.outcomes, (unused, *found.notes))
    outcomes = make_outcomes(DictConfig({"outcomes": group("outcomes", known)}), env, policy)
    names = ", ".join(outcome.name for outcome in outcomes.outcomes)
    return FoundOutcomes(outcomes, (f"tpd's own events for {env.registered_id}: {names}",))
