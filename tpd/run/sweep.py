"""A sweep (Hydra multirun): checked before it starts, watched while it runs, summarised when it ends."""

import itertools
import logging
import os
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from tpd.core.seeding import generator
from tpd.guards.files import blame as blame_file
from tpd.run import slurm
from tpd.run.job import (
    ROLE,
    chosen,
    discard_other_run,
    key_of,
    make_tracking,
    open_run,
    print_address,
    repeat_command,
    save_config,
)
from tpd.run.parts import ConfigError, blame, build, settings
from tpd.run.results import PLOTS
from tpd.run.summary import finished_jobs, launched_jobs, missing_jobs, summarise
from tpd.show.progress import ProgressBars
from tpd.store.fingerprints import fingerprint
from tpd.store.run_folders import (
    FAILED,
    FINISHED,
    RUNNING,
    STATUS,
    SWEEP,
    command,
    locked,
    read_record,
    require_own_version,
    write_record,
)
from tpd.store.saved_runs import CONFIG
from tpd.store.yaml_files import read_yaml
from tpd.tracking import notes
from tpd.tracking.delivery import deliver_all

log = logging.getLogger(__name__)

SECONDS_BETWEEN_CHECKS = 0.5
LAST_LINES = 8
BEST = "optimization_results.yaml"  # written by Optuna's sweeper


def begin(config: DictConfig, config_name: str) -> None:
    """Check all jobs before the first is launched, then start the sweep."""
    with _not_swallowed():
        plan = make_plan(config)
        plan = replace(plan, fingerprint=check(plan.jobs or [plan.fixed], config_name))
        if plan.jobs is None and not config.evaluation.forecast_episodes:
            raise ConfigError(
                "evaluation: the best job is chosen by the skill in fresh episodes, so "
                "evaluation.forecast_episodes must be 1 or more"
            )
        Sweep.current = Sweep(config, plan)


def end() -> None:
    """Summarise the jobs; exit with an error if one of them failed."""
    with _not_swallowed():
        sweep = Sweep.current
        assert sweep is not None
        missing = sweep.finish()
    if missing:
        told = f"{missing} of {len(sweep.jobs)} jobs are missing; see {sweep.folder}"
        sys.exit(told if sweep.plan.jobs is None else f"{told}; repeat the command to run them")


@contextmanager
def _not_swallowed() -> Iterator[None]:
    """Turn errors into exits: Hydra ignores an error in a callback, but not an exit."""
    try:
        yield
    except ConfigError as error:
        sys.exit(str(error))
    except HydraException as error:  # raised while composing a job; its cause says what is wrong
        lines = (str(part).splitlines()[0] for part in (error, error.__cause__) if part)
        sys.exit(" ".join(lines))
    except Exception:
        sys.exit(traceback.format_exc())


@dataclass(frozen=True)
class Plan:
    """The jobs of a sweep, as known before they are launched."""

    jobs: list[list[str]] | None
    """The overrides of each job; None if a sweeper chooses them from the results of earlier jobs."""
    fixed: list[str]
    """The overrides that all jobs share."""
    varied: list[str]
    """The keys that differ between jobs, besides the seed."""
    fingerprint: str = ""
    """Of the settings, code and files of all jobs."""

    @property
    def overviews(self) -> list[int]:
        """The numbers of the jobs that write an overview: the first seed of each group."""
        first: dict[tuple[str, ...], int] = {}
        for number, job in enumerate(self.jobs or []):
            first.setdefault(tuple(override for override in job if key_of(override) != "seed"), number)
        return list(first.values())


def make_plan(config: DictConfig) -> Plan:
    """List the jobs that Hydra's own sweeper will launch, or the settings that another one will search."""
    params = config.hydra.sweeper.get("params") or {}
    asked = [f"{key}={value}" for key, value in params.items()] + list(config.hydra.overrides.task)
    parsed = OverridesParser.create().parse_overrides(asked)
    fixed = [_setting(override) for override in parsed if not override.is_sweep_override()]
    if not str(config.hydra.sweeper._target_).endswith(".BasicSweeper"):
        swept = {override.get_key_element() for override in parsed if override.is_sweep_override()}
        return Plan(None, fixed, sorted(swept - {"seed"}))
    jobs = [list(job) for job in itertools.product(*map(_choices, parsed))]
    return Plan(jobs, fixed, varied_keys(jobs))


