"""Saves the results of a run (figures, tables, episodes, explainer) in its folder and tracks them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from tpd.evaluation.errors import Errors
from tpd.evaluation.forecasts import ForecastSkill
from tpd.evaluation.fresh_episodes import Forecasts
from tpd.evaluation.played_return import PlayedReturn
from tpd.guards.atomic import atomic_write_text
from tpd.run.parts import Parts
from tpd.show import reliability, survival_curves
from tpd.sources.episodes import Recording
from tpd.store import explainers, run_descriptions
from tpd.store.explanations import save_explanation
from tpd.store.recordings import save_recording
from tpd.store.saved_runs import EPISODES, EXPLAINER, FORECASTS, RESULT, SavedRun
from tpd.store.tables import write_table
from tpd.tracking.runs import Run

PLOTS, RELIABILITY = "plots", "reliability.png"


@dataclass(frozen=True)
class Findings:
    """What the evaluation of an explainer found."""

    errors: Errors | None
    """Errors against the truth; None if there is no truth."""
    forecasts: Forecasts | None
    """Skill of the forecasts in fresh episodes; None if none were played."""
    left_out: str = ""
    """What the time budget of the evaluation left out, as a sentence."""
    played: PlayedReturn | None = None
    """The return of the policy in these episodes, beside the expected one."""
    hidden: str = ""
    """A warning if rollouts settle events that forecasts leave open, so the simulator knows more."""

    @property
    def lines(self) -> list[str]:
        """The first lines of every result: the return played, warnings about it, and what was left out."""
        played = [] if self.played is None else [self.played.line, self.played.warning]
        return [line for line in (*played, self.left_out, self.hidden) if line]


def save_results(
    parts: Parts,
    findings: Findings,
    curve: Mapping[int, Errors],
    recording: Recording | None,
    folder: Path,
    tracked: Run,
) -> None:
    """Write all results to the folder and to the tracked run."""
    step = parts.training.transitions(parts.trainer)
    forecasts = findings.forecasts
    frame, skill = (None, None) if forecasts is None else (forecasts.frame(), forecasts.policy)
    save_learned(parts, findings.lines, frame, skill, folder)
    tracked.files(folder / RESULT)
    if findings.played is not None:
        tracked.metrics(findings.played.metrics(), step)
    _draw(parts, folder)
    if forecasts is not None and frame is not None:
        tracked.metrics(forecasts.metrics(), step)
        tracked.table(folder / FORECASTS)
    tracked.files(folder / PLOTS, PLOTS)
    if recording is not None:
        save_recording(recording, folder / EPISODES)
        tracked.files(folder / EPISODES)
    tracked.model(folder / EXPLAINER, EXPLAINER)
    if findings.errors is not None:
        figures = findings.errors.metrics()
        atomic_write_text(folder / "metrics.json", json.dumps(figures))
        tracked.metrics(figures, step)
        tables = {"errors.json": findings.errors.frame(), "bands.json": findings.errors.band_frame()}
        for name, table in tables.items():
            if table is not None:
                write_table(table, folder / name)
                tracked.table(folder / name)
    if curve:
        frames = [measured.frame().assign(step=step) for step, measured in curve.items()]
        write_table(pd.concat(frames), folder / "curve.json")


def save_learned(
    run: Parts | SavedRun,
    lines: Sequence[str],
    forecasts: pd.DataFrame | None,
    skill: ForecastSkill | None,
    folder: Path,
) -> None:
    """Write the explainer and the quality of its forecasts: as text, as a table and as a figure."""
    assert run.about is not None
    (folder / PLOTS).mkdir(parents=True, exist_ok=True)
    atomic_write_text(folder / RESULT, "\n".join([*lines, ""]))
    if forecasts is not None:
        write_table(forecasts, folder / FORECASTS)
    if skill is not None:
        reliability.draw(skill, f"Reliability, seed {run.about.seed}").savefig(folder / PLOTS / RELIABILITY)
    save_explainer(run, folder)


def save_explainer(run: Parts | SavedRun, folder: Path) -> None:
    """Write the explainer with its policy, and the description of the run."""
    assert run.about is not None
    explainers.save(run.explainer, run.env, folder / EXPLAINER)
    run_descriptions.write(run.about, folder / EXPLAINER)


def live_run(parts: Parts, recording: Recording | None) -> SavedRun:
    """The run of this process as a `SavedRun`, so that figures and the report need not read it from disk."""
    return SavedRun(
        name=parts.about.title,
        explainer=parts.explainer,
        env=parts.env,
        recording=recording,
        outcomes=lambda: parts.outcomes,
        about=parts.about,
    )


def _draw(parts: Parts, folder: Path) -> None:
    """Draw the figures that the config asks for, and survival curves."""
    plots = folder / PLOTS
    for spec in parts.figures:
        figure, explanation = spec.draw(parts.explainer, parts.env, f"seed {parts.seed}")
        figure.savefig(plots / f"{spec.name}.png")
        save_explanation(explanation, folder / f"{spec.name}.npz")
    if parts.examiner is not None and (rolled_out := parts.examiner.rolled_out) is not None:
        title = f"Probability of each event by each step, seed {parts.seed}"
        page = survival_curves.draw(parts.explainer, *rolled_out, title)
        if page is not None:
            page.savefig(plots / "survival.png")
