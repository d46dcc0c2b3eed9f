"""Datasets of transitions: their description, and an environment with their spaces that cannot be stepped."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn

import gymnasium as gym

from tpd import __version__
from tpd.envs.environment import Environment
from tpd.envs.spaces import from_plain, to_plain
from tpd.guards.atomic import atomic_write_text
from tpd.guards.files import brief
from tpd.guards.settings import shown, whole_number
from tpd.guards.versions import WRITTEN_BY, VersionError, read_versioned, require_version

DESCRIPTION = "dataset.json"
FORMAT = 2
FIRST_DESCRIPTION = "recording.json"
"""The name of the description in the first version of tpd."""


def require_writable(folder: Path, run: str = "") -> None:
    """Refuse a folder that cannot be written to, or holds a dataset of another run."""
    _require_version(folder)
    if (folder / DESCRIPTION).exists() and not (run and DatasetDescription.read(folder).run == run):
        raise ValueError(f"{folder} already contains a dataset: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"cannot write a dataset to {folder}: {error}") from error


def _require_version(folder: Path) -> None:
    """Refuse a dataset written by the first version of tpd."""
    if (folder / FIRST_DESCRIPTION).exists():
        require_version(folder / FIRST_DESCRIPTION, {})


@dataclass(frozen=True)
class DatasetDescription:
    """The description of a dataset: everything but its transitions."""

    env: str
    """The id of the environment."""
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    action_names: tuple[str, ...]
    """Empty if actions are not discrete."""
    info_keys: tuple[str, ...]
    """The keys of `info` that were stored."""
    shards: int
    """Number of files that hold the transitions."""
    behaviour: Mapping[str, Any]
    """How the transitions were collected."""
    run: str = ""
    """The fingerprint of the run that wrote the dataset."""

    def check_info(self, keys: Sequence[str]) -> None:
        """Refuse `info` keys that the dataset does not have."""
        if missing := [key for key in keys if key not in self.info_keys]:
            kept = ", ".join(self.info_keys) or "none"
            raise ValueError(
                f"an outcome reads info[{missing[0]!r}], which is not in the dataset; its info keys: {kept}"
            )

    def write(self, folder: Path) -> None:
        """Write the description to a folder, which must not hold a dataset of another run."""
        require_writable(folder, self.run)
        spaces = {name: to_plain(getattr(self, name)) for name in ("observation_space", "action_space")}
        plain = {"format": FORMAT, WRITTEN_BY: __version__, **vars(self), **spaces}
        atomic_write_text(folder / DESCRIPTION, json.dumps(plain, indent=2))

    @classmethod
    def read(cls, folder: Path) -> "DatasetDescription":
        """Read a description; anything invalid is refused with a one-line error."""
        path = folder / DESCRIPTION
        _require_version(folder)
        if not path.is_file():
            raise ValueError(f"{folder} is not a dataset: it has no {DESCRIPTION}")
        try:
            plain = read_versioned(path, "a description of a dataset")
            if plain["format"] != FORMAT:
                raise ValueError(
                    f"it has format {plain['format']!r}, but this version of tpd reads format {FORMAT}"
                )
            action_space = from_plain(plain["action_space"])
            names = _words("action_names", plain["action_names"])
            if names and not (isinstance(action_space, gym.spaces.Discrete) and action_space.n == len(names)):
                raise ValueError(f"it has {len(names)} action names, which do not fit {shown(action_space)}")
            return cls(
                env=_words("env", [plain["env"]])[0],
                observation_space=from_plain(plain["observation_space"]),
                action_space=action_space,
                action_names=names,
                info_keys=_words("info_keys", plain["info_keys"]),
                shards=whole_number("shards", plain["shards"], at_least=1),
                behaviour=dict(plain["behaviour"]),
                run=_words("run", [plain.get("run", "")])[0],
            )
        except VersionError:
            raise
        except KeyError as error:
            raise ValueError(f"{path} does not describe a dataset: {error} is missing") from error
        except Exception as error:  # any error while parsing the file
            reason = brief(error) if str(error) else "unknown space"
            raise ValueError(f"{path} does not describe a dataset: {reason}") from error


def _words(name: str, values: Any) -> tuple[str, ...]:
    """A list of strings in a description, checked."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of strings, got {shown(values)}")
    return tuple(values)


class DatasetEnv(gym.Env[Any, Any]):
    """An environment with the spaces of a dataset; it cannot be stepped."""

    def __init__(self, path: str | None = None, render_mode: str | None = None) -> None:
        if path is None:
            raise ValueError("set the folder of the dataset: training.path=…")
        description = DatasetDescription.read(Path(path).expanduser())
        self.render_mode = render_mode
        self.observation_space = description.observation_space
        self.action_space = description.action_space
        self.action_names = description.action_names
        self.description = description

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> NoReturn:
        raise RuntimeError("this environment is a dataset: it cannot be reset or stepped")

    def step(self, action: Any) -> NoReturn:
        self.reset()


@dataclass(frozen=True)
class DatasetEnvironment(Environment):
    """The environment of a dataset, which cannot be made here."""

    @property
    def playable(self) -> bool:
        return False

    def check_info(self, keys: Sequence[str]) -> None:
        """Refuse `info` keys that the dataset does not have."""
        self._probe.description.check_info(keys)
