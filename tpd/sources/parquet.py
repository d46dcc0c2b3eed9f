"""Datasets of transitions as Parquet files: readable by other tools, and possibly larger than memory.

A dataset is a folder: `dataset.json` describes it, and `shard-00000.parquet` and so on hold the transitions.
A vector is stored as a fixed-size list, a matrix as a list of those, an observation of a Dict space as a
struct; so the files themselves contain dtypes and shapes.
"""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from gymnasium import spaces

from tpd.core.observations import pack
from tpd.core.types import Array, Transitions, concatenate
from tpd.envs.dataset import DatasetDescription
from tpd.envs.spaces import check_members
from tpd.guards.files import brief, require_file
from tpd.guards.settings import numbered
from tpd.sources.collection import LARGEST_BATCH, SMALLEST_BATCH
from tpd.sources.page_headers import pages

COLUMNS = ("observation", "action", "next_observation", "reward", "terminated", "truncated")
ORDER = ("stream", "own")
"""Columns that only ordered transitions have."""
INFO = "info."
MOST_BYTES = 64_000_000
"""Upper bound on the size of a written row group, so that it fits into memory."""
LARGEST_GROUP = 4 * MOST_BYTES
"""Upper bound on the size of a row group, or of a single row, when reading."""
MOST_NODES, MOST_NESTED = 4_000, 10
"""Upper bounds on type nodes or row groups, which pyarrow reads recursively, and on the nesting of types."""
ROWS_PER_BYTE, FEW_ROWS = 100, 1_000_000
"""A file may claim at most this many rows per byte, or FEW_ROWS if that is more."""
REWARDS = spaces.Box(-np.inf, np.inf, (), np.float64)
MANY_STREAMS = 1_000_000
"""Stream numbers may go up to this even with fewer rows, since a shard may have only some of the streams."""


class DatasetError(ValueError):
    """A dataset whose contents contradict its description."""


def shard_path(folder: Path, shard: int) -> Path:
    """The file of one shard."""
    return folder / f"shard-{shard:05d}.parquet"


def shard_paths(folder: Path, description: DatasetDescription) -> list[Path]:
    """The files of a dataset, in order; refused if one is missing."""
    paths = list[Path]()
    for shard in range(description.shards):
        paths.append(shard_path(folder, shard))
        if not paths[-1].is_file():
            raise DatasetError(f"{paths[-1]} is missing: the dataset has {description.shards} shards")
    return paths


# Writing


def write_shard(path: Path, batches: Iterable[Transitions]) -> Iterator[Transitions]:
    """Write batches to a shard and yield them unchanged; the file gets its name once it is complete.

    Each batch is a row group (small batches are joined), so that reading returns the same batches.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    growing = path.with_name(f".{path.name}.{os.getpid()}")
    writer: pq.ParquetWriter | None = None
    waiting = list[Transitions]()
    try:
        for batch in batches:
            waiting.append(batch)
            if sum(map(len, waiting)) >= SMALLEST_BATCH:
                writer = _write(growing, writer, waiting)
                waiting = []
            yield batch
        if waiting:
            writer = _write(growing, writer, waiting)
        if writer is None:
            raise DatasetError(f"{path}: there are no transitions to save")
        writer.close()
        with growing.open("rb") as written:
            os.fsync(written.fileno())
        growing.replace(path)
    finally:
        if writer is not None:
            writer.close()
        growing.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove partial shards left behind by killed processes."""
    for left in folder.glob(".shard-*"):
        left.unlink(missing_ok=True)


def _write(path: Path, writer: pq.ParquetWriter | None, parts: list[Transitions]) -> pq.ParquetWriter:
    batch = parts[0] if len(parts) == 1 else concatenate(parts)
    columns = {name: getattr(batch, name) for name in COLUMNS}
    columns |= {name: getattr(batch, name) for name in ORDER if getattr(batch, name) is not None}
    columns |= {f"{INFO}{key}": values for key, values in batch.info.items()}
    table = pa.table({name: _to_arrow(name, values) for name, values in columns.items()})
    if writer is None:
        writer = pq.ParquetWriter(path, table.schema, compression="zstd", write_page_checksum=True)
    if table.schema != writer.schema:
        raise DatasetError(f"{path}: the columns have changed from {writer.schema} to {table.schema}")
    writer.write_table(table, row_group_size=_rows(table.schema))
    return writer


