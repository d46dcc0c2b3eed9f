"""The summary of a sweep: tables and plots over its finished jobs."""

import logging
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from tpd.core.explanation import Explanation
from tpd.core.verdicts import Verdict
from tpd.evaluation.fresh_episodes import POLICY
from tpd.guards.files import blame, require_file
from tpd.run.overview import OVERVIEW, REPORT, report_link
from tpd.run.results import PLOTS
from tpd.show import learning_curves, plots
from tpd.show.console import show
from tpd.show.strategies import group_by_strategy
from tpd.show.tables import error_table, forecast_table, overall
from tpd.store import run_descriptions
from tpd.store.explanations import load_explanation
from tpd.store.run_descriptions import Actions, FigureDescription, RunDescription
from tpd.store.run_folders import FAILED, FINISHED, STATUS, read_record, write_record
from tpd.store.saved_runs import EXPLAINER
from tpd.store.tables import read_errors, read_forecasts, read_metrics, write_table
from tpd.store.yaml_files import read_overrides
from tpd.tracking import notes, outbox
from tpd.tracking.runs import Run

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """The results of a finished job, read from its folder."""

    folder: Path
    about: RunDescription
    overrides: list[str]
    """The overrides of its command line, without the seed."""
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    """The explanations of each figure's state-action pairs, by figure name."""
    errors: pd.DataFrame | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The scalar metrics of its errors."""
    curve: pd.DataFrame | None = None
    forecasts: pd.DataFrame | None = None
    run_id: str | None = None
    """Its id in the tracking store."""

    @property
    def seed(self) -> str:
        return str(self.about.seed)


def finished_jobs(folder: Path) -> list[Job]:
    """Read the finished jobs of a sweep, in launch order.

    A job with unreadable results counts as failed, so that the same command runs it again.
    """
    jobs = []
    for _, status in sorted(_by_number(folder).items()):
        if read_record(status).get("status") != FINISHED:
            continue
        try:
            jobs.append(read_job(status.parent))
        except (ValueError, OSError) as error:
            log.error("the results of a finished job cannot be read, so it counts as missing: %s", error)
            write_record(status, status=FAILED, error=str(error))
    return jobs


def read_job(folder: Path) -> Job:
    """Read the results of a finished job without building any of its objects; errors name the broken file."""
    about = run_descriptions.read(folder / EXPLAINER)
    errors, forecasts, curve = (folder / name for name in ("errors.json", "forecasts.json", "curve.json"))
    return Job(
        folder=folder,
        about=about,
        overrides=[word for word in read_overrides(folder) if not word.startswith("seed=")],
        explanations={figure.name: _explanation(folder, figure, about) for figure in about.figures},
        errors=read_errors(errors) if errors.exists() else None,
        metrics=read_metrics(folder / "metrics.json") if errors.exists() else {},
        curve=read_errors(curve, by=["step"]) if curve.exists() else None,
        forecasts=read_forecasts(forecasts) if forecasts.exists() else None,
        run_id=outbox.run_id(folder),
    )


def _explanation(folder: Path, spec: FigureDescription, about: RunDescription) -> Explanation:
    """The explanation of a figure's pairs, which the job saved beside the picture."""
    path = folder / f"{spec.name}.npz"
    explanation = load_explanation(path)
    require_file(folder / PLOTS / f"{spec.name}.png")
    with blame(path):
        if len(explanation.actions) != len(spec.states):
            raise ValueError(
                f"it explains {len(explanation.actions)} pairs, but its figure has {len(spec.states)}"
            )
        for action in explanation.actions:
            about.actions.name(action)
    return explanation


def launched_jobs(folder: Path) -> dict[int, list[str]]:
    """The overrides of the jobs that have started, by job number; the folder name if they are lost."""
    jobs = {}
    for number, status in sorted(_by_number(folder).items()):
        try:
            jobs[number] = read_overrides(status.parent)
        except ValueError:
            jobs[number] = [str(status.parent)]
    return jobs


def _by_number(folder: Path) -> dict[int, Path]:
    """The status file of each job, by job number."""
    known = {path: read_record(path).get("number") for path in folder.rglob(STATUS)}
    return {number: path for path, number in known.items() if isinstance(number, int)}


