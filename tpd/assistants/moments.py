"""Steps of recorded episodes that are worth asking about."""

from typing import Any

import pandas as pd

from tpd.answers.turning_points import END, turning_points
from tpd.api.quality import Quality
from tpd.assistants.library import OpenRun
from tpd.assistants.records import MomentEntry, Moments
from tpd.core.outcomes import FIRST
from tpd.run.ahead import BEFORE_ENDS, telling_steps
from tpd.sources.episodes import Recording
from tpd.store.saved_runs import SavedRun
from tpd.store.tables import read_table

MOST_MOMENTS = 30
STORED = "overview/turning_points.json"
LEAST_CHANGE = 0.02
"""Of a probability, at a step that is called a turning point."""
SIMULATED = "turning points are not worked out anew where every forecast is simulated"
UNJUDGED = "turning points are forecasts of what was learned, which nobody judged: ask explain about them"
UNTOLD = "no turning points: nothing that this run learned about its events may be told"


def worth_asking(opened: OpenRun, episode: int | None, most: int) -> Moments:
    """Turning points and steps before the ends of recorded episodes, the most telling first."""
    run = opened.saved
    if run.recording is None:
        return Moments(run=opened.id, moments=[], doubts=[f"{run.name} has no recorded episodes"])
    count = len(run.recording.episodes)
    if episode is not None and not 0 <= episode < count:
        raise ValueError(f"there is no episode {episode}; recorded are 0 to {count - 1}")
    points, doubts = _points(opened, run.recording)
    numbers = range(count) if episode is None else [episode]
    changes = {
        (int(row["episode"]), int(row["step"])): row
        for row in _records(points)
        if int(row["episode"]) in numbers
    }
    ends = telling_steps(run.recording, None, numbers)
    found = dict.fromkeys([*list(changes)[: max(1, most // 2)], *ends])
    moments = [
        MomentEntry(
            episode=number,
            step=step,
            action=run.env.name_of_action(run.recording.episodes[number].action[step]),
            reason=_reason(run, number, step, changes.get((number, step))),
        )
        for number, step in list(found)[:most]
    ]
    return Moments(run=opened.id, moments=moments, doubts=doubts)


def _points(opened: OpenRun, recording: Recording) -> tuple[pd.DataFrame | None, list[str]]:
    """Turning points as the run stored them, else found now, the largest changes first; and doubts."""
    run, stored = opened.saved, opened.folder / STORED
    if stored.is_file():
        points = read_table(stored, numbers=["episode", "step", "change", "before", "after"])
        inside = points["episode"].between(0, len(recording.episodes) - 1)
        lengths = points["episode"].where(inside, 0).map(lambda number: len(recording.episodes[int(number)]))
        points = points[inside & points["step"].between(0, lengths - 1)]
    elif run.explainer.simulates:
        return None, [SIMULATED]
    elif not run.explainer.informed or run.explainer.predictor.horizon < 2:
        return None, [UNTOLD]
    else:
        points = turning_points(run.explainer, recording)
    points = points[points["change"] >= LEAST_CHANGE]
    quality = Quality.read(opened.folder)
    judged = run.env.tabular or (quality is not None and quality.table is not None)
    return (points, [] if judged else [UNJUDGED]) if len(points) else (None, [UNTOLD])


def _records(points: pd.DataFrame | None) -> list[dict[Any, Any]]:
    return [] if points is None else points.to_dict("records")


def _reason(run: SavedRun, episode: int, step: int, point: dict[Any, Any] | None) -> str:
    """Why a step is worth asking about."""
    assert run.recording is not None
    left = len(run.recording.episodes[episode]) - step
    if point is None:
        assert left in BEFORE_ENDS
        return "the last step before the end" if left == 1 else f"{left} steps before the episode terminates"
    return (
        f"turning point: the forecast of {_forecast(point['outcome'])} changes here from "
        f"{point['before']:.0%} to {point['after']:.0%}"
    )


def _forecast(outcome: str) -> str:
    """What turning points forecast of an outcome: that it happens at all, or in which share of the steps."""
    if outcome == END:
        return "the end of the episode within the horizon"
    if outcome.startswith(FIRST):
        return f"{outcome.removeprefix(FIRST)!r} within the horizon"
    return f"the share of steps with {outcome!r}"
