"""Where the configs are stored and how they are composed, for `tpd-run` and from Python."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from tpd.guards.settings import did_you_mean, shown
from tpd.store.run_folders import resume_folder

_PACKAGE = Path(__file__).resolve().parents[1]
ENOUGH_TRANSITIONS = 200_000
EXTRAS = {
    "hydra/sweeper/optuna": "optuna",
    "hydra/launcher/ray": "ray",
    "hydra/launcher/submitit": "cluster",
}
"""Hydra plugins, and the extras of this package that install them."""
# a wheel has the configs inside the package, a checkout beside it
CONFIG_FOLDER = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"

OmegaConf.register_new_resolver("resume_folder", resume_folder, use_cache=True, replace=True)
OmegaConf.register_new_resolver("twice", lambda number: 2 * number, replace=True)


def fewer_updates(updates: int, transitions: float | None) -> int:
    """Scale the number of updates by the square root of the transitions, below 200,000 of them."""
    if not isinstance(transitions, int | float) or not 0 < transitions < ENOUGH_TRANSITIONS:
        return updates
    return math.ceil(updates * math.sqrt(transitions / ENOUGH_TRANSITIONS))


OmegaConf.register_new_resolver("fewer_updates", fewer_updates, replace=True)

HYDRA_FLAGS = {
    option for action in get_args_parser()._actions for option in action.option_strings if option[:2] == "--"
}


class SettingError(ValueError):
    """An unknown setting, or one that cannot be parsed."""


def composed(overrides: Sequence[str]) -> DictConfig:
    """Compose the config of a run with these overrides; also works inside another Hydra application."""
    try:
        return _composed(overrides)
    except HydraException as error:
        said = " ".join(str(error).split()).partition(" Config search path")[0]
        raise SettingError(_not_installed(said) or _unknown(overrides) or said) from error


def _not_installed(said: str) -> str:
    """Name the extra that installs the plugin missing in Hydra's error message; empty for other errors."""
    plugin = next((plugin for plugin in EXTRAS if f"'{plugin}" in said), None)
    if plugin is None:
        return ""
    extra = EXTRAS[plugin]
    return f"{plugin} is not installed; install the extra {extra!r}: pip install 'tpd[{extra}]'"


def check(words: Sequence[str]) -> None:
    """Refuse unknown settings, files and environments of `tpd-run`, before Hydra and slow libraries load.

    For a sweep, only the first value of each setting is checked. With flags other than -m, Hydra does all
    checks.
    """
    flags = {word for word in words if word.startswith("-")}
    for word in flags:
        if word.startswith("--") and word.partition("=")[0] not in HYDRA_FLAGS:
            raise SettingError(f"{word}: settings are written without dashes: {word.lstrip('-')}")
    if flags <= {"-m", "--multirun"}:
        overrides = [word for word in words if not word.startswith("-")]
        config = composed(_first_values(overrides) if flags else overrides)
        _check_numbers(overrides, config)
        _check_agent(config.policy)
        _check_env(config.env)


def _check_numbers(overrides: Sequence[str], config: DictConfig) -> None:
    """Refuse text for a setting whose default is a number in every config that has one."""
    for key in (word.partition("=")[0] for word in overrides):
        group, _, name = key.partition(".")
        files = [(file, name) for file in (CONFIG_FOLDER / group).glob("*.yaml") if name]
        if isinstance(value := OmegaConf.select(config, key), str):
            found = [_default(*place) for place in files or [(CONFIG_FOLDER / "config.yaml", key)]]
            if {*map(type, found)} - {type(None)} in ({int}, {float}, {int, float}):
                raise SettingError(f"{key} must be a number, got {shown(value)}")


def _default(file: Path, key: str) -> Any:
    """The value of a key in a config file; None if it has none, or one that other files determine."""
    return OmegaConf.select(OmegaConf.load(file), key, throw_on_resolution_failure=False)


def _check_agent(policy: DictConfig | None) -> None:
    """Refuse the path of an agent that does not exist; the ending .zip may be left out."""
    path = policy.get("path") if isinstance(policy, DictConfig) else None
    if isinstance(path, str) and not any(Path(f"{path}{end}").expanduser().exists() for end in ("", ".zip")):
        raise SettingError(f"policy: {path}: there is no such file or folder")


def _check_env(env: DictConfig | None) -> None:
    """Refuse an id that is not registered; an id with a module is checked when the module is imported."""
    if not isinstance(env, DictConfig) or env.get("_target_") != "tpd.envs.Environment":
        return
    if OmegaConf.is_missing(env, "id"):
        raise SettingError("env: set the environment of the agent, env.id=...")
    if ":" in str(env.id):
        return
    import gymnasium  # not needed for --help

    import tpd.envs  # noqa: F401  # registers its own

    try:
        gymnasium.spec(str(env.id))
    except gymnasium.error.Error as error:
        near = did_you_mean(str(env.id), gymnasium.registry)
        raise SettingError(f"env: Gymnasium has no environment {env.id!r}{near}") from error


def _first_values(overrides: Sequence[str]) -> list[str]:
    """The overrides of the first job of a sweep, without those that only the sweeper understands."""
    first = list[str]()
    for word in overrides:
        try:
            (parsed,) = OverridesParser.create().parse_overrides([word])
        except HydraException:  # reported when the config is composed
            first.append(word)
            continue
        if not parsed.is_sweep_override():
            first.append(word)
        elif parsed.is_discrete_sweep() and "glob(" not in word:
            first.append(f"{parsed.key_or_group}={next(parsed.sweep_string_iterator())}")
    return first


def _unknown(overrides: Sequence[str]) -> str:
    """Error message for the first unknown setting; empty if all are known."""
    options = {
        str(folder.relative_to(CONFIG_FOLDER)): sorted(file.stem for file in folder.glob("*.yaml"))
        for folder in CONFIG_FOLDER.rglob("*")
        if folder.is_dir()
    }
    pairs = [(word, *word.partition("=")[::2]) for word in overrides]
    chosen = [word for word, key, value in pairs if value in options.get(key, ())]
    try:
        settings = OmegaConf.to_container(_composed(chosen, with_hydra=True))
    except HydraException:  # the error is in an experiment file
        return ""
    known = {*_keys(settings), *options}  # type: ignore[arg-type]
    named = [key for key in known if not key.rpartition(".")[2].startswith("_")]
    for word, key, value in pairs:
        if word.startswith(("+", "~", "hydra/")) or "@" in key:
            continue
        if "=" not in word:
            near = "" if word in known else did_you_mean(word, named)
            return f"{word}: expected key=value{near}"
        if key in options and value not in options[key]:
            near, every = did_you_mean(value, options[key]), ", ".join(options[key])
            return f"{key}={value}: there is no such {key}; the options are {every}{near}"
        if key not in known:
            hydras = key.startswith("hydra")
            near = did_you_mean(key, [name for name in named if name.startswith("hydra") == hydras])
            return f"{key}: there is no such setting (--help lists all){near}"
    return ""


def _keys(settings: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """The names of all settings, nested keys joined by dots."""
    for key, value in settings.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _composed(overrides: Sequence[str], with_hydra: bool = False) -> DictConfig:
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = None
    try:
        with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            return compose("config", list(overrides), return_hydra_config=with_hydra)
    finally:
        GlobalHydra.instance().hydra = outer


def group(name: str, option: str) -> DictConfig:
    """One option of a config group by itself, for example `policy/sb3_zip`."""
    config = OmegaConf.load(CONFIG_FOLDER / name / f"{option}.yaml")
    assert isinstance(config, DictConfig)
    return config
