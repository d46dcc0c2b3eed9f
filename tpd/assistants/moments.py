"""Finds steps of recorded episodes that are worth asking about."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from tpd.assistants.library import OpenRun
from tpd.assistants.records import MomentEntry, Moments
from tpd.core.outcomes import FIRST
from tpd.run.ahead import telling_steps
from tpd.run.expectations import Asking
from tpd.run.moments import find_moments
from tpd.sources.episodes import Recording
from tpd.store.saved_runs import SavedRun

MOST_MOMENTS = 30
SECONDS = 20.0
"""Time budget of the search for turning points."""
LEAD = 5
"""Steps before an event that are asked about."""
Reason = tuple[tuple[int, int], str]
"""Episode and step, and why they are worth asking about."""


def worth_asking(opened: OpenRun, episode: int | None, most: int) -> Moments:
    """Turning points of recorded episodes, then steps before their ends and before events."""
    run, recording = opened.saved, opened.saved.recording
    if recording is None:
        return Moments(run=opened.id, moments=[], how="", doubts=[f"{run.name} has no recorded episodes"])
    count = len(recording.episodes)
    if episode is not None and not 0 <= episode < count:
        raise ValueError(f"there is no episode {episode}; the recorded episodes are 0 to {count - 1}")
    episodes = range(count) if episode is None else [episode]
    points, how = find_moments(run, Asking(), SECONDS, episodes)
    reasons = {(point.episode, point.step): f"turning point: {point.text}" for point in points[:most]}
    further = _before_ends(recording, episodes), _before_events(run, recording, episodes)
    for entry in (one for both in zip_longest(*further) for one in both if one is not None):
        reasons.setdefault(*entry)
    for number in episodes:
        if all(place[0] != number for place in reasons):
            middle = len(recording.episodes[number]) // 2
            reasons[number, middle] = "the middle of an episode in which no event of interest happened"
    moments = [
        MomentEntry(
            episode=number,
            step=step,
            action=run.env.name_of_action(recording.episodes[number].action[step]),
            reason=reason,
        )
        for (number, step), reason in list(reasons.items())[:most]
    ]
    doubts = [] if points else ["no step was found that changed the probability of a decisive event much"]
    return Moments(run=opened.id, moments=moments, how=how, doubts=doubts)


def _before_ends(recording: Recording, episodes: Sequence[int]) -> Iterator[Reason]:
    for number, step in telling_steps(recording, None, episodes):
        left = len(recording.episodes[number]) - step
        steps = "the last step" if left == 1 else f"{left} steps"
        yield (number, step), f"{steps} before the episode terminates"


def _before_events(run: SavedRun, recording: Recording, episodes: Sequence[int]) -> Iterator[Reason]:
    """Steps before the first occurrence of each event in an episode."""
    for number in episodes:
        begin = int(recording.episodes.begins[number])
        happened = recording.happened[begin : begin + len(recording.episodes[number])]
        for column, name in enumerate(run.explainer.legend.names):
            steps = np.flatnonzero(happened[:, column])
            if name.startswith(FIRST) and len(steps) and steps[0] >= LEAD:
                said = f"{LEAD} steps before {name.removeprefix(FIRST)} first happens in the episode"
                yield (number, int(steps[0]) - LEAD), said
