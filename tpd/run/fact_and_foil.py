"""The two things that an answer compares: actions, states or runs."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from PIL import Image

from tpd.answers import what_if
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation
from tpd.core.types import Array
from tpd.guards.settings import whole_number
from tpd.policies.stored import AbsentPolicy
from tpd.run.question import Question, QuestionError
from tpd.sources.named_states import START, NamedState
from tpd.store import saved_runs
from tpd.store.saved_runs import SavedRun
from tpd.tracking.fetch import fetch


@dataclass(frozen=True)
class Compared:
    """One half of a comparison: a run, a moment in it and what is done there."""

    run: SavedRun
    moment: NamedState
    own: Array | None
    """What the agent does there, where that is known."""
    action: Array
    name: str

    @property
    def action_name(self) -> str:
        return self.run.env.name_of_action(self.action)

    def explain(self) -> Explanation:
        return self.run.explainer.explain(self.moment.observation, self.action[None], draws=ENOUGH_DRAWS)


def fact_and_foil(question: Question, run: SavedRun, scratch: Path) -> tuple[Compared, Compared | None]:
    """The two things compared: actions, states or runs, whichever is asked for.

    No second one where there is no choice.
    """
    moment, own = _find(run, question.state)
    action = _action(run, moment, own, question.action, question.run)
    if question.against is not None:
        rival = saved_runs.read(fetch(question.against, question.store, scratch / "against"), question.trust)
        if rival.env.id != run.env.id:
            raise QuestionError(f"{run.env.id} and {rival.env.id} are different worlds, and not compared")
        there, its_own = _find(rival, question.state)
        foil = _action(rival, there, its_own, question.foil or question.action, question.against)
        names = [run.name, rival.name] if run.name != rival.name else [question.run, question.against]
        return (
            Compared(run, moment, own, action, f"{names[0]} ({run.env.name_of_action(action)})"),
            Compared(rival, there, its_own, foil, f"{names[1]} ({rival.env.name_of_action(foil)})"),
        )
    if question.foil_state is not None:
        there, its_own = _find(run, question.foil_state)
        foil = _action(run, there, its_own, question.foil or question.action, question.run)
        return (
            Compared(run, moment, own, action, f"{run.env.name_of_action(action)} in {moment.name}"),
            Compared(run, there, its_own, foil, f"{run.env.name_of_action(foil)} in {there.name}"),
        )
    fact = Compared(run, moment, own, action, run.env.name_of_action(action))
    other = _foil(run, moment, action) if question.foil is None else _named(run, question.foil)
    if other is None:
        return fact, None
    if np.array_equal(other, action):
        raise QuestionError(f"action and foil are both {run.env.name_of_action(action)}")
    return fact, Compared(run, moment, own, other, run.env.name_of_action(other))


def _find(run: SavedRun, state: Any) -> tuple[NamedState, Array | None]:
    """The moment that is asked for, and what the agent does in it."""
    if state == START:
        state = {"episode": 0, "step": 0}
    if isinstance(state, Mapping) and set(state) <= {"episode", "step"}:
        return _recorded(run, **{"episode": 0, "step": 0, **state})
    observation = run.env.state(state)
    moment = NamedState(observation[None], run.env.name_of_state(observation), run.env.picture(observation))
    absent = isinstance(run.explainer.policy, AbsentPolicy)
    return moment, None if absent else run.explainer.policy.action(moment.observation)[0]


def _recorded(run: SavedRun, episode: Any, step: Any) -> tuple[NamedState, Array]:
    if run.recording is None:
        raise QuestionError(f"{run.name} has no recorded episodes: name a state")
    episodes = run.recording.episodes
    if whole_number("episode", episode, at_least=0) >= len(episodes):
        raise QuestionError(f"there is no episode {episode}; recorded are 0 to {len(episodes) - 1}")
    steps = episodes[episode]
    if whole_number("step", step, at_least=0) >= len(steps):
        raise QuestionError(f"episode {episode} has no step {step}; its steps are 0 to {len(steps) - 1}")
    observation, frames = steps.observation[step], run.recording.frames
    name = f"episode {episode}, step {step}"
    if run.env.tabular:
        name += f": {run.env.name_of_state(observation)}"
    picture = run.env.picture(observation)
    if frames:
        picture = np.asarray(Image.open(io.BytesIO(frames[episodes.begins[episode] + step])))
    return NamedState(observation[None], name, picture), steps.action[step]


def _action(run: SavedRun, moment: NamedState, own: Array | None, wanted: Any, name: str) -> Array:
    if wanted is not None:
        return _named(run, wanted)
    if own is None:
        raise QuestionError(
            f"the agent of run={name} is not stored with its explainer, so what it does in "
            f"{moment.name} is not known: name an action, or ask for an episode and step"
        )
    return own


def _named(run: SavedRun, action: Any) -> Array:
    return np.asarray(run.env.action(action))


def _foil(run: SavedRun, moment: NamedState, action: Array) -> Array | None:
    """The best of the other actions as far as is known; where actions are continuous, the opposite.

    None where there is no other valid action.
    """
    space = run.env.action_space
    if isinstance(space, gym.spaces.Box):
        return np.asarray(space.low + space.high - action)
    others = np.array([a for a in valid_actions(run, moment) if a != action])
    if not len(others):
        return None
    explanation = explain_each(run, moment, others)
    if explanation.legend.reward_bound is None:
        return np.asarray(others[explanation.support.argmax()])
    return np.asarray(others[np.nan_to_num(what_if.returns(explanation, {}), nan=-np.inf).argmax()])


def valid_actions(run: SavedRun, moment: NamedState) -> list[int]:
    return [int(a) for a in np.flatnonzero(run.env.mask(moment.observation)[0])]


def explain_each(run: SavedRun, moment: NamedState, actions: Array) -> Explanation:
    return run.explainer.explain(np.repeat(moment.observation, len(actions), axis=0), actions)
