"""Episodes to look at: what the policy saw, did and met, with pictures where no table can draw them."""

import contextlib
import io
import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from PIL import Image

from tpd.core.observations import batch
from tpd.core.outcomes import OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import Array, Episodes, FloatArray, Policy, Transitions, concatenate
from tpd.envs import Environment
from tpd.envs.environment import draw
from tpd.guards.settings import whole_number
from tpd.sources.hidden_state import with_initial_state, with_next_state
from tpd.sources.stepping import reporting_step_errors

FRAME_SIZE = (320, 240)
FRAME_QUALITY = 50


@dataclass(frozen=True)
class Recording:
    """Recorded episodes: number n starts from the reset with seed n."""

    episodes: Episodes
    happened: FloatArray
    """[batch, outcome]: the outcomes of each transition"""
    frames: tuple[bytes, ...] = ()
    """[batch]: the picture before each transition, as WebP; none where the state itself can be drawn"""


class Step(NamedTuple):
    """One step of an episode being played."""

    transition: Transitions
    """[1]"""
    picture: Array | None
    """[height, width, 3]: before the step, where it was asked for"""


class Recorder:
    """Records so many episodes, of at most so many steps each."""

    def __init__(self, *, episodes: int, steps: int) -> None:
        self.episodes = whole_number("episodes", episodes, at_least=0)
        self.steps = whole_number("steps", steps, at_least=1)

    def record(self, env: Environment, policy: Policy, outcomes: OutcomeSet) -> Recording | None:
        """Play the episodes; None if none is wanted."""
        if not self.episodes:
            return None
        pictures = env.drawable and env.model is None
        parts, begins, frames = list[Transitions](), list[int](), list[bytes]()
        for number in range(self.episodes):
            begins.append(len(parts))
            playing = play_one(env, policy, number, pictures=pictures, info_keys=outcomes.info_keys)
            with contextlib.closing(playing):
                for step in itertools.islice(playing, self.steps):
                    parts.append(step.transition)
                    frames += [] if step.picture is None else [compressed(step.picture)]
        transitions = concatenate(parts)
        happened = outcomes.observe(transitions).outcome[:, :-1]
        return Recording(Episodes(transitions, np.array(begins)), happened, tuple(frames))


def play_one(
    env: Environment, policy: Policy, number: int, *, pictures: bool, info_keys: Sequence[str] = ()
) -> Generator[Step]:
    """The steps of the episode that starts from its own seed, as the policy plays it."""
    one, rng = env.make(render_mode="rgb_array" if pictures else None), generator(number, "episode")
    observation = with_initial_state(policy, batch(one.observation_space, [one.reset(seed=number)[0]]))
    ended = False
    with contextlib.closing(one):
        while not ended:
            picture = draw(one) if pictures else None
            action = policy.sample(observation, rng)
            with reporting_step_errors(one):
                arrived, reward, terminated, truncated, info = one.step(action[0])
                observed = batch(one.observation_space, [arrived])
                rewards = np.array([float(reward)])
            next_observation = with_next_state(policy, observation, observed)
            transition = Transitions(
                observation=observation,
                action=action,
                next_observation=next_observation,
                reward=rewards,
                terminated=np.array([terminated]),
                truncated=np.array([truncated]),
                info={key: np.asarray(info[key])[None] for key in info_keys},
            )
            yield Step(transition, picture)
            observation, ended = next_observation, bool(terminated or truncated)


def check_frame(frame: bytes, name: str) -> None:
    """Refuse what is no picture as `compressed` makes them."""
    try:
        with Image.open(io.BytesIO(frame), formats=["WEBP"]) as image:
            size = image.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name} is no WebP picture") from error
    if size[0] > FRAME_SIZE[0] or size[1] > FRAME_SIZE[1]:
        raise ValueError(f"{name} is {size[0]} x {size[1]} large, and at most {FRAME_SIZE} is recorded")


def compressed(picture: Array) -> bytes:
    """A picture [height, width, 3] as a small WebP file."""
    image = Image.fromarray(np.asarray(picture, dtype=np.uint8))
    image.thumbnail(FRAME_SIZE)
    file = io.BytesIO()
    image.save(file, "WEBP", quality=FRAME_QUALITY)
    return file.getvalue()
