"""What a file declares is bounded by what it holds."""

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from tests.support import good_files, hostile_files
from tpd.envs import dataset
from tpd.envs.dataset import DatasetDescription
from tpd.envs.spaces import from_plain, to_plain
from tpd.guards import files
from tpd.guards.files import read_arrays, write_arrays

BOX = {"kind": "Box", "shape": [20_000, 20_000], "dtype": "float32", "low": "0.0", "high": "1.0"}
LARGE: dict[str, dict[str, Any]] = {
    "a box": BOX,
    "many boxes": {"kind": "Dict", "spaces": {str(k): {**BOX, "shape": [2_000_000]} for k in range(10)}},
    "bits": {"kind": "MultiBinary", "n": 10**10},
    "many sizes": {"kind": "MultiDiscrete", "shape": [10**8], "dtype": "int64", "nvec": "2", "start": "0"},
    "a size below 0": {**BOX, "shape": [-5]},
    "a size that is a word": {**BOX, "shape": ["many"]},
}


@pytest.mark.parametrize("plain", LARGE.values(), ids=LARGE)
def test_spaces_that_are_too_large_are_refused_before_there_is_room_made(plain: dict[str, Any]) -> None:
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"more than the limit|a size of a space must be"):
        from_plain(plain)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_long_numbers_are_refused_before_there_is_room_made() -> None:
    """As text, all numbers of an array would be as long as the longest."""
    low = ["0" * 1_000_000, *["0"] * 499]
    tracemalloc.start()
    with pytest.raises(ValueError, match="a bound or size of a space must be a number, got '000"):
        from_plain({**BOX, "shape": [500], "low": low})
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


@pytest.mark.parametrize("states", [10**30, 0, -5, "many", 2.5])
def test_a_number_of_states_that_cannot_be_is_refused_by_file(tmp_path: Path, states: Any) -> None:
    good_files.shards(tmp_path)
    hostile_files.with_keys(dataset.DESCRIPTION, observation_space__n=states)(tmp_path)
    with pytest.raises(
        ValueError, match=r"dataset\.json does not describe a dataset: the size of a space must be"
    ):
        DatasetDescription.read(tmp_path)


def test_json_of_many_lists_is_refused_before_they_are_made(tmp_path: Path) -> None:
    """Each of them takes fifty times as much room as its brackets."""
    (tmp_path / "deep.json").write_bytes(b"[" + b",".join([b"[" * 400 + b"]" * 400] * 20_000) + b"]")
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"deep\.json: too large, 8000001 lists and objects"):
        files.read_json(tmp_path / "deep.json")
    assert tracemalloc.get_traced_memory()[1] < 40_000_000
    tracemalloc.stop()


def test_pictures_of_4k_are_not_too_large() -> None:
    space = spaces.Box(0, 255, (2160, 3840, 3), np.uint8)
    assert from_plain(to_plain(space)) == space


@pytest.mark.parametrize("unusual", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_hide_how_much_they_hold_are_refused(tmp_path: Path, unusual: int) -> None:
    with zipfile.ZipFile(tmp_path / "arrays.npz", "w", unusual) as archive:
        archive.writestr("zeros.npy", bytes(1000))
    with pytest.raises(ValueError, match="has an unsupported compression method"):
        read_arrays(tmp_path / "arrays.npz")


def test_arrays_are_compressed_only_as_far_as_they_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MUCH", 10_000)
    arrays = {"zeros": np.zeros(100_000), "few": np.arange(3)}
    write_arrays(tmp_path / "arrays.npz", arrays)
    read = read_arrays(tmp_path / "arrays.npz")
    assert {name: array.tolist() for name, array in read.items()} == {
        name: array.tolist() for name, array in arrays.items()
    }
    np.savez_compressed(tmp_path / "swells.npz", zeros=np.zeros(100_000))
    with pytest.raises(ValueError, match="it declares 800128 bytes of arrays"):
        read_arrays(tmp_path / "swells.npz")
