"""Files that others wrote, read into plain data: nothing in them is run."""

import io
import itertools
import json
import pickle
import pickletools
import re
import struct
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from tpd.core.types import Array

LARGEST_SETTINGS = 64 * 2**20
LARGEST_WEIGHTS = 2 * 2**30
LARGEST_PICKLE = 256 * 2**20
LONGEST_LINE = 600
LARGEST_COMPRESSION = 200  # weights hardly compress, JSON not by that much
LARGEST_REUSE = 4  # a shared extractor's weights go by three names: its own, the actor's, the critic's

BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, OverflowError, RuntimeError)

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class SavedAgent:
    """What a zip of `model.save` says in plain words."""

    settings: dict[str, Any]
    """The JSON beside the weights; what was pickled is still text in it."""
    weights: Weights
    """By the names of today's Stable-Baselines3."""

    def class_name(self, setting: str) -> str:
        """The module and, where a method of its own shows it, the name of a class that was pickled."""
        saved = self.settings.get(setting)
        if not isinstance(saved, dict):
            return ""
        own = re.match(r"<function (\w+)\.", str(saved.get("__init__")))
        return f"{saved.get('__module__')}.{own[1] if own else ''}"

    def layers(self, network: str) -> list[int]:
        """[layer]: how many outputs each linear layer of a network has."""
        names = [name for name in self.weights if re.fullmatch(rf"{re.escape(network)}\.\d+\.weight", name)]
        names.sort(key=lambda name: int(name.split(".")[-2]))
        shapes = [list(self.weights[name].shape) for name in names if self.weights[name].dim() == 2]
        if any(before[0] != after[1] for before, after in itertools.pairwise(shapes)):
            raise ValueError(f"has layers in {network} that do not follow each other: {shapes}")
        return [shape[0] for shape in shapes]


def one_line(path: Path | str, error: ValueError) -> str:
    """What is wrong with a file, without the pages that a hostile one could make of it."""
    line = " ".join(f"{path}: {error}".split())
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} ... {line[-half:]}"


