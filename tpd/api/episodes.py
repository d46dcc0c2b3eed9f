"""Episodes played by an agent, as sequences of moments to ask about."""

import functools
import logging
from collections.abc import Callable, Sequence
from html import escape
from typing import overload

import numpy as np
import pandas as pd

from tpd.answers.sentences.formatting import percent
from tpd.answers.turning_search import LEAST_JUMP, TurningPoint, search_turning_points
from tpd.api.threads import one_thread
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import Transitions
from tpd.evaluation.played_return import episode_returns
from tpd.guards.settings import number, whole_number
from tpd.predictors.simulation import Simulator
from tpd.sources.episodes import Recording, some_episodes
from tpd.sources.moments import Moment

log = logging.getLogger(__name__)
SECONDS, MOST_POINTS = 10.0, 3
"""Defaults of a search for turning points."""
NO_POINTS = (
    f"no step before the last changed the probability of a decisive event by {percent(LEAST_JUMP)} or more"
)
OUT_OF_TIME = (
    "the search for turning points ran out of time after %g s, so there may be others: call "
    "turning_points(seconds=...) with more"
)
_Simulators = Callable[[], Simulator]


class PlayedEpisode(Sequence[Moment]):
    """One episode: `episode[150]` is the moment before its step 150, `episode[-1]` the last one.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> (episode,) = explainer.play(seeds=[4])
    >>> episode
    <episode of seed 4: return 25, 25 steps, terminated; falls at step 24>
    >>> episode[-1]
    <Moment: episode of seed 4, step 24>
    """

    def __init__(self, recording: Recording, number: int, legend: Legend, simulator: _Simulators) -> None:
        self._recording, self._number, self._legend = recording, number, legend
        self._simulator = simulator
        self._points: dict[tuple[float, int], tuple[list[TurningPoint], bool]] = {}
        self.seed = int(recording.seeds[number])
        self.transitions: Transitions = recording.episodes[number]
        """[time]"""
        self.total_reward = float(self.transitions.reward.sum())
        """The undiscounted return."""

    def __len__(self) -> int:
        return len(self.transitions)

    @overload
    def __getitem__(self, step: int) -> Moment: ...
    @overload
    def __getitem__(self, step: slice) -> list[Moment]: ...
    def __getitem__(self, step: int | slice) -> Moment | list[Moment]:
        if isinstance(step, slice):
            return [self[number] for number in range(*step.indices(len(self)))]
        if not -len(self) <= step < len(self):
            raise IndexError(f"the episode has {self._steps}, so there is no step {step}")
        number = range(len(self))[step]
        return self._recording.moment(self._number, number)

    @property
    def happened(self) -> dict[str, list[int]]:
        """The steps at which each event happened; events that never happened are left out."""
        begin = int(self._recording.episodes.begins[self._number])
        rows = self._recording.happened[begin : begin + len(self)]
        names = self._legend.names
        events = [k for k, name in enumerate(names) if name in self._legend.events]
        steps = {names[k].removeprefix(FIRST): np.flatnonzero(rows[:, k]).tolist() for k in events}
        return {name: when for name, when in steps.items() if when}

    def turning_points(self, seconds: float = SECONDS, most: int = MOST_POINTS) -> list[TurningPoint]:
        """Find by rollouts the steps that changed the probability of a decisive event most, largest first.

        A decisive event ends an episode, or carries a large part of the reward. The search stops after about
        `seconds`, and then logs a warning; a change that is not yet narrowed down to one step is reported as
        a range of steps.
        """
        points, finished = self._search(
            number("seconds", seconds, 0, np.inf), whole_number("most", most, at_least=1)
        )
        if not finished:
            log.warning(OUT_OF_TIME, seconds)
        return points

    def _search(self, seconds: float, most: int) -> tuple[list[TurningPoint], bool]:
        """The turning points, and whether the search was finished."""
        if (seconds, most) not in self._points:
            with one_thread():
                found = search_turning_points(self._simulator(), self._recording, self._number, seconds, most)
            self._points[seconds, most] = found
        return self._points[seconds, most]

    def __str__(self) -> str:
        try:
            found, finished = self._search(SECONDS, MOST_POINTS)
            points = [str(point) for point in found]
            if not finished:
                points.append(OUT_OF_TIME % SECONDS)
            points = points or [NO_POINTS]
        except ValueError as error:
            points = [f"turning points were not searched: {error}"]
        return "\n  ".join([repr(self), *points])

    @property
    def _steps(self) -> str:
        return "1 step" if len(self) == 1 else f"{len(self)} steps"

    def __repr__(self) -> str:
        ended = "terminated" if self.transitions.terminated[-1] else "not terminated"
        rare = ", ".join(f"{name} at step {w[0]}" for name, w in self.happened.items() if len(w) == 1)
        said = f"return {self.total_reward:.4g}, {self._steps}, {ended}"
        return f"<episode of seed {self.seed}: {said}{f'; {rare}' if rare else ''}>"


class PlayedEpisodes(Sequence[PlayedEpisode]):
    """Episodes sorted by return, lowest first; a notebook shows them as a table.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> episodes = explainer.play(seeds=range(3))
    >>> episodes.to_frame()["return"].is_monotonic_increasing
    True
    """

    def __init__(self, recording: Recording, legend: Legend, simulator: _Simulators) -> None:
        order = np.argsort(episode_returns(recording.episodes), kind="stable")
        self.recording, self._legend = some_episodes(recording, order.tolist()), legend
        once = functools.cache(simulator)
        numbers = range(len(recording.seeds))
        self._episodes = [PlayedEpisode(self.recording, number, legend, once) for number in numbers]

    def __len__(self) -> int:
        return len(self._episodes)

    @overload
    def __getitem__(self, number: int) -> PlayedEpisode: ...
    @overload
    def __getitem__(self, number: slice) -> list[PlayedEpisode]: ...
    def __getitem__(self, number: int | slice) -> PlayedEpisode | list[PlayedEpisode]:
        if not isinstance(number, slice) and not -len(self) <= number < len(self):
            raise IndexError(f"there is no episode {number}; the episodes are 0 to {len(self) - 1}")
        return self._episodes[number]

    def to_frame(self) -> pd.DataFrame:
        """One row per episode: seed, return, length, and how often each event happened."""
        events = dict.fromkeys((name.removeprefix(FIRST) for name in self._legend.events), 0)
        rows = [
            {
                "seed": episode.seed,
                "return": episode.total_reward,
                "steps": len(episode),
                "terminated": bool(episode.transitions.terminated[-1]),
                **events,
                **{name: len(when) for name, when in episode.happened.items()},
            }
            for episode in self
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return "\n".join(f"{number}: {episode!r}" for number, episode in enumerate(self))

    def _repr_html_(self) -> str:
        return f"<div>{escape(str(len(self)))} episodes, the worst first</div>{self.to_frame().to_html()}"
