"""Records episodes for display: observations, actions, outcomes, and pictures if states cannot be drawn."""

import contextlib
import io
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from tpd.core.observations import batch
from tpd.core.outcomes import OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, Episodes, FloatArray, IntArray, Policy, Transitions, concatenate
from tpd.envs import Environment
from tpd.envs.environment import draw
from tpd.guards.settings import whole_number
from tpd.sources.hidden_state import with_initial_state, with_next_state
from tpd.sources.moments import Moment
from tpd.sources.stepping import reporting_step_errors

FRAME_SIZE = (320, 240)
FRAME_QUALITY = 50
ENDLESS = 2000
"""Upper bound on recorded steps of an episode without a time limit."""
EARLY_FRAMES, LAST_FRAMES = 100, 30
"""Pictures of an episode: at most this many before its last steps, and one for each of the last steps."""
MOST_PICTURED = 500
"""Upper bound on recorded episodes with pictures; if there are more, none has pictures."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recording:
    """Recorded episodes; every step of them is a moment that can be asked about."""

    episodes: Episodes
    happened: FloatArray
    """[batch, outcome]: the outcomes of each transition"""
    seeds: IntArray
    """[episode]: the seed of its reset"""
    masks: BoolArray | None
    """[batch, num_actions]: the valid actions before each transition; None if actions are not discrete"""
    frames: tuple[bytes, ...] = ()
    """[frame]: pictures before some of the transitions, as WebP.

    Empty if states can be drawn without playing
    """
    frame_rows: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """[frame]: the transition of each picture, in order; the first step of an episode always has one"""

    def moment(self, episode: int, step: int) -> Moment:
        """The moment before a step of an episode."""
        seed, played = int(self.seeds[episode]), self.episodes[episode]
        mask = None if self.masks is None else self.masks[int(self.episodes.begins[episode]) + step]
        return Moment(seed, played.action[:step], played.observation[step], mask, played.action[step])

    def frame_of(self, rows: IntArray) -> IntArray:
        """[row]: the index of the latest picture at or before each of these transitions."""
        return np.searchsorted(self.frame_rows, rows, side="right") - 1


class Recorder:
    """Records a number of episodes, optionally cut after a number of steps."""

    def __init__(self, *, episodes: int, steps: int | None = None) -> None:
        self.episodes = whole_number("episodes", episodes, at_least=0)
        self.steps = None if steps is None else whole_number("steps", steps, at_least=1)

    def record(self, env: Environment, policy: Policy, outcomes: OutcomeSet) -> Recording | None:
        """Play the episodes; returns None if `episodes` is 0."""
        if not self.episodes:
            return None
        pictures = env.drawable and env.model is None
        return record(env, policy, outcomes, range(self.episodes), self.steps, pictures)


def record(
    env: Environment,
    policy: Policy,
    outcomes: OutcomeSet,
    seeds: Sequence[int],
    most: int | None = None,
    pictures: bool = False,
    progress: Callable[[int], None] = lambda episodes: None,
) -> Recording:
    """Play one episode per seed, of at most `most` steps, and record pictures if requested."""
    if most is None and env.time_limit is None:
        most = ENDLESS
    if pictures and len(seeds) > MOST_PICTURED:
        pictures = False
        log.warning(
            "%d episodes are recorded without pictures: set recording.episodes to %d or less to have them",
            len(seeds),
            MOST_PICTURED,
        )
    parts, begins = list[Transitions](), list[int]()
    frames, frame_rows = list[bytes](), list[int]()
    for seed in seeds:
        steps = play_one(env, policy, seed, most, outcomes.info_keys)
        pages = _pictured(env, seed, steps) if pictures else {}
        if pictures and 0 not in pages:  # otherwise it would show pictures of another episode
            pictures, frames, frame_rows = False, [], []
        frame_rows += [len(parts) + time for time in pages]
        frames += pages.values()
        begins.append(len(parts))
        parts += steps
        progress(1)
    transitions = concatenate(parts)
    return Recording(
        Episodes(transitions, np.array(begins)),
        outcomes.observe(transitions).outcome[:, :-1],
        np.array(seeds, dtype=np.int64),
        env.mask(transitions.observation) if env.discrete else None,
        tuple(frames),
        np.array(frame_rows, dtype=np.int64),
    )


def some_episodes(recording: Recording, numbers: Sequence[int]) -> Recording:
    """The recording with these episodes only, in this order; episodes with pictures keep their own order."""
    episodes = recording.episodes
    ends = np.append(episodes.begins[1:], len(episodes.transitions))
    lengths = (ends - episodes.begins)[list(numbers)]
    steps = np.concatenate([np.arange(episodes.begins[number], ends[number]) for number in numbers])
    kept = Episodes(episodes.transitions[steps], np.cumsum(lengths) - lengths)
    framed = np.isin(recording.frame_rows, steps)
    frames = tuple(recording.frames[k] for k in np.flatnonzero(framed))
    rows = np.searchsorted(steps, recording.frame_rows[framed])
    masks = None if recording.masks is None else recording.masks[steps]
    return Recording(kept, recording.happened[steps], recording.seeds[list(numbers)], masks, frames, rows)


def picture_of(env: Environment, moment: Moment) -> Array | None:
    """[height, width, 3]: the environment at a moment, drawn by replaying it; None if it cannot be drawn."""
    if env.model is not None:
        return env.picture(moment.observation)
    if not env.drawable:
        return None
    with contextlib.closing(env.make(render_mode="rgb_array")) as one:
        shown, _ = one.reset(seed=moment.seed)
        for action in moment.actions:
            shown, *_ = one.step(action)
        return draw(one) if moment.shows(one.observation_space, shown) else None


def _pictured(env: Environment, seed: int, steps: Sequence[Transitions]) -> dict[int, bytes]:
    """Pictures by time, of the last steps and some earlier ones, by replaying the seed and actions.

    They stop at the first step where the replay observes something else or cannot be drawn.
    """
    wanted, pages = set(picture_times(len(steps))), dict[int, bytes]()
    with contextlib.closing(env.make(render_mode="rgb_array")) as one:
        shown, _ = one.reset(seed=seed)
        for time, step in enumerate(steps):
            if time in wanted:
                if not Moment(seed, step.action, step.observation[0]).shows(one.observation_space, shown):
                    log.warning(
                        "the replay of the episode of seed %d in %s differs from the recording, so pictures "
                        "end at step %d",
                        *(seed, env.id, time),
                    )
                    break
                try:
                    pages[time] = compressed(draw(one))
                except Exception as error:  # any error of a renderer, for example a lost OpenGL context
                    log.warning(
                        "%s could not be rendered, so pictures of seed %d end at step %d: %s",
                        *(env.id, seed, time, " ".join(str(error).split())),
                    )
                    break
            shown, *_ = one.step(step.action[0])
    return pages


def picture_times(steps: int) -> list[int]:
    """The steps of an episode that get a picture: the last ones, and some evenly spaced before them."""
    last = max(0, steps - LAST_FRAMES)
    every = max(1, -(-last // EARLY_FRAMES))
    return [*range(0, last, every), *range(last, steps)]


def play_one(
    env: Environment, policy: Policy, seed: int, most: int | None = None, info_keys: Sequence[str] = ()
) -> list[Transitions]:
    """[time]: the steps of one episode of the policy from this seed, at most `most`."""
    one, rng, steps = env.make(), generator(seed, "episode"), list[Transitions]()
    with contextlib.closing(one):
        observation = with_initial_state(policy, batch(one.observation_space, [one.reset(seed=seed)[0]]))
        while len(steps) != most and not (steps and (steps[-1].terminated | steps[-1].truncated)[0]):
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
            steps.append(transition)
            observation = next_observation
    return steps


def check_frame(frame: bytes, name: str) -> None:
    """Refuse anything but a picture made by `compressed`."""
    try:
        with Image.open(io.BytesIO(frame), formats=["WEBP"]) as image:
            size = image.size
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name} is not a WebP image") from error
    if size[0] > FRAME_SIZE[0] or size[1] > FRAME_SIZE[1]:
        raise ValueError(f"{name} has {size[0]} x {size[1]} pixels, at most {FRAME_SIZE} are allowed")


def compressed(picture: Array) -> bytes:
    """A picture [height, width, 3] as a small WebP file."""
    image = Image.fromarray(np.asarray(picture, dtype=np.uint8))
    image.thumbnail(FRAME_SIZE, Image.Resampling.BILINEAR)
    file = io.BytesIO()
    image.save(file, "WEBP", quality=FRAME_QUALITY, method=2)  # nearly as small as method 4, and faster
    return file.getvalue()