def _setting(override: Override) -> str:
    return f"{override.get_key_element()}={override.get_value_element_as_str()}"


def _choices(override: Override) -> list[str]:
    if not override.is_sweep_override():
        return [_setting(override)]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]


def check(jobs: Sequence[Sequence[str]], config_name: str) -> str:
    """Build the parts of every job once (seeds are only validated) and return the fingerprint of all jobs."""
    built = dict[str, str]()
    for job in jobs:
        if jobs.count(job) > 1:
            raise ConfigError(
                f"two jobs of the sweep are the same, {' '.join(job)}: remove the duplicate value"
            )
        cfg = compose(config_name, list(job))
        with blame("seed"):
            generator(cfg.seed, "policy")
        apart_from_seed = " ".join(override for override in job if not override.startswith("seed="))
        if apart_from_seed not in built:
            build(cfg)
            built[apart_from_seed] = fingerprint(settings(cfg))
    return fingerprint(built)


def varied_keys(jobs: Sequence[Sequence[str]]) -> list[str]:
    """The keys that differ between jobs, besides the seed."""
    shared = set(jobs[0]).intersection(*jobs)
    return sorted({key_of(override) for job in jobs for override in job if override not in shared} - {"seed"})


class Sweep:
    """A running sweep: its parent run in the tracking store, and a watch on its jobs."""

    current: "Sweep | None" = None
    """The sweep of this process."""

    def __init__(self, config: DictConfig, plan: Plan) -> None:
        cfg = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
        self.folder = Path(config.hydra.sweep.dir)
        self.plan, self._config = plan, config
        self._claim = ExitStack()
        with blame("hydra.sweep.dir"):
            self._claim.enter_context(locked(self.folder))
            for folder in (self.folder, *(path.parent for path in self.folder.glob(f"*/{STATUS}"))):
                require_own_version(folder)
        known = read_record(self.folder / SWEEP)
        if known and (known.get("command") != command() or known.get("status") == FINISHED):
            raise ConfigError(
                f"hydra.sweep.dir: {self.folder} already contains another or finished sweep: choose another "
                "folder"
            )
        with blame("hydra.sweep.dir"):  # jobs launched earlier that outlived their parent
            slurm.wait(self.folder)
        plain = {key: value for key, value in settings(cfg).items() if key != "seed"}
        plain["overrides"] = " ".join(config.hydra.overrides.task)
        self._tracking = make_tracking(cfg)
        groups = {key.split(".")[0] for key in plan.varied}
        tags = {} if "experiment" in groups else chosen(config, config.hydra)
        tags = {name: value for name, value in tags.items() if name not in groups}
        discard_other_run(self.folder / SWEEP, plan.fingerprint)
        write_record(
            self.folder / SWEEP,
            command=command() if plan.jobs else None,  # without a list of jobs the sweep cannot be resumed
            fingerprint=plan.fingerprint,
            pid=os.getpid(),
            status=RUNNING,
            varied=plan.varied,
            overviews=plan.overviews,
        )
        self._run = open_run(self._tracking, self.folder, f"{cfg.name} sweep", plain, {**tags, ROLE: "sweep"})
        write_record(self.folder / SWEEP, run_id=self._run.id)
        save_config(cfg, self.folder)
        self._run.files(self.folder / CONFIG)
        for status in self.folder.rglob(STATUS):
            if read_record(status).get("status") != FINISHED:
                write_record(status, status=RUNNING, error=None)
        self._watch = JobWatch(self.folder, None if plan.jobs is None else len(plan.jobs))

    @property
    def jobs(self) -> dict[int, list[str]]:
        """The overrides of its jobs by number; of those launched so far if they were not planned."""
        return launched_jobs(self.folder) if self.plan.jobs is None else dict(enumerate(self.plan.jobs))

    @property
    def under_way(self) -> bool:
        """Whether it has not been summarised yet."""
        return not self._watch.stopped.is_set()

    def finish(self) -> int:
        """Summarise the jobs and return how many are missing."""
        try:  # jobs left over when the launcher failed on one of them
            slurm.wait(self.folder)
        except TimeoutError as error:
            log.error("%s", error)
        self._watch.stop()
        deliver_all(self.folder, self._log_delivery, self._tracking.keeps_in)
        jobs = finished_jobs(self.folder)
        missing = missing_jobs(self.folder, self.jobs)
        try:
            lack = f"{len(missing)} of {len(self.jobs)} jobs missing" if missing else ""
            told = summarise(jobs, self.folder, self._run, lack) if jobs else []
            self._run.describe([*self._note(missing), *told])
            if jobs:
                print(f"plots: {self.folder / PLOTS}")
            if (self.folder / BEST).exists():
                self._run.files(self.folder / BEST)
                print(best_job(self.folder))
        except BaseException:
            self._run.end("FAILED")
            raise
        self._run.end("FAILED" if missing else "FINISHED")
        write_record(self.folder / SWEEP, status=FAILED if missing else FINISHED)
        self._claim.close()
        print_address(self._tracking, self._run)
        return len(missing)

    def _log_delivery(self, folder: Path, told: str) -> None:
        if folder != self.folder:
            log.info("%s: %s", folder, told)

    def _note(self, missing: Mapping[str, str]) -> list[str]:
        """What the sweep is, which jobs are missing, and the command that repeats it."""
        count, hydra = len(self.jobs), self._config.hydra
        note = [f"A sweep of {count} runs, of which {count - len(missing)} finished."]
        if (self.folder / BEST).exists():
            note.append(f"{notes.escaped(best_job(self.folder))}.")
        if missing:
            lines = [f"- {notes.escaped(job)}: {notes.escaped(error)}" for job, error in missing.items()]
            note.append("Missing:\n\n" + "\n".join(lines[: notes.MOST_RUNS]))
        return [*note, repeat_command(hydra, "-m")]

    def abandon(self) -> None:
        """End the runs of an interrupted sweep and cancel its jobs."""
        self._watch.stop()
        slurm.cancel(self.folder)
        self._run.abandon()
        self._claim.close()