def _to_arrow(name: str, values: Array) -> Any:
    """A column with one value, list or struct per row."""
    if values.dtype.names is not None:
        fields = [_to_arrow(f"{name}.{field}", values[field]) for field in values.dtype.names]
        return pa.StructArray.from_arrays(fields, names=values.dtype.names)
    if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8 or not values.dtype.isnative:
        raise DatasetError(
            f"{name} has dtype {values.dtype}, but only booleans, and integers and floats of at most 64 bits "
            "in native byte order, can be stored"
        )
    column = pa.array(values.ravel())
    for size in reversed(values.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


# Reading


def read_shard(
    path: Path, description: DatasetDescription, hidden_state: int | None = None
) -> Iterator[Transitions]:
    """Yield the transitions of a shard, at most a row group at a time, checked against the spaces.

    hidden_state: size of the recurrent policy's hidden state appended to each observation; None if unknown.
    """
    names = [*COLUMNS, *(f"{INFO}{key}" for key in description.info_keys)]
    with _opened(path) as file:
        names += [name for name in ORDER if name in file.schema_arrow.names]
        _check_columns(path, file.schema_arrow, names)
        rows, streams = _rows(file.schema_arrow), max(MANY_STREAMS, _count(file))
        _check_sizes(path, file)
        first_row = 0
        for group in range(file.num_row_groups):
            _check_pages(path, file, group, names)
            left = file.metadata.row_group(group).num_rows
            for table in _batches(path, file, group, rows, names):
                left -= len(table)
                columns = {name: _to_numpy(path, name, table.column(name)) for name in names}
                batch = Transitions(
                    **{name: columns[name] for name in (*COLUMNS, *ORDER) if name in columns},
                    info={key: columns[f"{INFO}{key}"] for key in description.info_keys},
                )
                yield _checked(path, batch, description, hidden_state, streams, first_row)
                first_row += len(table)
            if left:
                raise DatasetError(f"{path}: a row group does not have as many rows as it declares")


def count_rows(path: Path) -> int:
    """Number of transitions in a shard, without reading them."""
    with _opened(path) as file:
        return _count(file)


def _count(file: pq.ParquetFile) -> int:
    return sum(file.metadata.row_group(number).num_rows for number in range(file.num_row_groups))


def _opened(path: Path) -> pq.ParquetFile:
    """Open a file; refused if its footer claims more than the file can hold."""
    try:
        require_file(path)
        file = pq.ParquetFile(path, page_checksum_verification=True, thrift_container_size_limit=MOST_NODES)
        level = [field.type for field in file.schema_arrow]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read as a Parquet file: {_line(error)}") from error
    for _ in range(MOST_NESTED):
        level = [kind.field(k).type for kind in level for k in range(kind.num_fields)]
    groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
    packed = [group.column(k).total_compressed_size for group in groups for k in range(group.num_columns)]
    size, rows = path.stat().st_size, [group.num_rows for group in groups]
    if level:
        raise DatasetError(f"{path}: the column types are nested more than {MOST_NESTED} levels deep")
    if sum(packed) > size or min(packed, default=0) < 0:
        raise DatasetError(f"{path}: the columns declare {sum(packed)} bytes, but the file has only {size}")
    if sum(rows) > max(FEW_ROWS, ROWS_PER_BYTE * size) or min(rows, default=0) < 0:
        raise DatasetError(f"{path}: {sum(rows)} rows are declared, too many for a file of {size} bytes")
    return file


def _check_columns(path: Path, schema: Any, names: list[str]) -> None:
    due = {
        "reward": pa.types.is_floating,
        "terminated": pa.types.is_boolean,
        "truncated": pa.types.is_boolean,
        "stream": pa.types.is_integer,
        "own": pa.types.is_boolean,
    }
    for name in names:
        if schema.get_field_index(name) < 0:
            raise DatasetError(
                f"{path}: the column {name} is missing or duplicated; the columns are {schema.names}"
            )
        kind = schema.field(name).type
        if not (due[name](kind) if name in due else _plain(kind)):
            raise DatasetError(f"{path}: the column {name} has the unsupported type {kind}")
    before, after = schema.field("observation").type, schema.field("next_observation").type
    if before != after:
        raise DatasetError(
            f"{path}: the column next_observation has type {after}, but observation has {before}"
        )


def _check_sizes(path: Path, file: pq.ParquetFile) -> None:
    """Refuse rows and row groups that are larger than any that are written here."""
    row = sum(_bytes(field.type) for field in file.schema_arrow)
    groups = (file.metadata.row_group(number).total_byte_size for number in range(file.num_row_groups))
    for what, size in (("a row", row), ("a row group", max(groups, default=0))):
        if size > LARGEST_GROUP:
            raise DatasetError(f"{path}: {what} is too large, {size} bytes (limit {LARGEST_GROUP})")


def _check_pages(path: Path, file: pq.ParquetFile, group: int, names: list[str]) -> None:
    """Refuse pages with more values than the rows of their group, or too large: the footer may be forged."""
    about = file.metadata.row_group(group)
    leaves = [leaf for field in file.schema_arrow for leaf in _leaves(field.name, field.type)]
    if len(leaves) != about.num_columns:
        raise DatasetError(f"{path}: {len(leaves)} columns in its schema, {about.num_columns} in a row group")
    unpacked = 0
    with path.open("rb") as stored:
        for number, (name, size) in enumerate(leaves):
            if name not in names:
                continue
            column, most = about.column(number), about.num_rows * size
            starts = [column.data_page_offset, column.dictionary_page_offset]
            try:
                begin = min(start for start in starts if start)
                for page in pages(stored, begin, begin + column.total_compressed_size):
                    unpacked += page.unpacked
                    if page.values > most:
                        raise ValueError(
                            f"a page has {page.values} values, but its row group has only {most}"
                        )
                    if unpacked > LARGEST_GROUP:
                        raise ValueError(
                            f"a row group is too large, {unpacked} bytes (limit {LARGEST_GROUP}): write the "
                            "file with a smaller row_group_size"
                        )
            except (ValueError, OSError) as error:
                raise DatasetError(f"{path}: the column {name} cannot be read: {brief(error)}") from error


def _leaves(name: str, kind: Any, size: int = 1) -> list[tuple[str, int]]:
    """The leaf columns that store a column, each with its number of values per row."""
    if pa.types.is_fixed_size_list(kind):
        size *= kind.list_size
    inner = [leaf for k in range(kind.num_fields) for leaf in _leaves(name, kind.field(k).type, size)]
    return inner or [(name, size)]


def _plain(kind: Any) -> bool:
    """Whether a type consists of numbers, fixed-size lists and structs only."""
    if pa.types.is_struct(kind):
        return all(_plain(field.type) for field in kind)
    while pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _batches(path: Path, file: pq.ParquetFile, group: int, rows: int, names: list[str]) -> Iterator[Any]:
    """Read a row group in parts; an error names the column that cannot be read."""
    try:
        yield from file.iter_batches(rows, row_groups=[group], columns=names)
    except (pa.ArrowException, OSError) as error:
        for name in names:
            try:
                for _ in file.iter_batches(rows, row_groups=[group], columns=[name]):
                    pass
            except (pa.ArrowException, OSError) as culprit:
                raise DatasetError(f"{path}: the column {name} cannot be read: {_line(culprit)}") from error
        raise DatasetError(f"{path} cannot be read: {_line(error)}") from error


def _to_numpy(path: Path, name: str, column: Any) -> Array:
    """[batch, ...]: a writable copy."""
    if column.null_count:
        raise DatasetError(f"{path}: the column {name} has {column.null_count} rows without a value")
    if pa.types.is_struct(column.type):
        names = [field.name for field in column.type]
        if "" in names or len({*names}) < len(names) or not names:
            raise DatasetError(f"{path}: the column {name} has unnamed or duplicate fields")
        fields = zip(names, column.flatten(), strict=True)
        return pack({field: _to_numpy(path, f"{name}.{field}", values) for field, values in fields})
    shape = [len(column)]
    while pa.types.is_fixed_size_list(column.type):
        shape.append(column.type.list_size)
        column = column.flatten()
    if column.null_count or len(column) != math.prod(shape):
        raise DatasetError(f"{path}: the column {name} has rows without a value")
    return np.array(column.to_numpy(zero_copy_only=False)).reshape(shape)


def _checked(
    path: Path,
    batch: Transitions,
    description: DatasetDescription,
    hidden_state: int | None,
    streams: int,
    first_row: int,
) -> Transitions:
    """Return the batch if its values lie in the spaces: tables would misread a state out of range."""
    observed, acted = description.observation_space, description.action_space
    try:
        for name in ("observation", "next_observation"):
            check_members(f"the column {name}", getattr(batch, name), observed, hidden_state, first_row)
        check_members("the column action", batch.action, acted, first_row=first_row)
        check_members("the column reward", batch.reward, REWARDS, first_row=first_row)
        if batch.stream is None:
            return batch
        numbered("the column stream", batch.stream, streams)
    except ValueError as error:
        raise DatasetError(f"{path}: {error}") from error
    return replace(batch, stream=batch.stream.astype(np.int64, copy=False))


def _rows(schema: Any) -> int:
    """Upper bound on rows held in memory at once."""
    return max(1, min(LARGEST_BATCH, MOST_BYTES // sum(_bytes(field.type) for field in schema)))


def _bytes(kind: Any) -> int:
    """Minimal size of a value, in bytes."""
    if pa.types.is_struct(kind):
        return sum(_bytes(field.type) for field in kind)
    size = 1
    while pa.types.is_fixed_size_list(kind):
        size, kind = size * kind.list_size, kind.value_type
    return size * max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else size


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
