"""One Hydra job: its folder, its run in the tracking store, and its messages in the terminal."""

import logging
import textwrap
import traceback
from contextlib import ExitStack
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tpd.guards.atomic import atomic_write
from tpd.run.experiment import run
from tpd.run.overview import OVERVIEW, REPORT, report_link
from tpd.run.parts import CHECKPOINT, ConfigError, Parts, blame, build, settings
from tpd.run.results import PLOTS, Findings
from tpd.show.console import show
from tpd.show.tables import band_table, error_table, forecast_table, overall, verdict_table
from tpd.sources.parquet import DatasetError
from tpd.sources.workers import exit_with_parent
from tpd.store import saved_runs
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
from tpd.tracking import notes, outbox
from tpd.tracking.runs import ENV, EXPLAINER, POLICY, SEED, THIS_RUN, Run, Tracking

log = logging.getLogger(__name__)

ROLE = "tpd.role"
LONGEST_NAME = 80
SECONDS_TO_LEAVE = 10
"""How long to wait for the folder lock, which a job of an earlier, dead sweep may still hold."""


def run_job(cfg: DictConfig) -> float | None:
    """Run a job, alone or in a sweep; a failure in a sweep does not stop the other jobs.

    Returns the mean Brier skill of its forecasts in fresh episodes, for sweepers that optimise.
    """
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if hydra.mode != RunMode.MULTIRUN:
        with ExitStack() as claim:
            with blame("hydra.run.dir"):
                claim.enter_context(locked(folder))
            try:
                return _skill(_run_alone(cfg, folder))
            except DatasetError as error:  # found while reading, long after the config was checked
                raise ConfigError(f"training: {error}") from error
    _quiet_console()
    require_own_version(folder)
    exit_with_parent(read_record(Path(hydra.sweep.dir) / SWEEP).get("pid", 0))
    mine = fingerprint(settings(cfg))
    if read_record(folder / STATUS).items() >= {"status": FINISHED, "fingerprint": mine}.items():
        log.info("seed %s is already finished", cfg.seed)
        return None
    about = {"number": hydra.job.num, "seed": cfg.seed, "fingerprint": mine}
    try:
        with locked(folder, SECONDS_TO_LEAVE):
            discard_other_run(folder / STATUS, mine)
            write_record(folder / STATUS, **about, status=RUNNING, error=None)
            findings = _run_in_sweep(cfg, folder, Path(hydra.sweep.dir))
            _finish(folder)
        return _skill(findings)
    except Exception as error:
        log.error("seed %s failed: %s\n%s", cfg.seed, error, traceback.format_exc(limit=-3))
        write_record(folder / STATUS, **about, status=FAILED, error=str(error))
        return None


def _skill(findings: Findings) -> float | None:
    return None if findings.forecasts is None else findings.forecasts.policy.mean_skill


def _run_alone(cfg: DictConfig, folder: Path) -> Findings:
    with blame("hydra.run.dir"):
        require_own_version(folder)
    known = read_record(folder / STATUS)
    about = {"command": command(), "seed": cfg.seed, "fingerprint": fingerprint(settings(cfg))}
    if known.get("status") == FINISHED:
        raise ConfigError(f"hydra.run.dir: {folder} already contains a finished run: choose another folder")
    if known and known.get("command") != about["command"]:
        raise ConfigError(
            f"hydra.run.dir: {folder} contains an unfinished run with another command: choose another folder"
        )
    parts = build(cfg)
    discard_other_run(folder / STATUS, about["fingerprint"])
    write_record(folder / STATUS, **about, status=RUNNING, error=None)
    save_config(cfg, folder)
    tracking = make_tracking(cfg)
    tags = {**chosen(cfg, HydraConfig.get()), SEED: str(parts.seed)}
    with open_run(tracking, folder, _name(cfg, parts), settings(cfg), tags) as tracked:
        tracked.files(folder / saved_runs.CONFIG)
        findings = run(parts, folder, tracked, overview=parts.overview)
        tracked.describe(_note(cfg, parts, findings, folder, tracked))
    _finish(folder)
    print(*findings.lines, sep="\n")
    if findings.errors is not None:
        title = f"Errors of {cfg.name}, seed {parts.seed}"
        show(error_table(title, findings.errors.frame(), reference=parts.evaluation.reference))
        print(overall(findings.errors.metrics()))
        if (bands := findings.errors.band_frame()) is not None:
            show(band_table(f"Bands of {cfg.name}, seed {parts.seed}, compared with rollouts", bands))
    if findings.forecasts is not None:
        frame = findings.forecasts.frame()
        title = f"Forecasts of {cfg.name}, seed {parts.seed}, compared with fresh episodes"
        show(forecast_table(title, frame))
        if parts.explainer.verdicts is not None:
            show(verdict_table(f"What {cfg.name}, seed {parts.seed}, has learned", frame))
    print(f"plots and explainer: {folder}")
    if (report := folder / OVERVIEW / REPORT).exists():
        print(f"report: {report}")
    print(f"to ask about it: tpd-explain run={folder}")
    print_address(tracking, tracked)
    return findings


