"""One Hydra job: its folder, its run in the tracking store, and what it tells the terminal."""

import json
import logging
import traceback
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tpd.experiment import blame, build, run
from tpd.show.tables import error_table, overall, show, verification_table
from tpd.tracking.runs import Run, Tracking

log = logging.getLogger(__name__)

CONFIG, STATUS, SWEEP = "config.yaml", "status.json", "sweep.json"


def run_job(cfg: DictConfig) -> None:
    """Run alone or as one of a sweep, whose other jobs a failure must not stop."""
    hydra = HydraConfig.get()
    folder = Path(hydra.runtime.output_dir)
    if hydra.mode != RunMode.MULTIRUN:
        _run_alone(cfg, folder)
        return
    _quiet_console()
    try:
        _run_in_sweep(cfg, folder, Path(hydra.sweep.dir))
    except Exception as error:
        log.error("seed %s failed: %s\n%s", cfg.seed, error, traceback.format_exc(limit=-3))
        _write_status(folder, cfg, "failed", str(error))
    else:
        _write_status(folder, cfg, "finished")


def _run_alone(cfg: DictConfig, folder: Path) -> None:
    parts = build(cfg)
    OmegaConf.save(cfg, folder / CONFIG, resolve=True)
    tracking = make_tracking(cfg)
    with open_run(tracking, f"{cfg.name} seed {parts.seed}", settings(cfg), {}) as tracked:
        tracked.files(folder / CONFIG)
        findings = run(parts, folder, tracked)
    if findings.errors is not None:
        title = f"Errors of {cfg.name}, seed {parts.seed}"
        show(error_table(title, findings.errors.frame(), reference=parts.evaluation.reference))
        print(overall(findings.errors.metrics()))
    if findings.verification is not None:
        title = f"Forecasts of {cfg.name}, seed {parts.seed}, against what happened"
        show(verification_table(title, findings.verification.frame()))
    print(f"plots and explainer: {folder}")
    if tracking.ui_command():
        print(f"to look at the run: {tracking.ui_command()}")


def _run_in_sweep(cfg: DictConfig, folder: Path, sweep_folder: Path) -> None:
    parts = build(cfg)
    OmegaConf.save(cfg, folder / CONFIG, resolve=True)
    parent = json.loads((sweep_folder / SWEEP).read_text())["run_id"]
    name, tags = f"seed {parts.seed}", {"tpd.role": "job"}
    with open_run(make_tracking(cfg), name, settings(cfg), tags, parent) as tracked:
        tracked.files(folder / CONFIG)
        run(parts, folder, tracked, progress=False)


def make_tracking(cfg: DictConfig) -> Tracking:
    """What keeps the runs."""
    with blame("tracking"):
        tracking: Tracking = instantiate(cfg.tracking)
        return tracking


def open_run(
    tracking: Tracking,
    name: str,
    config: dict[str, Any],
    tags: dict[str, str],
    parent: str | None = None,
) -> Run:
    """Start a run, refusing a store that cannot be had in one line."""
    with blame("tracking"):
        return tracking.open(name, config, tags, parent)


def settings(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain values, interpolations resolved."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _write_status(folder: Path, cfg: DictConfig, status: str, error: str | None = None) -> None:
    record = {"status": status, "number": HydraConfig.get().job.num, "seed": cfg.seed, "error": error}
    (folder / STATUS).write_text(json.dumps(record))


def _quiet_console() -> None:
    """In a sweep the terminal is the parent's; a job's log file still has everything."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.WARNING)
