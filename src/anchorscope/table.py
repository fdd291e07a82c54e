"""A table: one typed record, many Parquet shards, each whole or absent.

A shard is written under a temporary name, flushed to disk and renamed. Whatever stops the writer, a file under
its final name is complete; what is missing is computed again, and gives the same bytes. Reading streams.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.errors import StoreError

R = TypeVar("R")
TEMPORARY = ".tmp"
READ_ROWS = 256  # rows decoded at a time

_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list[str]: pa.list_(pa.string()),
    list[int]: pa.list_(pa.int64()),
    list[float]: pa.list_(pa.float64()),
    list[np.float32]: pa.list_(pa.float32()),
}


def schema_of(record: type[Any]) -> pa.Schema:
    """The Parquet schema of a record type; each column carries its documentation."""
    hints, fields = get_type_hints(record), []
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        options = [option for option in get_args(hint) if option is not type(None)]
        nullable = type(None) in get_args(hint)
        kind = _TYPES[options[0] if nullable else hint]
        fields.append(pa.field(field.name, kind, nullable, metadata={"doc": field.metadata["doc"]}))
    return pa.schema(fields)


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file that is either whole or absent, whatever stops us, a power cut included."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the rename itself
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}",
            "What was finished before is kept: mend this and run again.",
        ) from None


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file that is already in memory, whole or not at all."""

    def write(stream: BinaryIO) -> None:
        stream.write(content)

    write_whole(path, write)


@dataclass(frozen=True)
class Plan:
    """How many rows a table will have, and how they are dealt to shards. A pure function of its inputs."""

    rows: int
    shard_rows: int

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.rows // self.shard_rows)

    def rows_of(self, shard: int) -> range:
        """The rows of one shard."""
        return range(shard * self.shard_rows, min(self.rows, (shard + 1) * self.shard_rows))


@dataclass(frozen=True)
class Table(Generic[R]):
    """The shards of one table in one folder."""

    folder: Path
    record: type[R]
    plan: Plan

    def path(self, shard: int) -> Path:
        """The file of one shard."""
        return self.folder / f"part-{shard:06d}.parquet"

    def missing(self) -> list[int]:
        """The shards that are still to be made: those that are not there or are not whole."""
        return [shard for shard in range(self.plan.shards) if self.rows_in(shard) != len(self.plan.rows_of(shard))]

    def rows_in(self, shard: int) -> int | None:
        """How many rows a shard's file says it has; None when it is not there, -1 when it is damaged."""
        try:
            return int(pq.read_metadata(self.path(shard)).num_rows)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError):
            return -1

    def write(self, shard: int, records: Sequence[R]) -> None:
        """Write one shard, whole."""
        expected = len(self.plan.rows_of(shard))
        if len(records) != expected:
            raise ValueError(f"shard {shard} of {self.folder.name} takes {expected} rows, got {len(records)}")
        schema = schema_of(self.record)
        columns = [pa.array([getattr(r, f.name) for r in records], type=f.type) for f in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
        write_whole(self.path(shard), lambda stream: pq.write_table(table, stream, compression="zstd"))

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in order, some at a time. The table must be complete."""
        missing = self.missing()
        if missing:
            raise StoreError(
                f"{self.folder}: {len(missing)} of {self.plan.shards} shards are missing",
                "Run the stage that makes this table again; it does only what is missing.",
            )
        for shard in range(self.plan.shards):
            yield from self._shard(shard, columns)

    def __iter__(self) -> Iterator[R]:
        for batch in self.batches():
            for row in batch.to_pylist():
                yield self.record(**row)

    def read(self, shard: int) -> list[R]:
        """The rows of one shard."""
        return [self.record(**row) for batch in self._shard(shard, None) for row in batch.to_pylist()]

    def _shard(self, shard: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        path, expected = self.path(shard), len(self.plan.rows_of(shard))
        try:
            with pq.ParquetFile(path) as file:
                if not file.schema_arrow.equals(schema_of(self.record)):
                    raise StoreError(f"{path}: written by another version of anchorscope (its columns differ)")
                if file.metadata.num_rows != expected:
                    raise StoreError(f"{path}: has {file.metadata.num_rows} rows instead of {expected}")
                yield from file.iter_batches(batch_size=READ_ROWS, columns=columns)
        except (pa.ArrowException, OSError) as error:
            raise StoreError(f"{path}: damaged ({error})", "Delete this file and run the stage again.") from None