def missing_jobs(folder: Path, jobs: Mapping[int, Sequence[str]]) -> dict[str, str]:
    """The overrides of the jobs that did not finish, and the known reason."""
    known, missing = _by_number(folder), {}
    for number, overrides in jobs.items():
        record = read_record(known[number]) if number in known else {}
        if record.get("status") != FINISHED:
            missing[" ".join(overrides)] = str(record.get("error") or "it did not finish")
    return missing


def alike(jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """Group jobs that differ only in their seed; keys are the settings that differ between groups."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.about.kind, []).append(job)
    overrides = [job.overrides for job, *_ in groups.values()]
    apart = [[o for o in own if not all(o in other for other in overrides)] for own in overrides]
    labels = [", ".join(own) for own in apart]
    if len(set(labels)) < len(labels):  # they differ in settings that are not on the command line
        labels = [f"{label} {number}".strip() for number, label in enumerate(labels, start=1)]
    return dict(zip(labels, groups.values(), strict=True))


def summarise(jobs: Sequence[Job], folder: Path, tracked: Run, missing: str = "") -> list[str | Path]:
    """Write tables of mean and standard deviation, and plots with one line per seed, to the sweep's folder.

    Returns the contents of a note: links to the runs, tables and pictures. Metrics are logged with the number
    of jobs as their step, since it grows when a sweep is resumed.
    missing: added to every title, to tell that jobs are missing.
    """
    target, errors, forecasts = folder / PLOTS, list[pd.DataFrame](), list[pd.DataFrame]()
    curves = defaultdict[str, dict[str, pd.DataFrame]](dict)
    note, runs = list[str | Path](), dict[str, dict[str, float]]()
    for label, group in alike(jobs).items():
        seeds = "1 seed" if len(group) == 1 else f"{len(group)} seeds"
        title = ", ".join(filter(None, [group[0].about.name, label, seeds, missing]))
        note.append(f"**{notes.escaped(title)}**" + (", mean ± standard deviation" if len(group) > 1 else ""))
        for summarise_table, tables in ((_errors, errors), (_forecasts, forecasts)):
            if (found := summarise_table(group, label, title, tracked)) is not None:
                table, shown = found
                tables.append(table.assign(jobs=label) if label else table)
                note.append(shown)
        if curve := [job.curve for job in group if job.curve is not None]:
            about = group[0].about
            curves[about.env.id][label or about.name] = pd.concat(curve)
        draw_figures(group, target / label.replace("/", "_"))
        note += _track_overview(group[0].folder, label, tracked)
        runs |= {_link(job, label, tracked): notes.headlines(job.errors, job.forecasts) for job in group}
    for tables, name in ((errors, "errors.json"), (forecasts, "forecasts.json")):
        if tables:
            write_table(pd.concat(tables), folder / name)
            tracked.table(folder / name)
    for env_id, of_env in curves.items():
        name = "error_against_steps" if len(curves) == 1 else f"error_against_steps_{env_id}"
        learning_curves.draw(of_env).savefig(target / f"{name.replace('/', '_')}.png", dpi=110)
    tracked.files(target, PLOTS)
    pictures = [*sorted(target.glob("error_against_steps*.png")), *sorted(target.rglob("*_over_seeds.png"))]
    return [notes.run_table(runs), *note, *pictures]


def _errors(group: Sequence[Job], label: str, title: str, tracked: Run) -> tuple[pd.DataFrame, str] | None:
    """The table of errors over seeds, also as Markdown; None if nothing was compared with the truth."""
    errors = [job.errors for job in group if job.errors is not None]
    if not errors:
        return None
    mean, std = _mean_and_std(errors)
    show(error_table(f"Errors of {title}", mean, std, group[0].about.reference))
    metrics, prefix = pd.DataFrame([job.metrics for job in group]), f"{label}/" if label else ""
    means = {str(name): float(value) for name, value in metrics.mean().items()}
    print(overall(means))
    tracked.metrics({f"{prefix}{name}": value for name, value in means.items()}, len(group))
    tracked.metrics({f"{prefix}{name}_std": v for name, v in metrics.std(ddof=1).items()}, len(group))
    return mean.join(std.add_suffix("_std")), notes.error_table(mean, std if len(errors) > 1 else None)


def _forecasts(group: Sequence[Job], label: str, title: str, tracked: Run) -> tuple[pd.DataFrame, str] | None:
    """The table of forecast skill over seeds, also as Markdown; None if no fresh episodes were played."""
    forecasts = [job.forecasts for job in group if job.forecasts is not None]
    if not forecasts:
        return None
    groups = pd.concat(forecasts).groupby(["actions", "outcome", "range"], sort=False)
    verdicts = groups["verdict"].agg(_verdict_of_all)
    table = groups.mean(numeric_only=True).assign(verdict=verdicts).reset_index()
    show(forecast_table(f"Forecasts of {title}, compared with fresh episodes", table))
    own = table[table["actions"] == POLICY]
    skills = own[own["range"] == "all"].set_index("outcome")["skill"]
    prefix = f"{label}/" if label else ""
    tracked.metrics({f"{prefix}{name}/skill": float(skill) for name, skill in skills.items()}, len(group))
    return table, notes.skill_table(table)


def _verdict_of_all(verdicts: "pd.Series[str]") -> str:
    """The common verdict of all seeds, or the number of seeds with the verdict "learned"."""
    if verdicts.nunique() == 1:
        return str(verdicts.iloc[0])
    learned = int((verdicts == Verdict.LEARNED.words).sum())
    return f"{Verdict.LEARNED.words} by {learned} of {len(verdicts)} seeds"


def _track_overview(folder: Path, label: str, tracked: Run) -> list[str]:
    """Track the overview of a job with the sweep; returns a link to its report, if there is one."""
    if not (folder / OVERVIEW).exists():
        return []
    overview = f"{OVERVIEW}/{label.replace('/', '_')}".rstrip("/")
    tracked.files(folder / OVERVIEW, overview)
    return [report_link(tracked, overview)] if (folder / OVERVIEW / REPORT).exists() else []


def _link(job: Job, label: str, tracked: Run) -> str:
    """A link to the run of a job, labelled by its settings and seed."""
    words = notes.escaped(", ".join(filter(None, [label, f"seed {job.seed}"])))
    return words if job.run_id is None else f"[{words}]({tracked.page(job.run_id)})"


def draw_figures(jobs: Sequence[Job], target: Path) -> None:
    """Draw the figures of every seed, and one plot per pair over all seeds."""
    for figure in jobs[0].about.figures:
        explanations = {job.seed: job.explanations[figure.name] for job in jobs}
        draw_over_seeds(figure, jobs[0].about.actions, explanations, target)
        for job in jobs:
            drawn = job.folder / PLOTS / f"{figure.name}.png"
            shutil.copy(drawn, target / f"{figure.name}_seed_{job.seed}.png")


def draw_over_seeds(
    spec: FigureDescription, actions: Actions, explanations: Mapping[str, Explanation], target: Path
) -> None:
    """A plot for each pair of a figure, its seeds grouped by strategy."""
    target.mkdir(parents=True, exist_ok=True)
    for row, state in enumerate(spec.states):
        known = {seed: explanation for seed, explanation in explanations.items() if explanation.known[row]}
        unknown = [seed for seed in explanations if seed not in known]
        title = f"{spec.title}: {state}"
        if unknown:
            title += f"\nnever tried, so unknown: seeds {', '.join(unknown)}"
        groups = {}
        for group in group_by_strategy(known, row):
            taken = {actions.name(known[seed].actions[row]) for seed in group}
            word = "seed" if len(group) == 1 else "seeds"
            groups[f"{word} {', '.join(group)}: {' or '.join(sorted(taken))}"] = group
        drawn = plots.over_seeds(title, groups, known, row)
        drawn.savefig(target / f"{spec.name}_pair_{row + 1}_over_seeds.png", dpi=110)


def _mean_and_std(frames: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = frames[0].index
    by_outcome = pd.concat(frames).groupby(level=0, sort=False)
    return by_outcome.mean().loc[order], by_outcome.std(ddof=1).fillna(0.0).loc[order]
