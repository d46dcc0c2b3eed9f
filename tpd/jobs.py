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

from tpd.evaluate import Errors
from tpd.experiment import build, run
from tpd.show.tables import error_table, show
from tpd.tracking.runs import Tracking

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
    tracking: Tracking = instantiate(cfg.tracking)
    OmegaConf.save(cfg, folder / CONFIG, resolve=True)
    with tracking.open(f"{cfg.name} seed {cfg.seed}", settings(cfg), {}) as tracked:
        tracked.files(folder / CONFIG)
        errors = run(parts, folder, tracked)
    if errors is not None:
        title = f"Errors of {cfg.name}, seed {cfg.seed}"
        show(error_table(title, errors.frame(), reference=parts.evaluation.reference))
        _say_overall(errors)
    print(f"plots and explainer: {folder}")
    if tracking.ui_command():
        print(f"to look at the run: {tracking.ui_command()}")


def _run_in_sweep(cfg: DictConfig, folder: Path, sweep_folder: Path) -> None:
    parts = build(cfg)
    tracking: Tracking = instantiate(cfg.tracking)
    parent = json.loads((sweep_folder / SWEEP).read_text())["run_id"]
    OmegaConf.save(cfg, folder / CONFIG, resolve=True)
    with tracking.open(f"seed {cfg.seed}", settings(cfg), {"tpd.role": "job"}, parent) as tracked:
        tracked.files(folder / CONFIG)
        run(parts, folder, tracked, progress=False)


def settings(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain values, interpolations resolved."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _say_overall(errors: Errors) -> None:
    print(
        f"known pairs: {errors.pi_known:.2%} of the policy's actions, {errors.foil_known:.2%} of the others; "
        f"the explanations favour another action than the agent in {errors.disagreement:.1%} of the visits"
    )


def _write_status(folder: Path, cfg: DictConfig, status: str, error: str | None = None) -> None:
    record = {"status": status, "seed": cfg.seed, "error": error}
    (folder / STATUS).write_text(json.dumps(record))


def _quiet_console() -> None:
    """In a sweep the terminal is the parent's; a job's log file still has everything."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.WARNING)
