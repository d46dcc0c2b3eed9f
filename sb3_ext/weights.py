"""Reads policy weights saved by torch, without torch's unpickler."""

import io
import re
import struct
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from sb3_ext.inert_pickles import PersistentId, PickledName, PickledObject, next_pickle, shown, unpickled
from tpd.guards.files import require_plain_zip

LARGEST_REUSE = 4  # the weights of a shared extractor have three names: its own, the actor's, the critic's
MOST_DIMENSIONS = 8
STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
    "BFloat16Storage": "i2",  # same size; NumPy has no bfloat16
}
BEGINNING = 0x1950A86A20F9469CFC6C
"""The first number of a file written by torch before version 1.6."""
REBUILD = re.compile(r"torch\._utils\._rebuild_tensor(_v2)?")

Weights = dict[str, torch.Tensor]


def read_weights(content: bytes) -> Weights:
    """The weights by name; a ValueError says what is wrong with them."""
    table, storages = _zipped(content) if content.startswith(b"PK") else _legacy(content)
    if isinstance(table, PickledObject) and table.origin == "collections.OrderedDict":
        table = table.mapping
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table):
        raise ValueError("is not a dict of weights")
    left = LARGEST_REUSE * len(content)
    weights: Weights = {}
    for name, record in table.items():
        weight = _tensor(name, record, storages, left)
        left -= weight.numel() * weight.element_size()
        weights[name] = weight
    return weights


def _zipped(content: bytes) -> tuple[Any, Mapping[str, bytes]]:
    """The table of a current file, and the bytes that it refers to."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        require_plain_zip(archive.infolist())
        claimed = sum(entry.file_size for entry in archive.infolist())
        if claimed > len(content):  # torch does not compress
            raise ValueError(f"declares {claimed} bytes, more than it has")
        members = {entry.filename.partition("/")[2]: entry for entry in archive.infolist()}
        if "data.pkl" not in members:
            raise ValueError("is corrupted (it lacks data.pkl)")
        parts = {name: archive.read(entry) for name, entry in members.items()}
    if parts.get("byteorder", b"little") != b"little":
        raise ValueError("was written on a big-endian machine, which is not supported")
    prefix = "data/"
    storages = {name.removeprefix(prefix): part for name, part in parts.items() if name.startswith(prefix)}
    return unpickled(parts["data.pkl"]), storages


def _legacy(content: bytes) -> tuple[Any, Mapping[str, bytes]]:
    """The same for a file of torch before version 1.6: pickles, followed by the bytes in order."""
    stream = io.BytesIO(content)
    if next_pickle(stream) != BEGINNING:
        raise ValueError("is not a file of weights that torch wrote")
    _, _, table, keys = (next_pickle(stream) for _ in range(4))
    records = table.mapping if isinstance(table, PickledObject) else table
    used = (_storage(*each) for each in records.items()) if isinstance(records, dict) else ()
    sizes = {key: np.dtype(STORAGES[kind]).itemsize for key, kind in used}
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in sizes for key in keys):
        raise ValueError("is damaged: it does not list where its weights are stored")
    storages = dict[str, bytes]()
    for key in keys:
        (count,) = struct.unpack("<q", stream.read(8))
        if not 0 <= count <= len(content):
            raise ValueError(f"declares an array of {count} numbers, which does not fit the file")
        storages[key] = stream.read(count * sizes[key])
    return table, storages


def _storage(name: str, record: Any) -> tuple[str, str]:
    """The storage of a weight's numbers, and their type, one of `STORAGES`."""
    match record:
        case PickledObject(
            origin=origin, arguments=(PersistentId(("storage", kind, str(key), *rest)), *_)
        ) if REBUILD.fullmatch(origin) and rest[2:] in ([], [None]):
            named = kind.origin.removeprefix("torch.") if isinstance(kind, PickledName) else ""
            if named in STORAGES:
                return key, named
            raise ValueError(f"has {name} of type {shown(kind)}, which is not a tensor type")
    raise ValueError(f"has {shown(record)} as {name}, which is not a tensor")


def _tensor(name: str, record: Any, storages: Mapping[str, bytes], largest: int) -> torch.Tensor:
    key, kind = _storage(name, record)
    match record.arguments[1:4]:
        case (int(offset), tuple(size), tuple(stride)) if len(size) == len(stride) <= MOST_DIMENSIONS:
            whole = all(isinstance(n, int) and 0 <= n < 2**40 for n in (offset, *size, *stride))
        case _:
            whole = False
    if not whole or key not in storages:
        raise ValueError(f"has a tensor {name} with an invalid offset, shape or stride")
    content, item = storages[key], np.dtype(STORAGES[kind]).itemsize
    numbers = np.frombuffer(content, STORAGES[kind], count=len(content) // item)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    count = int(np.prod(size, dtype=object))
    if count * item > largest:
        raise ValueError(f"declares {count * item} bytes for {name}, which is too large (limit {largest})")
    if count and last >= len(numbers):
        raise ValueError(f"has fewer bytes of {name} than it declares")
    steps = [step * item for step in stride]
    here = numbers[offset:] if count else numbers[:0]
    tensor = torch.from_numpy(np.lib.stride_tricks.as_strided(here, size, steps, writeable=False).copy())
    return tensor.view(torch.bfloat16) if kind == "BFloat16Storage" else tensor
