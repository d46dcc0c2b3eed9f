"""Datasets of transitions: their description, and an environment that has spaces and cannot be stepped."""

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
from tpd.guards.files import brief, read_json
from tpd.guards.settings import shown, whole_number
from tpd.guards.versions import WRITTEN_BY, VersionError, require_version

DESCRIPTION = "dataset.json"
FORMAT = 2
FIRST_DESCRIPTION = "recording.json"
"""What the first version of tpd called it."""


def require_writable(folder: Path, run: str = "") -> None:
    """Refuse a folder that holds a dataset, but for one of the same run, or cannot be written to."""
    _require_version(folder)
    if (folder / DESCRIPTION).exists() and not (run and DatasetDescription.read(folder).run == run):
        raise ValueError(f"{folder} holds a dataset already: name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ValueError(f"no dataset can be written to {folder}: {error}") from error


def _require_version(folder: Path) -> None:
    """Refuse a dataset that the first version of tpd wrote."""
    if (folder / FIRST_DESCRIPTION).exists():
        require_version(folder / FIRST_DESCRIPTION, {})


@dataclass(frozen=True)
class DatasetDescription:
    """What a dataset says of itself, besides its transitions."""

    env: str
    """The id of the environment."""
    observation_space: gym.Space[Any]
    action_space: gym.Space[Any]
    action_names: tuple[str, ...]
    """Empty where actions are not numbered."""
    info_keys: tuple[str, ...]
    """The entries of `info` that were kept."""
    shards: int
    """How many files the transitions are divided into."""
    behaviour: Mapping[str, Any]
    """How the transitions were collected."""
    run: str = ""
    """The fingerprint of the run that wrote it."""

    def write(self, folder: Path) -> None:
        """Make the folder, which must not hold another dataset yet."""
        require_writable(folder, self.run)
        folder.mkdir(parents=True, exist_ok=True)
        spaces = {
            "observation_space": to_plain(self.observation_space),
            "action_space": to_plain(self.action_space),
        }
        plain = {"format": FORMAT, WRITTEN_BY: __version__, **vars(self), **spaces}
        atomic_write_text(folder / DESCRIPTION, json.dumps(plain, indent=2))

    @classmethod
    def read(cls, folder: Path) -> "DatasetDescription":
        """Read what `write` wrote, refusing in one line what is no such thing."""
        path = folder / DESCRIPTION
        _require_version(folder)
        if not path.is_file():
            raise ValueError(f"{folder} holds no dataset: there is no {DESCRIPTION} in it")
        try:
            plain = read_json(path)
            require_version(path, plain)
            if plain["format"] != FORMAT:
                raise ValueError(f"it has format {plain['format']!r}, this is for {FORMAT}")
            action_space = from_plain(plain["action_space"])
            names = _words("action_names", plain["action_names"])
            if names and not (isinstance(action_space, gym.spaces.Discrete) and action_space.n == len(names)):
                raise ValueError(f"it names {len(names)} actions of {shown(action_space)}")
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
            raise ValueError(f"{path} describes no dataset: it does not say {error}") from error
        except Exception as error:  # of whatever is made of the file
            reason = brief(error) if str(error) else "no such space"
            raise ValueError(f"{path} describes no dataset: {reason}") from error


def _words(name: str, values: Any) -> tuple[str, ...]:
    """The words that a description has under a name."""
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be words, got {shown(values)}")
    return tuple(values)


class DatasetEnv(gym.Env[Any, Any]):
    """Has the spaces of the environment that the dataset is of, and refuses to be stepped."""

    def __init__(self, path: str | None = None, render_mode: str | None = None) -> None:
        if path is None:
            raise ValueError("name the folder of the dataset: training.path=…")
        description = DatasetDescription.read(Path(path).expanduser())
        self.render_mode = render_mode
        self.observation_space = description.observation_space
        self.action_space = description.action_space
        self.action_names = description.action_names
        self.info_keys = description.info_keys

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> NoReturn:
        raise RuntimeError("there is a dataset of this environment and nothing to step: no episode can start")

    def step(self, action: Any) -> NoReturn:
        self.reset()


@dataclass(frozen=True)
class DatasetEnvironment(Environment):
    """Stands for an environment that nobody can make here."""

    @property
    def playable(self) -> bool:
        return False

    def check_info(self, keys: Sequence[str]) -> None:
        """Refuse keys that the dataset does not have."""
        for key in keys:
            if key not in self._probe.info_keys:
                kept = ", ".join(self._probe.info_keys) or "none"
                raise ValueError(f"the dataset has no info[{key!r}], only {kept}")
