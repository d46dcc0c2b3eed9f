"""Reads JSON and npz files safely: nothing in them is run, and invalid files give a one-line error."""

import copy
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from tpd.guards.atomic import atomic_write
from tpd.guards.sizes import require_memory

Array = npt.NDArray[Any]
WHOLE, REAL, ANY = "iu", "iuf", "biufV"
"""NumPy dtype kinds that an array may have; V is for Dict observations."""
LARGEST_JSON = 16 * 2**20
"""Bytes; parsed values take up to twenty times as much memory as their text."""
MOST_PARTS = 1_000_000
"""Lists and dicts in a JSON file; the smallest take fifty times as much memory as their text."""
LITTLE, MUCH = 2**20, 400 * 2**20
LARGEST_COMPRESSION = 2
"""Upper bound on the ratio of contents to file size, if the contents exceed MUCH."""
LONGEST_REASON = 300


class CheckedArrays:
    """Named arrays; each is checked when it is taken. `whose` is the prefix of error messages."""

    def __init__(self, arrays: Mapping[str, Array], whose: str = "") -> None:
        self._arrays, self._whose = arrays, whose

    @property
    def size(self) -> int:
        """Total number of values."""
        return sum(array.size for array in self._arrays.values())

    def take(self, name: str, shape: Sequence[Any], kinds: str, *, finite: bool = True) -> Array:
        """The array of this name, checked for kind and shape; None is any length, a final `...` more axes."""
        if (array := self._arrays.get(name)) is None:
            raise ValueError(f"{self._whose}has no {name}")
        due = [*shape[:-1], *array.shape[len(shape) - 1 :]] if shape and shape[-1] is ... else shape
        fits = array.ndim == len(due) and all(
            size in (length, None) for length, size in zip(array.shape, due, strict=True)
        )
        if not fits or array.dtype.kind not in kinds:
            shown = " x ".join("any" if size in (None, ...) else str(size) for size in shape) or "()"
            raise ValueError(
                f"{self._whose}{name}: expected shape {shown} and a NumPy dtype of kind {kinds!r}, "
                f"got {array.dtype} of shape {array.shape}"
            )
        if finite and array.dtype.kind == "f":
            self.check(name, np.isfinite(array))
        return array

    def optional(self, name: str, shape: Sequence[Any], kinds: str, *, finite: bool = True) -> Array | None:
        """The same; None if there is no array of this name."""
        return self.take(name, shape, kinds, finite=finite) if name in self._arrays else None

    def like(
        self,
        name: str,
        due: Array,
        *,
        rows: int | Literal["as many"] | None = "as many",
        low: float = -math.inf,
        high: float = math.inf,
        finite: bool = True,
    ) -> Array:
        """An array with the dtype and shape of `due`, within bounds; rows: the length, None for any."""
        shape = due.shape if rows == "as many" else (rows, *due.shape[1:])
        array = self.take(name, shape, due.dtype.kind, finite=finite)
        if array.dtype != due.dtype:
            raise ValueError(f"{self._whose}{name}: expected {due.dtype}, got {array.dtype}")
        if low > -math.inf or high < math.inf:
            self.check(name, (array >= low) & (array <= high))
        return array

    def number(self, name: str, at_most: int = 2**62) -> int:
        """A non-negative integer."""
        return int(self.like(name, np.zeros((), np.int64), low=0, high=at_most))

    def under(self, prefix: str) -> Self:
        """The arrays whose names have this prefix, with the prefix removed."""
        part = copy.copy(self)
        part._arrays = {
            name.removeprefix(prefix): array
            for name, array in self._arrays.items()
            if name.startswith(prefix)
        }
        return part

    def every(self, kinds: str) -> dict[str, Array]:
        """All arrays by name, if they are finite numbers of these kinds."""
        return {name: self.take(name, array.shape, kinds) for name, array in self._arrays.items()}

    def check(self, name: str, right: Array) -> None:
        """Refuse an array if any of its values is not right; the error names the first one."""
        wrong = np.argwhere(~right)
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise ValueError(
                f"{self._whose}{name}{list(place) or ''} must not be {self._arrays[name][place]}"
            )


