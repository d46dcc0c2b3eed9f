"""States named by a person: by fields, number or observation, or as a step of an episode."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from tpd.core.types import Array, Policy
from tpd.envs import Environment
from tpd.envs.environment import StateDescription
from tpd.guards.settings import whole_number
from tpd.sources.episodes import Recording, picture_of, play_one
from tpd.sources.hidden_state import with_initial_state
from tpd.sources.moments import Moment

START = "start"
NamedStateDescription = StateDescription | str
"""A state, `start`, or a step of an episode of the policy: {episode: 3, step: 42}."""


@dataclass(frozen=True)
class NamedState:
    """A state as the policy observes it, and as a person sees it."""

    observation: Array
    """[1, ...]"""
    name: str
    picture: Array | None
    """[height, width, 3]"""
    moment: Moment | None = None
    """The moment to return to, if the state is a step of a recorded episode."""


def check(env: Environment, description: NamedStateDescription) -> None:
    """Refuse a description that names no state."""
    if not _played(description):
        env.state(description)  # type: ignore[arg-type]
    elif not env.playable:
        raise ValueError(f"{env.id} cannot be stepped, so no episode reaches {description}: pass a state")


def name(env: Environment, description: NamedStateDescription) -> str:
    """The state as text."""
    if not _played(description):
        return env.name_of_state(env.state(description))  # type: ignore[arg-type]
    return START if description == START else "episode {}, step {}".format(*_place(description))


def find(env: Environment, policy: Policy, description: NamedStateDescription) -> NamedState:
    """Find the described state; if the episode ends before the requested step, its last step is used."""
    if not _played(description):
        state = env.state(description)  # type: ignore[arg-type]
        observation = with_initial_state(policy, state[None])
        return NamedState(observation, env.name_of_state(state), env.picture(state))
    episode, step = (0, 0) if description == START else _place(description)
    *before, last = play_one(env, policy, episode, step + 1)
    moment = Moment(episode, np.array([each.action[0] for each in before]), last.observation[0])
    place = f"episode {episode}, step {moment.step}"
    name = env.name_of_state(last.observation[0]) if env.tabular else place
    return NamedState(last.observation, name, picture_of(env, moment))


def find_recorded(
    env: Environment, recording: Recording, episode: Any, step: Any
) -> tuple[NamedState, Array]:
    """A step of a recorded episode, and the action taken there."""
    episodes = recording.episodes
    if whole_number("episode", episode, at_least=0) >= len(episodes):
        raise ValueError(f"there is no episode {episode}; the recorded episodes are 0 to {len(episodes) - 1}")
    steps = episodes[episode]
    if whole_number("step", step, at_least=0) >= len(steps):
        raise ValueError(f"episode {episode} has no step {step}; its steps are 0 to {len(steps) - 1}")
    observation, name = steps.observation[step], f"episode {episode}, step {step}"
    if env.tabular:
        name += f": {env.name_of_state(observation)}"
    picture = env.picture(observation)
    if recording.frames:
        frame = recording.frame_of(episodes.begins[episode] + step)
        picture = np.asarray(Image.open(io.BytesIO(recording.frames[int(frame)]), formats=["WEBP"]))
    state = NamedState(observation[None], name, picture, recording.moment(episode, step))
    return state, steps.action[step]


def _played(description: NamedStateDescription) -> bool:
    if isinstance(description, Mapping) and set(description) == {"episode", "step"}:
        _place(description)
        return True
    return isinstance(description, str) and description == START


def _place(description: Any) -> tuple[int, int]:
    episode, step = description["episode"], description["step"]
    return whole_number("episode", episode, at_least=0), whole_number("step", step, at_least=0)
