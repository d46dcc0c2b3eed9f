"""Finds the two sides that an answer compares (fact and foil): two actions, two states or two runs."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from tpd.answers.foil import best, opposite, others
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation
from tpd.core.types import Array
from tpd.guards.settings import did_you_mean, shown
from tpd.policies.followed import Followed, in_turn
from tpd.policies.stored import AbsentPolicy
from tpd.run.expectations import Asking, Expectations, without_mixing
from tpd.run.question import Question, QuestionError
from tpd.sources import named_states
from tpd.sources.named_states import START, NamedState
from tpd.store import saved_runs
from tpd.store.saved_runs import SavedRun
from tpd.tracking.fetch import fetch

PLACE = {"episode", "step"}
OWN, OPPOSITE = "the agent's action", "the opposite action"
UNCHANGED = " (the rest unchanged)"
MOST_CHANGES = 64
"""Changes of one action part: up to this many are rolled out to find the best; else learned values choose."""


@dataclass(frozen=True)
class Compared:
    """One side of a comparison: a run, a state in it, and the action taken there."""

    expectations: Expectations
    own: Array | None
    """The agent's own action in this state, if known."""
    action: Array
    name: str
    followed: Followed | None = None
    """A behaviour to follow from this state on; `action` is its first action."""

    @property
    def run(self) -> SavedRun:
        return self.expectations.run

    @property
    def state(self) -> NamedState:
        return self.expectations.state

    @property
    def action_name(self) -> str:
        return self.name if self.followed is not None else self.run.env.name_of_action(self.action)

    def explain(self) -> Explanation:
        """Explain to the end of the episode, by rollouts if the simulator is used, otherwise learned."""
        here = self.expectations
        if self.followed is not None:
            return here.follow(self.followed, draws=ENOUGH_DRAWS)
        return here.to_the_end(here.explain(self.action[None], draws=ENOUGH_DRAWS))

    def learned(self) -> Explanation | None:
        """The learned explanation; None for a behaviour, since none is learned."""
        if self.followed is not None:
            return None
        return self.expectations.learned(self.action[None], draws=ENOUGH_DRAWS)


def fact_and_foil(question: Question, run: SavedRun, scratch: Path) -> tuple[Compared, Compared | None]:
    """The fact and the foil (actions, states or runs) of a question; no foil if no other action is valid."""
    asking = Asking(question.rollouts, question.precision)
    state, own = find_state(run, question.state)
    action = chosen_action(run, state, own, question.action, question.run)
    if question.against is None and question.foil_state is None:
        return compared_actions(Expectations(run, state, asking), own, action, question.foil)
    rival, rival_name, place = run, question.run, question.foil_state
    if question.against is not None:
        rival_name, place = question.against, question.state
        rival = saved_runs.read(fetch(rival_name, question.store, scratch / "against"), question.trust)
        if rival.env.id != run.env.id:
            raise QuestionError(
                f"cannot compare {run.env.id} and {rival.env.id}, which are different environments"
            )
    there, its_own = find_state(rival, place)
    foil = chosen_action(rival, there, its_own, question.foil or question.action, rival_name)
    here, elsewhere = (Expectations(*side, asking.fixed()) for side in ((run, state), (rival, there)))
    without_mixing([here, elsewhere])
    names = run.env.name_of_action(action), rival.env.name_of_action(foil)
    if question.against is None:
        names = f"{names[0]} in {state.name}", f"{names[1]} in {there.name}"
    else:
        runs = (run.name, rival.name) if run.name != rival.name else (question.run, rival_name)
        names = f"{runs[0]} ({names[0]})", f"{runs[1]} ({names[1]})"
    return Compared(here, own, action, names[0]), Compared(elsewhere, its_own, foil, names[1])


