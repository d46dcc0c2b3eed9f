"""Where the configs lie, and how they are composed: by `tpd-run`, or from Python."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from tpd.store.run_folders import resume_folder

_PACKAGE = Path(__file__).resolve().parents[1]
# in a wheel the configs lie inside the package, in a checkout beside it
CONFIG_FOLDER = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"

OmegaConf.register_new_resolver("resume_folder", resume_folder, use_cache=True, replace=True)
OmegaConf.register_new_resolver("twice", lambda number: 2 * number, replace=True)


def composed(overrides: Sequence[str]) -> DictConfig:
    """The config of a run with these overrides, also inside of another Hydra application."""
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            return compose("config", list(overrides))
    finally:
        GlobalHydra.instance().hydra = outer


def group(name: str, option: str) -> DictConfig:
    """One option of a config group by itself, for example `policy/sb3_zip`."""
    config = OmegaConf.load(CONFIG_FOLDER / name / f"{option}.yaml")
    assert isinstance(config, DictConfig)
    return config
