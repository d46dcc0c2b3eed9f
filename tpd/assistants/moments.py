"""Steps of recorded episodes that are worth asking about."""

from tpd.assistants.library import OpenRun
from tpd.assistants.records import MomentEntry, Moments
from tpd.run.ahead import telling_steps
from tpd.run.expectations import Asking
from tpd.run.moments import find_moments

MOST_MOMENTS = 30
SECONDS = 20.0
"""That the search for turning points may take."""


def worth_asking(opened: OpenRun, episode: int | None, most: int) -> Moments:
    """Turning points and steps before the ends of recorded episodes, the most telling first."""
    run, recording = opened.saved, opened.saved.recording
    if recording is None:
        return Moments(run=opened.id, moments=[], how="", doubts=[f"{run.name} has no recorded episodes"])
    count = len(recording.episodes)
    if episode is not None and not 0 <= episode < count:
        raise ValueError(f"there is no episode {episode}; recorded are 0 to {count - 1}")
    episodes = range(count) if episode is None else [episode]
    points, how = find_moments(run, Asking(), SECONDS, episodes)
    reasons = {(point.episode, point.step): f"turning point: {point.text}" for point in points[:most]}
    for number, step in telling_steps(recording, None, episodes):
        left = len(recording.episodes[number]) - step
        before = (
            "the last step before the end" if left == 1 else f"{left} steps before the episode terminates"
        )
        reasons.setdefault((number, step), before)
    moments = [
        MomentEntry(
            episode=number,
            step=step,
            action=run.env.name_of_action(recording.episodes[number].action[step]),
            reason=reason,
        )
        for (number, step), reason in list(reasons.items())[:most]
    ]
    doubts = [] if points else ["no step was found that made a decisive event much more or less likely"]
    return Moments(run=opened.id, moments=moments, how=how, doubts=doubts)