def read_agent(path: Path) -> SavedAgent:
    """The settings and weights of a zip; a ValueError says what is wrong with it."""
    if not path.is_file():
        raise ValueError("there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            missing = {"data", "policy.pth"} - set(archive.namelist())
            if missing:
                raise ValueError(f"is no saved agent of SB3, or was cut off: it lacks {sorted(missing)}")
            settings = _entry(archive, "data", LARGEST_SETTINGS)
            weights = _entry(archive, "policy.pth", LARGEST_WEIGHTS)
    except BROKEN as error:
        raise ValueError(f"is no zip file, or a broken one ({error})") from error
    return SavedAgent(_settings(settings), _renamed(_weights(weights)))


def _entry(archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    entry = archive.getinfo(name)
    _check_claim(entry.file_size, min(largest, LARGEST_COMPRESSION * max(entry.compress_size, 1024)), name)
    return archive.read(entry)


def _settings(content: bytes) -> dict[str, Any]:
    try:
        settings = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"data in it is no JSON ({error})") from error
    if not isinstance(settings, dict):
        raise ValueError(f"data in it is a {type(settings).__name__}, not a table of settings")
    return settings


def _weights(content: bytes) -> Weights:
    _check_claim(_unpacked_size(content), len(content))
    try:
        weights = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # broken bytes raise almost anything
        named = re.search(r"GLOBAL (\S+)", str(error))
        what = f"names {named[1]}, which is no weight" if named else f"is broken ({type(error).__name__})"
        raise ValueError(f"policy.pth in it {what}; nothing of it was run") from error
    if not isinstance(weights, dict) or not all(map(_is_weight, weights.keys(), weights.values())):
        raise ValueError("policy.pth in it is no table of weights")
    claimed = sum(weight.numel() * weight.element_size() for weight in weights.values())
    _check_claim(claimed, LARGEST_REUSE * len(content))
    endless = [name for name, weight in weights.items() if not weight.isfinite().all()]
    if endless:
        raise ValueError(f"its weights {endless[0]} are not finite")
    return dict(weights)


def _unpacked_size(content: bytes) -> int:
    """Of the weights, which are a zip of their own since torch 1.6."""
    if not content.startswith(b"PK"):
        return len(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except BROKEN as error:
        raise ValueError(f"policy.pth in it is broken ({type(error).__name__})") from error


def _check_claim(claimed: int, largest: int, name: str = "policy.pth") -> None:
    if claimed > largest:
        raise ValueError(f"{name} in it claims an absurd size of {claimed} bytes")


def _is_weight(name: object, weight: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(weight, torch.Tensor)
        and weight.device.type == "cpu"
        and weight.layout == torch.strided
        and not (weight.is_complex() or weight.is_quantized)
    )


def _renamed(weights: Weights) -> Weights:
    """Weights of old or compiled policies, by the names that they have today."""
    critics = {"q1_net": "qf0", "q2_net": "qf1"}
    renamed: Weights = {}
    for name, weight in weights.items():
        parts = [critics.get(part, part) for part in name.split(".") if part != "_orig_mod"]
        renamed[".".join(parts)] = weight
    return _unshared(renamed)


def _unshared(weights: Weights) -> Weights:
    """Layers that actor and critic shared before SB3 1.8 are the first layers of both today."""
    layer = re.compile(r"mlp_extractor\.(shared|policy|value)_net\.(\d+)\.(\w+)")
    places = {name: found for name in weights if (found := layer.fullmatch(name))}
    shared = [int(found[2]) for found in places.values() if found[1] == "shared"]
    # Each layer is followed by its activation, which counts as a layer too.
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


class PickledObject:
    """What a pickle says of one object: where its class lives, its arguments and its state.

    It stands for everything that a pickle names, whatever that is, and does nothing.
    """

    origin: ClassVar[str]
    arguments: tuple[Any, ...]
    state: Any
    items: list[Any]
    """What was appended to it, where it is a container."""

    def __new__(cls, *arguments: Any, **_: Any) -> "PickledObject":
        record = object.__new__(cls)
        record.arguments = arguments
        record.state = None
        record.items = []
        return record

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take what the pickle passes, and leave it at that."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, _: Any, __: Any) -> None:
        """Mappings of other kinds than Python's own stay empty: nobody asks for their items."""

    def append(self, item: Any) -> None:
        self.items.append(item)

    def extend(self, items: Any) -> None:
        self.items.extend(items)

    def add(self, _: Any) -> None:
        """Sets stay empty too."""


CONTAINERS = {"builtins.set", "builtins.frozenset", "collections.OrderedDict", "collections.deque"}
NUMPY = re.compile(
    r"numpy\.(dtype|ndarray|random\..*|_?core\.multiarray\.(_reconstruct|scalar)|_?core\.numeric\._frombuffer)"
)
NUMBERS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"}


class InertUnpickler(pickle.Unpickler):
    """Turns every class that a pickle names into a PickledObject, and refuses what no record is about."""

    def find_class(self, module: str, name: str) -> type[PickledObject]:
        """A record of its own for each name; the name is never imported."""
        origin = f"{module}.{name}"
        root = module.partition(".")[0]
        if root == "numpy":
            known = NUMPY.fullmatch(origin) is not None or (module == root and name in np.sctypeDict)
        else:
            known = root not in sys.stdlib_module_names or origin in CONTAINERS
        if not known:
            raise ValueError(f"names {origin}, which has no place in such a file; nothing of it was run")
        return type("NamedPickledObject", (PickledObject,), {"origin": origin})


def read_pickle(path: Path) -> Any:
    """The pickle with records in place of objects; a ValueError says what is wrong with it."""
    if not path.is_file():
        raise ValueError("there is no such file")
    if path.stat().st_size > LARGEST_PICKLE:
        raise ValueError(f"has an absurd size of {path.stat().st_size} bytes")
    return unpickled(path.read_bytes())


def unpickled(content: bytes) -> Any:
    """The same of a pickle that is at hand."""
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if "PUT" in opcode.name and int(argument or 0) > len(content):  # so much memory it would take
                raise ValueError(f"it claims {argument} objects")
    except ValueError as error:
        raise ValueError(f"is no pickle, or a broken one ({error})") from error
    try:
        return InertUnpickler(io.BytesIO(content)).load()
    except ValueError:
        raise
    except Exception as error:  # broken bytes raise almost anything
        raise ValueError(f"is a broken pickle ({type(error).__name__})") from error


def array_of(value: Any) -> Array:
    """The array that numpy's record, or a plain number, stands for."""
    match value:
        case bool() | int() | float():
            return np.asarray(value)
        case PickledObject(origin=origin, state=(_, shape, dtype, fortran, content)) if (
            "._reconstruct" in origin
        ):
            return _array(content, dtype, shape, "F" if fortran else "C")
        case PickledObject(origin=origin, arguments=(content, dtype, shape, order)) if (
            "._frombuffer" in origin
        ):
            return _array(content, dtype, shape, order)
        case PickledObject(origin=name, arguments=(dtype, content)) if ".scalar" in name:
            return _array(content, dtype, (), "C")
    raise ValueError(f"has {_shown(value)} where numbers are due")


def _array(content: Any, dtype: Any, shape: Any, order: Any) -> Array:
    match dtype:
        case PickledObject(origin="numpy.dtype", arguments=(str(code), *_), state=(_, str(byte_order), *_)):
            known = code in NUMBERS and byte_order in {"<", ">", "|", "="}
        case _:
            known = False
    whole = isinstance(shape, tuple) and all(isinstance(size, int) for size in shape)
    if not known or not whole or order not in ("C", "F") or not isinstance(content, bytes | bytearray):
        raise ValueError(f"has an array of {_shown(dtype)} that is not plain")
    return np.frombuffer(content, np.dtype(byte_order + code)).reshape(shape, order=order).copy()


def _shown(value: Any) -> str:
    return value.origin if isinstance(value, PickledObject) else type(value).__name__