def save_config(cfg: DictConfig, folder: Path) -> None:
    """Write the settings of a run or sweep as YAML, for people to read."""
    with atomic_write(folder / saved_runs.CONFIG) as unfinished:
        OmegaConf.save(cfg, unfinished, resolve=True)


def _finish(folder: Path) -> None:
    """Mark the run finished and drop its checkpoint."""
    write_record(folder / STATUS, status=FINISHED)
    (folder / CHECKPOINT).unlink(missing_ok=True)


def discard_other_run(record: Path, mine: str) -> None:
    """Discard the tracked run if it was made by the same command but with other code or other user files."""
    if read_record(record).get("fingerprint", mine) != mine:
        log.warning(
            "%s starts from the beginning: the code or the input files have changed since it was interrupted",
            record.parent,
        )
        outbox.forget(record.parent)


def _name(cfg: DictConfig, parts: Parts) -> str:
    """A short name for the run: the experiment, the seed, and the other overrides."""
    usual = ("experiment", "seed", "tracking", "hydra")
    overrides = HydraConfig.get().overrides.task
    apart = [override for override in overrides if not key_of(override).startswith(usual)]
    name = ", ".join([f"{cfg.name} seed {parts.seed}", *apart])
    return textwrap.shorten(name, LONGEST_NAME, placeholder=" …")


def _run_in_sweep(cfg: DictConfig, folder: Path, sweep_folder: Path) -> Findings:
    parts = build(cfg)
    save_config(cfg, folder)
    sweep = read_record(sweep_folder / SWEEP)
    overrides = list(HydraConfig.get().overrides.task)
    apart = [override for override in overrides if key_of(override) in sweep.get("varied", ())]
    name = ", ".join([*apart, f"seed {parts.seed}"])
    tags = {**chosen(cfg, HydraConfig.get()), SEED: str(parts.seed), ROLE: "job"}
    with open_run(make_tracking(cfg), folder, name, settings(cfg), tags, sweep.get("run_id")) as tracked:
        tracked.files(folder / saved_runs.CONFIG)
        overview = parts.overview and HydraConfig.get().job.num in sweep.get("overviews", ())
        findings = run(parts, folder, tracked, progress=False, overview=overview)
        tracked.describe(_note(cfg, parts, findings, folder, tracked))
    return findings


def print_address(tracking: Tracking, tracked: Run) -> None:
    """Print the command that shows a run, if it is tracked."""
    if tracked.id is not None:
        print(f"to view the run: {tracking.ui_command()}")
        print(f"its page: {tracking.address}/{tracked.page()}")


def key_of(override: str) -> str:
    """The key that an override of the command line sets."""
    return override.split("=")[0].lstrip("+~")


def chosen(cfg: DictConfig, hydra: HydraConf) -> dict[str, str]:
    """Tags of a run: environment, policy and explainer."""
    choices = hydra.runtime.choices
    return {ENV: str(cfg.env.id), POLICY: str(choices["policy"]), EXPLAINER: str(choices["explainer"])}


def repeat_command(hydra: HydraConf, *flags: str) -> str:
    """The command that was typed, as a shell line."""
    folders = [source.path for source in hydra.runtime.config_sources if source.provider == "command-line"]
    more = [word for folder in folders for word in ("--config-dir", folder)]
    return notes.command("To repeat it:", "tpd-run", *flags, *hydra.overrides.task, *more)


def _note(cfg: DictConfig, parts: Parts, findings: Findings, folder: Path, tracked: Run) -> list[str | Path]:
    """The description of the run in MLflow: settings, findings, figures, and the commands to try next."""
    hydra = HydraConfig.get()
    about = {name: f"**{notes.escaped(value)}**" for name, value in chosen(cfg, hydra).items()}
    lead = "What {policy} expects to happen in {env}, by the explainer {explainer}".format(**about)
    note: list[str | Path] = [notes.escaped(line) for line in findings.lines]
    note += [f"{lead}: {notes.escaped(cfg.name)}, seed {parts.seed}."]
    if (folder / OVERVIEW / REPORT).exists():
        note += [report_link(tracked, OVERVIEW)]
    if findings.errors is not None:
        note += [notes.error_table(findings.errors.frame())]
        note += [notes.escaped(line) for line in overall(findings.errors.metrics()).splitlines()]
    if findings.forecasts is not None:
        note += [notes.skill_table(findings.forecasts.frame())]
        if parts.explainer.verdicts is not None:
            note += [notes.verdict_table(findings.forecasts.frame())]
    note += [repeat_command(hydra), notes.command("To ask about it:", "tpd-explain", f"run={THIS_RUN}")]
    note += [notes.command("To serve it:", *tracked.serve_command(saved_runs.EXPLAINER))]
    return note + sorted((folder / PLOTS).glob("*.png"))


@blame("tracking")
def make_tracking(cfg: DictConfig) -> Tracking:
    """The tracking store of a config."""
    tracking: Tracking = instantiate(cfg.tracking)
    return tracking


open_run = blame("tracking")(outbox.open_run)
"""Starts a run; if the store is unavailable, it fails with one line that says so."""


def _quiet_console() -> None:
    """Log to the file only: in a sweep the terminal belongs to the parent process."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.CRITICAL)
