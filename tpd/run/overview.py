"""The overview of a run: maps over all states, turning points of its episodes, and the report."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tpd.answers.turning_points import turning_points
from tpd.run.ahead import roll_out_ahead
from tpd.show import maps, report, timeline
from tpd.show.atlas import MapSpec
from tpd.sources.episodes import Recording, some_episodes
from tpd.store.saved_runs import SavedRun
from tpd.store.tables import write_table
from tpd.tracking.runs import Run

OVERVIEW, REPORT, TURNING_POINTS = "overview", "report.html", "turning_points.json"


def write_overview(run: SavedRun, folder: Path, tracked: Run, seconds: float, headline: str) -> None:
    """Write maps over all states, the turning points of the recorded episodes, and the report.

    seconds: time budget for rolling out the most informative steps.
    headline: the first line of the report.
    """
    folder = folder / OVERVIEW
    folder.mkdir(parents=True, exist_ok=True)
    stepwise = run.explainer.limits is None  # else there are no forecasts for maps or turning points
    if stepwise and (spec := MapSpec.from_config(run.maps, run.env)) is not None:
        for name, figure in maps.draw(run.explainer, run.env, spec).items():
            figure.savefig(folder / f"map_{name}.png")
    if run.recording is not None:
        points, shown = None, sorted(report.shown_episodes(run))
        if stepwise and run.explainer.predictor.horizon > 1:
            points = _turning_points(run, run.recording, shown)
            write_table(points, folder / TURNING_POINTS)
            if len(points):
                figure = timeline.draw(points, run.explainer.legend, f"Turning points, {run.name}")
                figure.savefig(folder / "turning_points.png")
            tracked.table(folder / TURNING_POINTS)
        rolled_out = roll_out_ahead(run, points, seconds, shown)
        report.write(run, folder / REPORT, points, rolled_out, headline)
    tracked.files(folder, OVERVIEW)


def _turning_points(run: SavedRun, recording: Recording, shown: Sequence[int]) -> pd.DataFrame:
    """Turning points of all episodes; only of those in the report if every forecast is simulated."""
    if not run.explainer.simulates:
        return turning_points(run.explainer, recording)
    points = turning_points(run.explainer, some_episodes(recording, shown))
    return points.assign(episode=np.array(shown)[points["episode"]])


def report_link(tracked: Run, overview: str) -> str:
    """Link to the report in the overview of a run."""
    return f"[**Play its episodes and explore its states**]({tracked.page(file=f'{overview}/{REPORT}')})"
