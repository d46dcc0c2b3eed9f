"""Reads the folders of RL Zoo agents without running anything in them.

`logs/ppo/CartPole-v1_1/` holds `CartPole-v1.zip` and a folder `CartPole-v1/` with `config.yml`, `args.yml`
and `vecnormalize.pkl`; on the Hugging Face Hub all of these are in one folder.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sb3_ext.zoo_wrappers import Layer, Wrapper, class_of, is_same, layers_of, typed, word
from tpd.envs import Environment
from tpd.envs.made import MadeEnvironment
from tpd.guards.files import blame, require_file
from tpd.guards.settings import whole_number
from tpd.store.descriptions import described, modest, plain, require_no_files
from tpd.store.yaml_files import read_yaml

CONFIG, ARGS = "config.yml", "args.yml"
STATISTICS = ("vecnormalize.pkl", "vec_normalize.pkl")
"""The file name in the Zoo, and on the Hugging Face Hub."""
BEST, METRICS = "best_model.zip", "train_eval_metrics.zip"
LARGEST_YAML, LONGEST_LITERAL = 2**16, 2000
PYTHON, ORDERED = "tag:yaml.org,2002:python/", "object/apply:collections.OrderedDict"
ENV_ID = re.compile(r"[A-Za-z0-9_./-]{1,300}")
RENDER_MODE, TIME_LIMIT = "render_mode", "max_episode_steps"
OWN_ENV = "pass as env a function that creates the environment with them"


@dataclass(frozen=True)
class ZooFolder:
    """The files of an agent's folder, and the environment that the agent was trained in."""

    zip: Path
    vec_normalize: Path | None
    """The statistics; None if the config says that nothing was normalised."""
    env_id: str | None
    """None if it is unknown, or names a module to import."""
    env_kwargs: Mapping[str, Any]
    """Plain values, without rendering options."""
    wrappers: tuple[Wrapper, ...]
    """Each a class, or a partial with keyword arguments; the first one innermost."""
    max_episode_steps: int | None = None
    """From the environment's keyword arguments; None: the registered time limit."""


def read_zoo_folder(path: Path) -> ZooFolder:
    """Read a folder; a ValueError says what is missing or cannot be reproduced."""
    folder, layers = _read(path)
    if refused := [str(layer) for layer in layers if layer.wrapper is None]:
        raise ValueError(
            f"{path}: the agent was trained with the wrappers {', '.join(refused)}, which cannot be applied "
            f"here: {OWN_ENV}"
        )
    return replace(folder, wrappers=tuple(layer.made() for layer in layers))


def zoo_environment(path: str | None, id: str | None) -> Environment:
    """The environment that the agent of a folder was trained in; `id` replaces its id."""
    if path is None:
        raise ValueError("set the folder of the agent: policy.path=...")
    folder = read_zoo_folder(Path(path).expanduser())
    if (name := id or folder.env_id) is None:
        raise ValueError(f"{path} does not contain the id of its environment: set it (env.id=...)")
    return Environment(name, dict(folder.env_kwargs), folder.max_episode_steps, wrappers=folder.wrappers)


def zoo_agent(path: Path, env: Environment) -> ZooFolder:
    """The folder of an agent for this environment; refused if the agent was trained in another one.

    Wrappers are compared by class. Keyword arguments that the Zoo does not name are up to the user, and so is
    an environment that a function makes.
    """
    folder, layers = _read(path)
    if isinstance(env, MadeEnvironment):
        return folder
    present = [class_of(wrapper) for wrapper in env.wrappers]
    if absent := [layer for layer in layers if not any(is_same(layer, wrapper) for wrapper in present)]:
        listed = ", ".join(map(str, absent))
        advice = "use an environment that has it"
        if all(layer.wrapper is not None for layer in layers):
            advice = f"++env.wrappers=[{', '.join(map(typed, layers))}]"
        raise ValueError(
            f"{path}: the agent was trained with {listed}, which {env.id} does not have, so it would get "
            f"other observations: {advice}"
        )
    overrides = [
        f"++env.kwargs.{key}={word(value)}"
        for key, value in folder.env_kwargs.items()
        if key not in env.kwargs or plain(env.kwargs[key]) != value
    ]
    if folder.max_episode_steps not in (None, env.max_episode_steps):
        overrides.append(f"++env.{TIME_LIMIT}={folder.max_episode_steps}")
    if overrides:
        raise ValueError(
            f"{path}: the agent was trained with other settings of its environment: set "
            f"{' '.join(overrides)}, or pass the zip instead of the folder to use the agent in this one"
        )
    return folder


def _read(path: Path) -> tuple[ZooFolder, list[Layer]]:
    """The contents of a folder, still without wrappers, and the layers around its environment."""
    parameters = _parameters(path)
    config, args = (_settings(parameters / name) for name in (CONFIG, ARGS))
    name = args.get("env")
    zipped = _agent(path, parameters, name, args.get("algo"))
    with blame(parameters / CONFIG):
        kwargs = _keywords(config.get("env_kwargs"))
        layers = layers_of(config)
        normalised = _normalised(config)
    with blame(parameters / ARGS):
        kwargs |= _keywords(args.get("env_kwargs"))
    kwargs.pop(RENDER_MODE, None)
    given = zipped.stem if name is None and zipped.name != BEST else name
    found = ZooFolder(
        zip=zipped,
        vec_normalize=_statistics(path, parameters, normalised),
        env_id=given if isinstance(given, str) and ENV_ID.fullmatch(given) else None,
        max_episode_steps=kwargs.pop(TIME_LIMIT, None),
        env_kwargs=kwargs,
        wrappers=(),
    )
    return found, layers


# Which file is which


