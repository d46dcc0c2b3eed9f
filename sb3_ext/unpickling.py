"""Reads the zips of saved agents into plain data, without running anything in them."""

import itertools
import json
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sb3_ext.weights import Weights, read_weights
from tpd.guards.files import no_file, require_plain_zip

LARGEST_SETTINGS = 16 * 2**20
LARGEST_WEIGHTS = 2 * 2**30
LONGEST_LINE = 600
MUCH = 200 * 2**20
LARGEST_COMPRESSION = 200  # weights hardly compress, and JSON compresses less than this

BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError)


@dataclass(frozen=True)
class SavedAgent:
    """The plain parts of a zip written by `model.save`."""

    settings: dict[str, Any]
    """The JSON beside the weights; pickled values are still text in it."""
    weights: Weights
    """Named as in the current version of Stable-Baselines3."""

    def class_name(self, setting: str) -> str:
        """The module and, if one of its methods shows it, the name of a pickled class."""
        saved = self.settings.get(setting)
        if not isinstance(saved, dict):
            return ""
        own = re.match(r"<function (\w+)\.", str(saved.get("__init__")))
        return f"{saved.get('__module__')}.{own[1] if own else ''}"

    def layers(self, network: str) -> list[int]:
        """[layer]: number of outputs of each linear layer of a network."""
        names = [name for name in self.weights if re.fullmatch(rf"{re.escape(network)}\.\d+\.weight", name)]
        names.sort(key=lambda name: int(name.split(".")[-2]))
        shapes = [list(self.weights[name].shape) for name in names if self.weights[name].dim() == 2]
        if any(before[0] != after[1] for before, after in itertools.pairwise(shapes)):
            raise ValueError(f"has layers in {network} whose shapes do not fit each other: {shapes}")
        return [shape[0] for shape in shapes]


def one_line(path: Path | str, error: ValueError) -> str:
    """An error message for a file, on one line of bounded length."""
    line = " ".join(f"{path}: {error}".split())
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}"


def read_agent(path: Path) -> SavedAgent:
    """The settings and weights of a zip; a ValueError says what is wrong with it."""
    if not path.is_file():
        raise ValueError(no_file(path))
    try:
        with zipfile.ZipFile(path) as archive:
            if missing := {"data", "policy.pth"} - set(archive.namelist()):
                raise ValueError(f"is not a saved SB3 agent, or truncated: it lacks {sorted(missing)}")
            settings = _entry(archive, "data", LARGEST_SETTINGS)
            weights = _entry(archive, "policy.pth", LARGEST_WEIGHTS)
    except BROKEN as error:
        raise ValueError(f"is not a zip file, or it is corrupted ({error})") from error
    return SavedAgent(_settings(settings), _renamed(_weights(weights)))


def _entry(archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    entry = archive.getinfo(name)
    require_plain_zip([entry])
    held = entry.compress_size
    most = min(largest, LARGEST_COMPRESSION * max(held, 1024), max(MUCH, 2 * held))
    if entry.file_size > most:
        raise ValueError(f"its entry '{name}' is too large, {entry.file_size} bytes unpacked (limit {most})")
    return archive.read(entry)


def _settings(content: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"its entry 'data' is not valid JSON ({error}), so it is damaged or not an SB3 agent"
        ) from error
    if not isinstance(settings, dict):
        raise ValueError(f"its entry 'data' is a {type(settings).__name__}, expected an object with settings")
    return settings


def _weights(content: bytes) -> Weights:
    try:
        weights = read_weights(content)
    except ValueError as error:
        raise ValueError(f"its entry 'policy.pth' {error}") from error
    except BROKEN as error:
        raise ValueError(f"its entry 'policy.pth' is corrupted ({type(error).__name__})") from error
    if endless := [name for name, weight in weights.items() if not weight.isfinite().all()]:
        raise ValueError(f"its weights {endless[0]} are not finite")
    return weights


def _renamed(weights: Weights) -> Weights:
    """Weights of old or compiled policies under their current names."""
    critics = {"q1_net": "qf0", "q2_net": "qf1"}
    renamed: Weights = {}
    for name, weight in weights.items():
        parts = [critics.get(part, part) for part in name.split(".") if part != "_orig_mod"]
        renamed[".".join(parts)] = weight
    return _unshared(renamed)


def _unshared(weights: Weights) -> Weights:
    """Copy layers that actor and critic shared before SB3 1.8 to both, as their first layers."""
    layer = re.compile(r"mlp_extractor\.(shared|policy|value)_net\.(\d+)\.(\w+)")
    places = {name: found for name in weights if (found := layer.fullmatch(name))}
    shared = [int(found[2]) for found in places.values() if found[1] == "shared"]
    # each layer is followed by its activation, which counts as a layer too
    depth = max(shared) // 2 * 2 + 2 if shared else 0
    unshared: Weights = {}
    for name, weight in weights.items():
        if found := places.get(name):
            nets = ("policy", "value") if found[1] == "shared" else (found[1],)
            index = int(found[2]) + (0 if found[1] == "shared" else depth)
            for net in nets:
                unshared[f"mlp_extractor.{net}_net.{index}.{found[3]}"] = weight
        else:
            unshared[name] = weight
    return unshared