class JobWatch:
    """Shows in the parent's terminal how many jobs have ended and why jobs failed, for any launcher."""

    def __init__(self, folder: Path, count: int | None) -> None:
        self._folder = folder
        self._log = logging.Logger(__name__)
        self._log.handlers = [*logging.getLogger().handlers]  # jobs in this process mute those of the root
        self.stopped = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(count,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Check once more, then stop."""
        self.stopped.set()
        self._thread.join()

    def _look(self, count: int | None) -> None:
        with ProgressBars() as bars:
            advance = bars.counter("jobs", count)
            ended, last = set[Path](), False
            while not last:
                last = self.stopped.wait(SECONDS_BETWEEN_CHECKS)
                for path in set(self._folder.rglob(STATUS)) - ended:
                    record = read_record(path)
                    if record.get("status") not in (FINISHED, FAILED):
                        continue
                    ended.add(path)
                    advance(1)
                    if record["status"] == FAILED:
                        seed, reason = record.get("seed"), record.get("error")
                        self._log.error("seed %s failed: %s\n%s", seed, reason, log_tail(path.parent))


def best_job(folder: Path) -> str:
    """The best settings found by the sweeper, as a sentence."""
    try:
        return read_best(folder / BEST)
    except ValueError as error:
        return f"the best settings are unknown: {error}"


def read_best(path: Path) -> str:
    """The same; raises an error for a file that cannot be read."""
    found = read_yaml(path)
    with blame_file(path):
        if not isinstance(found, dict):
            raise ValueError(f"expected an object with the best settings, got a {type(found).__name__}")
        settings = ", ".join(f"{key}={value}" for key, value in found["best_params"].items())
        return f"best: {settings}, with a mean skill of {found['best_value']:.4f}"


def log_tail(folder: Path) -> str:
    """The last lines of a job's log."""
    texts = [path.read_text(errors="replace") for path in sorted(folder.glob("*.log"))]
    lines = [line for text in texts for line in text.splitlines()][-LAST_LINES:]
    return textwrap.indent("\n".join([f"the last lines of its log, in {folder}:", *lines]), "  ")
