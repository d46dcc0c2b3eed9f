"""The function that Hydra calls for each job, and its callbacks around a run or a sweep."""

import errno
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from hydra.types import RunMode

from tpd.guards.terminal import as_text
from tpd.run.configs import CONFIG_FOLDER

if TYPE_CHECKING:
    from omegaconf import DictConfig

log = logging.getLogger(__name__)

NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


class TextRecord(logging.LogRecord):
    """A log record whose message is printable text only."""

    def getMessage(self) -> str:  # noqa: N802
        return as_text(super().getMessage())


class SweepCallback(Callback):
    """Hydra's callback around a run or a multirun."""

    made: Path | None = None
    """The folder that was made for the run; None if it existed before."""

    def on_run_start(self, config: "DictConfig", **kwargs: Any) -> None:
        from tpd.guards.files import require_own_files

        folder = Path(config.hydra.run.dir)
        try:
            if not folder.exists():
                SweepCallback.made = folder
            folder.mkdir(parents=True, exist_ok=True)
            require_own_files(folder)  # checked before Hydra opens its log there
        except OSError as error:
            sys.exit(f"hydra.run.dir: the folder of the run cannot be created ({error})")
        except ValueError as error:
            sys.exit(f"hydra.run.dir: {error}")

    def on_multirun_start(self, config: "DictConfig", **kwargs: Any) -> None:
        log.info("%s sweep: loading libraries", config.name)
        from tpd.run import sweep

        sweep.begin(config, str(kwargs["config_name"]))

    def on_multirun_end(self, config: "DictConfig", **kwargs: Any) -> None:
        from tpd.run import sweep

        sweep.end()


@hydra.main(version_base="1.3", config_path=str(CONFIG_FOLDER), config_name="config")
def task(cfg: "DictConfig") -> float | None:
    if HydraConfig.get().mode != RunMode.MULTIRUN:  # in a sweep the terminal belongs to the parent process
        log.info("%s, seed %s: loading libraries", cfg.name, cfg.seed)
    from tpd.core.outcomes import OutcomeError
    from tpd.envs.environment import MaskError
    from tpd.guards.sizes import TooLargeError
    from tpd.run.job import run_job
    from tpd.run.parts import ConfigError
    from tpd.sources.stepping import StepError
    from tpd.store.run_folders import remove_unstarted

    try:
        return run_job(cfg)
    except (ConfigError, TooLargeError, OutcomeError, MaskError, StepError) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        if SweepCallback.made is not None:
            remove_unstarted(SweepCallback.made)
        sys.exit(str(error))
    except OSError as error:
        if error.errno not in NO_PLACE:
            raise
        sys.exit(f"{error}; free some disk space, then repeat the command to resume")