def _zips(path: Path) -> list[Path]:
    return sorted(file for file in path.glob("*.zip") if file.name != METRICS and file.is_file())


def _parameters(path: Path) -> Path:
    """The folder with config.yml or args.yml: beside the zip, or one level below."""
    if not path.is_dir():
        raise ValueError(f"{path}: there is no such folder")
    folders = [path, *sorted(inner for inner in path.iterdir() if inner.is_dir())]
    folders = [inner for inner in folders if any((inner / name).exists() for name in (CONFIG, ARGS))]
    stems = {file.stem for file in _zips(path)}
    if len(folders) > 1:
        folders = [inner for inner in folders if inner.name in stems] or folders
    if not stems or not folders:
        lacks = f"{CONFIG} or {ARGS}" if stems else "zip of an agent"
        inner = [each for each in sorted(path.iterdir()) if each.is_dir() and _zips(each)]
        near = f"; did you mean {_names(inner)}?" if inner and not stems else ""
        raise ValueError(f"{path}: not the folder of an RL-Zoo agent, it has no {lacks}{near}")
    if len(folders) > 1:
        raise ValueError(f"{path}: has parameters of several agents, {_names(folders)}: pass the zip of one")
    return folders[0]


def _agent(path: Path, parameters: Path, env: Any, algorithm: Any) -> Path:
    """The zip named like the environment or the folder; otherwise the only zip, or else the best model."""
    zips = _zips(path)
    stems = {path.name, re.sub(r"_\d+$", "", path.name)}
    if parameters != path:
        stems.add(parameters.name)
    if isinstance(env, str):
        name = env.replace("/", "-")
        stems |= {name, f"{algorithm}-{name}"}
    chosen = [file for file in zips if file.stem in stems] or zips
    if len(chosen) > 1:
        chosen = [file for file in chosen if file.name == BEST] or chosen
    if len(chosen) > 1:
        raise ValueError(f"{path}: has several agents, pass the zip of one: {_names(chosen)}")
    return chosen[0]


def _statistics(path: Path, parameters: Path, normalised: bool | None) -> Path | None:
    """The observation statistics; required if observations were normalised (None: unknown)."""
    if normalised is False:
        return None
    places = (folder / name for folder in (parameters, path) for name in STATISTICS)
    found = next((file for file in places if file.is_file()), None)
    if found is None and normalised:
        raise ValueError(
            f"{parameters / STATISTICS[0]}: there is no such file, but {CONFIG} says that observations were "
            "normalised: copy the file there, or pass the zip of the agent, and vec_normalize=..."
        )
    return found


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(path.name for path in paths)


# What the files say


class _ZooLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Loads plain values and OrderedDicts; no other Python objects are created."""


def _pairs(loader: _ZooLoader, suffix: str, node: yaml.Node) -> dict[Any, Any]:
    if suffix != ORDERED or not isinstance(node, yaml.SequenceNode):
        raise ValueError(f"!!python/{suffix} would create a Python object; only OrderedDict is allowed")
    given = loader.construct_sequence(node, deep=True)
    pairs = given[0] if len(given) == 1 else None
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError("an OrderedDict must be a list of pairs")
    if not all(isinstance(key, str) for key, _ in pairs):
        raise ValueError("the keys of an OrderedDict must be strings")
    return dict(pairs)


_ZooLoader.add_multi_constructor(PYTHON, _pairs)


def _settings(path: Path) -> dict[str, Any]:
    """The values of a file; empty if it does not exist."""
    if not path.exists() and not path.is_symlink():
        return {}
    require_file(path, LARGEST_YAML)
    found = read_yaml(path, _ZooLoader)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{path}: expected an object with settings")
    return found


def _literal(text: str) -> Any:
    """Parse a Python literal; also `dict(a=1)`, which the Zoo uses."""
    try:
        if len(text) > LONGEST_LITERAL:
            raise ValueError("it is too long")
        tree = ast.parse(text.strip(), mode="eval").body
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "dict":
            if tree.args or any(word.arg is None for word in tree.keywords):
                raise ValueError("dict must have keyword arguments only")
            return {str(word.arg): ast.literal_eval(word.value) for word in tree.keywords}
        return ast.literal_eval(tree)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
        raise ValueError(
            f"expected a Python literal or dict(...) of literals, of at most {LONGEST_LITERAL} characters, "
            f"got {text[:80]!r}"
        ) from error


def _keywords(given: Any) -> dict[str, Any]:
    """Keyword arguments of an environment as plain values."""
    value = _literal(given) if isinstance(given, str) else given
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"env_kwargs must be a dict, got {str(value)[:80]!r}")
    for key in ("id", "env_id"):
        if ":" in str(value.get(key, "")):  # Gymnasium would import the module before the colon
            raise ValueError(f"env_kwargs has {key}={str(value[key])[:80]!r}, which names a module to import")
    if value.get(TIME_LIMIT) is not None:
        value = {**value, TIME_LIMIT: whole_number(TIME_LIMIT, value[TIME_LIMIT], at_least=1)}
    kwargs = modest(described({key: part for key, part in value.items() if key != RENDER_MODE}))
    require_no_files(kwargs)
    return kwargs


def _normalised(config: Mapping[str, Any]) -> bool | None:
    """Whether observations were normalised; None without a config."""
    if not config:
        return None
    given = config.get("normalize")
    value = _literal(given) if isinstance(given, str) else given
    if isinstance(value, dict):
        value = value.get("norm_obs", True)
    if value is not None and not isinstance(value, bool):
        raise ValueError(
            "normalize must be true, false or a dict whose norm_obs, if given, is true or false; got "
            f"{str(given)[:80]!r}"
        )
    return bool(value)