class StoredArrays(CheckedArrays):
    """The arrays of an npz file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(read_arrays(path), f"{path}: ")


def read_json(path: Path) -> Any:
    """The values of a JSON file; a ValueError names the file and the problem."""
    require_file(path, LARGEST_JSON)
    text = path.read_bytes()
    if (parts := text.count(b"[") + text.count(b"{")) > MOST_PARTS:
        raise ValueError(f"{path}: too large, {parts} lists and objects (limit {MOST_PARTS})")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({brief(error)})") from error


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an npz file for `read_arrays`: compressed, unless the compression ratio would be too high."""
    with atomic_write(path) as unfinished:
        with unfinished.open("wb") as file:  # otherwise NumPy appends a suffix
            np.savez_compressed(file, allow_pickle=False, **arrays)
        if sum(array.nbytes for array in arrays.values()) > _most_held(unfinished) // 2:
            with unfinished.open("wb") as file:
                np.savez(file, allow_pickle=False, **arrays)


def _most_held(path: Path) -> int:
    """Upper bound on the uncompressed size of an npz file, in bytes."""
    return max(MUCH, LARGEST_COMPRESSION * path.stat().st_size)


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an npz file, without object arrays; a ValueError names the file and the problem."""
    require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            require_plain_zip(entries)
            claimed = sum(entry.file_size for entry in entries)
            if claimed > _most_held(path):
                raise ValueError(f"it declares {claimed} bytes of arrays, more than its size allows")
            require_memory("its contents", (claimed,), "uint8", "the file does not fit into memory")
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except Exception as error:  # corrupted bytes raise almost any error
        raise ValueError(
            f"{path}: not an npz file of plain arrays, or it is corrupted ({brief(error)})"
        ) from error


def require_plain_zip(entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse compression methods whose output may exceed the stated size: zipfile limits only deflate."""
    for entry in entries:
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(
                f"the entry {entry.filename} has an unsupported compression method: "
                "only stored and deflated entries are read"
            )


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    """Read one array; its shape is checked before memory is allocated."""
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        shape, _, dtype = read_header[version](file)
    if math.prod(max(size, 1) for size in shape) * max(dtype.itemsize, 1) > max(entry.file_size, LITTLE):
        raise ValueError(f"{entry.filename} declares shape {shape}, but has only {entry.file_size} bytes")
    with archive.open(entry) as file:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def require_file(path: Path, largest: int | None = None) -> None:
    """Refuse a path that is not a regular file (a pipe, a device), or a file that is too large."""
    if not path.is_file():
        raise ValueError(f"{path}: {no_file(path)}")
    if largest is not None and path.stat().st_size > largest:
        raise ValueError(f"{path}: too large, {path.stat().st_size} bytes (limit {largest})")


def no_file(path: Path) -> str:
    """What is wrong with a path that is not a regular file."""
    if path.is_dir():
        return "is a folder, not a file"
    return "is not a regular file" if path.exists() else "there is no such file"


def require_own_files(folder: Path) -> None:
    """Refuse a folder with a link that leads out of it, a pipe or a device."""
    home = folder.resolve()
    for place, folders, files in os.walk(folder):
        for path in (Path(place) / name for name in (*folders, *files)):
            try:
                mode = path.lstat().st_mode
            except FileNotFoundError:  # removed in the meantime
                continue
            if stat.S_ISLNK(mode) and not path.resolve().is_relative_to(home):
                raise ValueError(f"{path} points outside {folder}, so nothing is written or sent")
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
                raise ValueError(f"{path} is neither a file nor a folder, so nothing is written or sent")


def brief(error: BaseException) -> str:
    """The message of an error, on one line and shortened."""
    said = " ".join(str(error).split())
    line = said if isinstance(error, ValueError) and said else f"{type(error).__name__}: {said}"
    if isinstance(error, KeyError):
        line = f"{said} is missing"
    return line if len(line) <= LONGEST_REASON else f"{line[:LONGEST_REASON]} ..."


@contextmanager
def blame(path: Path) -> Iterator[None]:
    """Name the file in errors."""
    try:
        yield
    except Exception as error:  # any error while processing the file
        line = brief(error)
        raise ValueError(line if line.startswith(str(path)) else f"{path}: {line}") from error
