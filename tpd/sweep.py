"""A sweep as a whole: one parent run, and the story of its jobs told at the end."""

import json
import math
import shutil
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tpd import storage
from tpd.evaluate import METRICS, read_errors
from tpd.experiment import ConfigError, build
from tpd.explainer import Explainer
from tpd.jobs import CONFIG, STATUS, SWEEP, settings
from tpd.show import plots
from tpd.show.progress import ProgressBars
from tpd.show.scenes import Scene, scenes_from_config
from tpd.show.strategies import group_by_strategy
from tpd.show.tables import error_table, show
from tpd.tracking.runs import Run, Tracking

SECONDS_BETWEEN_LOOKS = 0.5


class SweepCallback(Callback):
    """Hydra's hook around a multirun. Hydra swallows its errors but not an exit."""

    def __init__(self) -> None:
        self.sweep: Sweep | None = None

    def __reduce__(self) -> tuple[type["SweepCallback"], tuple[()]]:
        return SweepCallback, ()  # the jobs get a copy, without what belongs to the parent

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a wrong config before any job is launched, then begin."""
        cfg = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        try:
            build(cfg)
        except ConfigError as error:
            sys.exit(str(error))
        self.sweep = Sweep(cfg, Path(config.hydra.sweep.dir), _count_jobs(config.hydra.overrides.task))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Tell what the jobs found, and fail if one of them did."""
        assert self.sweep is not None
        missing = self.sweep.finish()
        if missing:
            sys.exit(f"{missing} of {self.sweep.count} jobs are missing; see {self.sweep.folder}")


class Sweep:
    """A sweep under way: its parent run in the store, and an eye on its jobs."""

    def __init__(self, cfg: DictConfig, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count
        self._tracking: Tracking = instantiate(cfg.tracking)
        self._run = self._tracking.open(f"{cfg.name} sweep", settings(cfg), {"tpd.role": "sweep"})
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SWEEP).write_text(json.dumps({"run_id": self._run.id}))
        self._watch = JobWatch(folder, count)

    def finish(self) -> int:
        """Tell the story of the jobs; how many of them are missing."""
        self._watch.stop()
        jobs = finished_jobs(self.folder)
        with self._run:
            for group in alike(jobs):
                tell(group, self.folder / "plots", self._run)
        print(f"plots: {self.folder / 'plots'}")
        if self._tracking.ui_command():
            print(f"to look at the runs: {self._tracking.ui_command()}")
        return self.count - len(jobs)


class JobWatch:
    """Shows in the parent's terminal how many jobs have ended, whatever launched them."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(count,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _look(self, count: int) -> None:
        with ProgressBars() as bars:
            advance = bars.counter("jobs", count)
            seen = 0
            while not self._stopped.wait(SECONDS_BETWEEN_LOOKS):
                ended = len(list(self._folder.glob(f"*/{STATUS}")))
                advance(ended - seen)
                seen = ended


@dataclass(frozen=True)
class Job:
    """What a finished job left in its folder."""

    folder: Path
    config: DictConfig
    errors: pd.DataFrame | None
    explainer: Explainer

    @property
    def seed(self) -> str:
        return str(self.config.seed)


def finished_jobs(folder: Path) -> list[Job]:
    """Read the folders of a sweep, in the order in which the jobs were launched."""
    jobs = []
    for status in sorted(folder.glob(f"*/{STATUS}"), key=lambda path: int(path.parent.name)):
        if json.loads(status.read_text())["status"] != "finished":
            continue
        errors = status.with_name("errors.json")
        frame = read_errors(errors) if errors.exists() else None
        config = OmegaConf.load(status.with_name(CONFIG))
        assert isinstance(config, DictConfig)
        jobs.append(Job(status.parent, config, frame, storage.load(status.parent / "explainer")))
    return jobs


def alike(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that differ in nothing but their seed belong together."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        key = json.dumps({k: v for k, v in settings(job.config).items() if k != "seed"}, sort_keys=True)
        groups.setdefault(key, []).append(job)
    return list(groups.values())


def tell(jobs: Sequence[Job], target: Path, tracked: Run) -> None:
    """The table of mean and standard deviation, and the plots with one line per seed."""
    cfg = jobs[0].config
    label = f"{cfg.name}, {len(jobs)} seeds" if len(jobs) > 1 else f"{cfg.name}, seed {cfg.seed}"
    frames = [job.errors for job in jobs if job.errors is not None]
    if frames:
        mean, std = _mean_and_std(frames)
        show(error_table(f"Errors of {label}", mean, std, cfg.evaluation.get("reference")))
        tracked.table(mean.join(std, rsuffix="_std"), "errors.json")
        for name, frame in {"": mean, "_std": std}.items():
            values = {f"{o}/{m}{name}": float(frame.loc[o, m]) for o in frame.index for m in METRICS}
            tracked.metrics(values)
    env = instantiate(cfg.env, _convert_="all")
    for scene in scenes_from_config(cfg.figures, env):
        explainers = {job.seed: job.explainer for job in jobs}
        draw_over_seeds(scene, env, explainers, target)
        for job in jobs:
            drawn = job.folder / "plots" / f"{scene.name}.png"
            shutil.copy(drawn, target / f"{scene.name}_seed_{job.seed}.png")
    tracked.files(target, "plots")


def draw_over_seeds(scene: Scene, env: Any, explainers: Mapping[str, Explainer], target: Path) -> None:
    """A plot for each pair of a scene, its seeds grouped by strategy."""
    target.mkdir(parents=True, exist_ok=True)
    explanations = {seed: scene.explain(explainer, env) for seed, explainer in explainers.items()}
    for row, state in enumerate(scene.states):
        groups = group_by_strategy(explanations, row)
        action = scene.actions[row]
        what = action if isinstance(action, str) else env.name_of_action(action)
        title = f"{scene.title}: {env.name_of_state(state)}, action: {what}"
        figure = plots.over_seeds(title, groups, explanations, row)
        figure.savefig(target / f"{scene.name}_pair_{row + 1}_over_seeds.png", dpi=110)


def _mean_and_std(frames: Sequence[pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
    order = frames[0].index
    by_outcome = pd.concat(frames).groupby(level=0, sort=False)
    return by_outcome.mean().loc[order], by_outcome.std(ddof=1).fillna(0.0).loc[order]


def _count_jobs(overrides: Sequence[str]) -> int:
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    swept = [override for override in parsed if override.is_sweep_override()]
    return math.prod(len(list(override.sweep_string_iterator())) for override in swept)
