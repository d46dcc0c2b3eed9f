"""Reads the page headers of a Parquet file: how much each page holds, which the footer may misstate."""

from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

LONGEST_HEADER = 4096
MOST_NESTED = 4
LARGEST = 2**31 - 1
VALUES = {0: 5, 2: 7, 3: 8}
"""By page type: the header field with the number of values."""
TYPE, UNPACKED, PACKED, COUNT = 1, 2, 3, 1
"""Field ids of the page header; the last one is of the headers nested in it."""
STOP, TRUE, FALSE, BYTE, SHORT, WHOLE, LONG, DOUBLE, TEXT, STRUCT = 0, 1, 2, 3, 4, 5, 6, 7, 8, 12
"""Types of Thrift's compact protocol; a header has no lists."""


class Page(NamedTuple):
    """The size of a page according to its header."""

    values: int
    unpacked: int
    """Uncompressed size, in bytes."""
    end: int
    """Offset of its end in the file."""


def pages(file: BinaryIO, begin: int, end: int) -> Iterator[Page]:
    """The pages between two offsets of a file; raises a ValueError if there is anything else."""
    while begin < end:
        file.seek(begin)
        try:
            header, length = _struct(file.read(LONGEST_HEADER), 0)
            within = header.get(VALUES.get(header[TYPE], 0), {})
            values, unpacked, packed = within.get(COUNT, 0), header[UNPACKED], header[PACKED]
        except (IndexError, KeyError, AttributeError) as error:
            raise ValueError("the file is corrupted: a page header is incomplete") from error
        for number in (values, unpacked, packed):
            if not isinstance(number, int) or not 0 <= number <= LARGEST:
                raise ValueError(f"the file is corrupted: a page header has the number {number}")
        begin += length + packed
        yield Page(values, unpacked, begin)


def _struct(data: bytes, at: int, nested: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by id, each at most once, and the offset of its end."""
    fields, field = dict[int, Any](), 0
    while data[at] != STOP:
        step, kind = divmod(data[at], 16)
        at += 1
        if step:
            field += step
        else:
            field, at = _whole(data, at)
        if field in fields or nested > MOST_NESTED:
            raise ValueError(
                "the file is corrupted: a page header has a duplicate field, or is nested too deeply"
            )
        fields[field] = None
        if kind in (SHORT, WHOLE, LONG):
            fields[field], at = _whole(data, at)
        elif kind == STRUCT:
            fields[field], at = _struct(data, at, nested + 1)
        elif kind == TEXT:
            length, at = _varint(data, at)
            at += length
        elif kind in (TRUE, FALSE, BYTE, DOUBLE):
            at += {BYTE: 1, DOUBLE: 8}.get(kind, 0)
        else:
            raise ValueError(f"the file is corrupted: a page header has a field of unknown type {kind}")
    return fields, at + 1


def _whole(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag-encoded integer, and the offset of its end."""
    number, at = _varint(data, at)
    return number >> 1 ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] > 127:
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return number | data[at] << shift, at + 1