def compared_actions(
    here: Expectations, own: Array | None, action: Array, foil: Any
) -> tuple[Compared, Compared | None]:
    """An action and its foil, given by name or number, or as a behaviour; None: the best other action.

    For discrete actions, a list of actions is a behaviour that takes them in turn.
    """
    run = here.run
    fact = Compared(here, own, action, _short_name(run, action, own, OWN))
    if run.env.discrete and isinstance(foil, list | tuple):
        foil = in_turn(run.env, foil)
    if isinstance(foil, Followed):
        first = foil.first_action(run.env, run.explainer.policy, here.state.observation)
        return fact, Compared(here, own, first, foil.name, foil)
    other = _foil(here, action) if foil is None else np.asarray(run.env.action(foil, action))
    if other is None:
        return fact, None
    if np.array_equal(other, action):
        raise QuestionError(f"action and foil are both {fact.action_name}: pass another foil, or omit it")
    if run.env.parts is not None:
        rest = UNCHANGED if (np.ravel(other) == np.ravel(action)).any() else ""
        return fact, Compared(here, own, other, run.env.parts.name_change(other, action) + rest)
    mirrored = None if run.env.discrete else opposite(run.env.action_space, action[None])[0]
    return fact, Compared(here, own, other, _short_name(run, other, mirrored, OPPOSITE))


def _short_name(run: SavedRun, action: Array, known: Array | None, short: str) -> str:
    """What sentences call an action: its name, or the given short name if it is a vector equal to `known`."""
    long = not run.env.discrete and np.size(action) > 1
    same = known is not None and np.array_equal(action, known)
    return short if long and same else run.env.name_of_action(action)


def find_state(run: SavedRun, state: Any) -> tuple[NamedState, Array | None]:
    """The state asked for, and the agent's action in it, if known."""
    if state is None or state == START:
        state = {"episode": 0, "step": 0}
    if isinstance(state, Mapping):
        _check_keys(run, state)
    if isinstance(state, Mapping) and set(state) <= PLACE:
        if run.recording is None:
            raise QuestionError(f"{run.name} has no recorded episodes: pass a state, state=[...]")
        return named_states.find_recorded(run.env, run.recording, **{"episode": 0, "step": 0, **state})
    policy = run.explainer.policy
    found = named_states.find(run.env, policy, state)
    return found, None if isinstance(policy, AbsentPolicy) else policy.action(found.observation)[0]


def _check_keys(run: SavedRun, state: Mapping[Any, Any]) -> None:
    """Refuse keys that are neither a setting nor a field of a state."""
    known = [*run.env.state_fields, *PLACE, *(field.name for field in fields(Question))]
    for key in state:
        if key not in known:
            has = ", ".join(run.env.state_fields) or "none"
            raise QuestionError(
                f"{shown(key)}: there is no such setting, and no such field of a state of {run.env.id} "
                f"(it has {has}){did_you_mean(str(key), known)}"
            )


def chosen_action(run: SavedRun, state: NamedState, own: Array | None, wanted: Any, name: str) -> Array:
    """The action asked about, by name or number; None: the agent's own."""
    if wanted is not None:
        return np.asarray(run.env.action(wanted, own))
    if own is None:
        policy = run.explainer.policy
        reason = f" ({policy.reason})" if isinstance(policy, AbsentPolicy) else ""
        raise QuestionError(
            f"the agent of run={name} is not stored with its explainer{reason}, so its action in "
            f"{state.name} is unknown: pass an action, or an episode and step"
        )
    return own


def _foil(here: Expectations, action: Array) -> Array | None:
    """The default foil: the other valid action with the best return; None if there is no other."""
    env = here.run.env
    instead = others(env, action, env.mask(here.state.observation)[0] if env.discrete else None)
    if not len(instead):
        return None
    if not env.discrete and env.parts is None:
        return np.asarray(instead[0])
    return np.asarray(instead[best(_explained(here, instead), here.run.explainer.policy)])


def _explained(here: Expectations, instead: Array) -> Explanation:
    """Explanations of the other actions [other, ...]."""
    if here.run.env.discrete or len(instead) <= MOST_CHANGES:
        return here.explain(instead)
    if not here.run.explainer.informed:
        raise QuestionError(
            f"there are {len(instead)} other actions that differ in one part, too many for rollouts, and no "
            "predictor was learned to choose the best of them: pass one, foil={part: choice}"
        )
    return here.learned(instead)


def valid_actions(run: SavedRun, state: NamedState) -> list[int]:
    return [int(a) for a in np.flatnonzero(run.env.mask(state.observation)[0])]
