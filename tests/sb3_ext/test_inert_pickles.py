"""Pickles and weights that would take for ever, crash or fill the memory, were they read as usual."""

import io
import pickle
import struct
import time
import tracemalloc
import zipfile
from collections import OrderedDict

import pytest
import torch

from sb3_ext.inert_pickles import LARGEST_PICKLE, MOST_OPCODES, array_of, unpickled
from sb3_ext.weights import read_weights

SECONDS, BYTES = 10, 500 * 2**20


def shared_tuples(depth: int) -> bytes:
    """A key of tuples that hold the same tuple twice: 2**depth of them would be hashed."""
    return b"\x80\x02}" + b")" + b"q\x00h\x00\x86" * depth + b"K\x01s."


HOSTILE = {
    "shared tuples as a key": shared_tuples(60),
    "shared tuples in a set": b"\x80\x04\x8f(" + b")" + b"q\x00h\x00\x86" * 60 + b"\x90.",
    "shared tuples in a frozen set": b"\x80\x04(" + b")" + b"q\x00h\x00\x86" * 60 + b"\x91.",
    "a deep key": b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.",
    "deep lists": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"a.",
    "a large bytearray by its length": b"\x80\x05\x96" + struct.pack("<Q", 3 * 2**30) + b".",
    "large bytes by their length": b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
    "a large bytearray by a call": b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x40\x85R.",
    "opcodes without end": b"\x80\x02" + b"]" * (MOST_OPCODES + 10) + b".",
    "numbers of one hash": b"\x80\x02}("
    + b"".join(b"\x8a\x0c" + (k * (2**61 - 1)).to_bytes(12, "little") + b"N" for k in range(1, 20_000))
    + b"u.",
    "digits without end": b"L" + b"9" * 10_000_000 + b"L\n.",
    "a registered class": b"\x80\x02\x82\x01.",
    "a buffer from elsewhere": b"\x80\x05\x97.",
    "no stack": b"0.",
    "no mark": b"t.",
    "half a pair": b"}(K\x01u.",
    "a memo that is not there": b"h\x07.",
    "a state of a number": b"K\x01}b.",
    "a call of a word": b"\x8c\x01a)R.",
    "items of a number": b"K\x01K\x02a.",
    "a word that is no text": b"\x8c\x01\xff.",
    "a large word": b"X"
    + struct.pack("<I", LARGEST_PICKLE + 5)
    + "😀".encode()
    + b"a" * (LARGEST_PICKLE + 1)
    + b".",
    "a large line": b"V" + b"a" * (LARGEST_PICKLE + 5) + b"\n.",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused_in_little_time_and_memory(content: bytes) -> None:
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(
        ValueError, match=r"has |refers to |is a corrupted|is not a pickle|is larger|sets |creates |adds "
    ):
        unpickled(content)
    assert time.process_time() - start < SECONDS
    assert tracemalloc.get_traced_memory()[1] < 2 * len(content) + BYTES
    tracemalloc.stop()


def test_deep_values_that_are_no_keys_are_read_and_forgotten() -> None:
    content = b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"."
    assert isinstance(unpickled(content), list)


def test_a_number_beyond_all_bounds_is_no_array() -> None:
    with pytest.raises(ValueError, match="must be an array of numbers"):
        array_of(unpickled(pickle.dumps(10**400)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_they_are(protocol: int) -> None:
    plain = {"a": [1, 2.5, None, True, ("x", "y", "z", 1), -(2**40)], "ä": {"k": {1: ()}}, "long": "x" * 300}
    assert unpickled(pickle.dumps(plain, protocol)) == plain


def stored(pickled: bytes, **storages: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, storage in storages.items():
            archive.writestr(f"archive/data/{name.strip('_')}", storage)
    return content.getvalue()


def tensor(offset: int, size: tuple[int, ...], stride: tuple[int, ...], kind: str = "FloatStorage") -> bytes:
    """A table with one weight, as torch would pickle it."""
    storage = b"(X\x07\x00\x00\x00storagectorch\n" + kind.encode() + b"\nX\x01\x00\x00\x000"
    storage += b"X\x03\x00\x00\x00cpuK\x08tQ"
    values = b"".join(pickle.dumps(value, 2)[2:-1] for value in (offset, size, stride))
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + values + b"\x89}tR"
    return b"\x80\x02}X\x01\x00\x00\x00w" + rebuilt + b"s."


def test_a_weight_is_where_its_strides_say() -> None:
    numbers = torch.arange(8, dtype=torch.float32)
    content = stored(tensor(1, (2, 3), (1, 2)), _0=numbers.numpy().tobytes())
    assert torch.equal(read_weights(content)["w"], numbers.as_strided((2, 3), (1, 2), 1))


@pytest.mark.parametrize(
    ("pickled", "complaint"),
    [
        (tensor(0, (9,), (1,)), "has fewer bytes of w than it declares"),
        (tensor(5, (2, 2), (1, 2)), "has fewer bytes of w than it declares"),
        (tensor(-1, (2,), (1,)), "has a tensor w with an invalid"),
        (tensor(0, (2,), (-1,)), "has a tensor w with an invalid"),
        (tensor(0, (2, 2), (1,)), "has a tensor w with an invalid"),
        (tensor(0, (10**6, 10**6), (0, 0)), "which is too large"),
        (tensor(0, (2**39,) * 8, (0,) * 8), "which is too large"),
        (tensor(0, (1,), (1,), "UntypedStorage"), "which is not a tensor type"),
        (b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x40\x85R.", "refers to builtins.bytearray"),
        (shared_tuples(60), "has a tuple as a key"),
    ],
)
def test_weights_that_are_not_there_are_refused(pickled: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        read_weights(stored(pickled, _0=bytes(32)))


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool"])
def test_weights_are_those_that_torch_reads(kind: str, legacy: bool) -> None:
    table = torch.arange(24).to(getattr(torch, kind)).reshape(2, 3, 4)
    turned = table.permute(2, 1, 0)[1:]
    weights = OrderedDict(a=table, b=table[:, 1], c=turned, d=torch.zeros(()), e=table[:0])
    content = io.BytesIO()
    torch.save(weights, content, _use_new_zipfile_serialization=not legacy)
    read = read_weights(content.getvalue())
    assert list(read) == list(weights)
    for name, weight in weights.items():
        assert read[name].dtype == weight.dtype
        assert torch.equal(read[name], weight)
