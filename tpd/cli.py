"""The command line. Heavy imports wait until there is work, so that --help answers at once."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import hydra

if TYPE_CHECKING:
    from omegaconf import DictConfig

_HERE = Path(__file__).resolve().parent
# in a wheel the configs lie inside the package, in a checkout beside it
CONFIG_FOLDER = _HERE / "conf" if (_HERE / "conf").is_dir() else _HERE.parent / "conf"


@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="config")
def _task(cfg: "DictConfig") -> None:
    from tpd.jobs import run_job

    run_job(cfg)


def run() -> None:
    """Run one experiment, or with -m a sweep of them."""
    try:
        _task()
    except KeyboardInterrupt:
        from tpd.sweep import Sweep

        if Sweep.current is not None:
            Sweep.current.abandon()
        sys.exit("interrupted")
