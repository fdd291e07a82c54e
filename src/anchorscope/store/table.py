"""A table: one typed record, many Parquet shards, each whole or absent.

A shard is written under a temporary name, flushed to disk and renamed; on a store it is put in one go. Whatever stops
the writer, a file under its final name is complete; what is missing is computed again, and gives the same bytes.
Reading streams, and checks the file's checksums first.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import TypeAdapter

from anchorscope.errors import StoreError
from anchorscope.store.checksums import (
    beside_of,
    check_pages,
    footer_of,
    has_checksums,
    parquet_content,
    read_footer,
)
from anchorscope.store.files import every, sources, write_bytes
from anchorscope.study.terms import ReadPoint

R = TypeVar("R")
READ_ROWS = 256  # rows decoded at a time
LOOK_ROWS = 8192  # the same where few of them, or few columns, become Python's
WIDE_LOOK = 65_536  # the same where hardly any does
ASIDE = b"set_aside"  # in a file's metadata: which rows were set aside, and why
_ASIDE = TypeAdapter(list[tuple[str, str]])

_TYPES: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    list[str]: pa.list_(pa.string()),
    list[int]: pa.list_(pa.int64()),
    list[float]: pa.list_(pa.float64()),
    list[np.float32]: pa.list_(pa.float32()),
    list[list[list[np.float32]]]: pa.list_(pa.list_(pa.list_(pa.float32()))),
}


@dataclass(frozen=True)
class Kind(Generic[R]):
    """A kind of table: what it is called, and what one row of it is."""

    name: str
    """The folder of its shards, and its entry in the manifest."""
    record: type[R]
    """A dataclass; the text under each field documents the column."""

    def at(self, point: ReadPoint) -> Kind[R]:
        """The table of one read point."""
        return self.part(point.key)

    def part(self, name: str) -> Kind[R]:
        """The table of one part, such as a read point or a detector."""
        return replace(self, name=f"{self.name}-{name}")


def schema_of(record: type[Any]) -> pa.Schema:
    """The Parquet schema of a record type; each column carries its documentation."""
    hints, docs, columns = get_type_hints(record), field_docs(record), []
    for field in dataclasses.fields(record):
        hint = hints[field.name]
        options = [option for option in get_args(hint) if option is not type(None)]
        nullable = type(None) in get_args(hint)
        column = _TYPES[options[0] if nullable else hint]
        columns.append(pa.field(field.name, column, nullable, metadata={"doc": docs[field.name]}))
    return pa.schema(columns)


_docs: dict[type[Any], dict[str, str]] = {}


def field_docs(record: type[Any]) -> dict[str, str]:
    """What stands under each field of a record, in one line each: the documentation of its columns."""
    if record not in _docs:
        _docs[record] = _read_docs(record)
    return _docs[record]


def _read_docs(record: type[Any]) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(definition, ast.ClassDef)
    docs: dict[str, str] = {}
    for named, below in pairwise(definition.body):
        if isinstance(named, ast.AnnAssign) and isinstance(named.target, ast.Name) and isinstance(below, ast.Expr):
            docs[named.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return docs


@dataclass(frozen=True)
class Aside:
    """A sample that was set aside, since the model failed on it each time."""

    id: str
    """Of its question."""
    reason: str
    """What happened, in one line."""


class ShardState(NamedTuple):
    """What a shard's file says of itself."""

    rows: int | None
    """How many it has; None when it is not there, -1 when it is damaged."""
    aside: list[Aside]
    """What was set aside when it was made."""
    whole: bool
    """Whether it has every row it should have; those that were set aside may be left out."""
    beside: Mapping[str, str] = MappingProxyType({})
    """SHA-256 of each file that belongs to it, by the file's path from the table's cell."""
    checksums: bool = True
    """Whether it has checksums. Files of version 0.2.0 and before have none."""


@dataclass(frozen=True)
class Plan:
    """How many rows a table will have, and how they are dealt to shards. A pure function of its inputs."""

    rows: int
    shard_rows: int
    """In each shard but the last, which may have fewer."""

    @property
    def shards(self) -> int:
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
    """How rows are dealt to shards."""

    def path(self, shard: int) -> Path:
        """The file of one shard."""
        return self.folder / f"part-{shard:06d}.parquet"

    def missing(self) -> list[int]:
        """The shards that are still to be made: those that are not there or are not whole."""
        return [shard for shard, look in enumerate(self.looks()) if not look.whole]

    def looks(self) -> Iterator[ShardState]:
        """A look at each shard, in order."""
        return every(self.look, range(self.plan.shards), self.folder)

    def look(self, shard: int) -> ShardState:
        """What a shard's file says of itself, at its end."""
        try:
            about = read_footer(self.path(shard))
            aside = [Aside(*row) for row in _ASIDE.validate_json((about.metadata or {}).get(ASIDE, b"[]"))]
            beside = beside_of(about)
        except FileNotFoundError:
            return ShardState(None, [], False)
        except (pa.ArrowException, OSError, ValueError):
            return ShardState(-1, [], False)
        rows, expected = int(about.num_rows), len(self.plan.rows_of(shard))
        whole = rows in (expected, expected - len(aside))
        return ShardState(rows, aside, whole, beside, has_checksums(about))

    def rows_in(self, shard: int) -> int | None:
        """How many rows a shard's file says it has; None when it is not there, -1 when it is damaged."""
        return self.look(shard).rows

    def aside(self) -> list[Aside]:
        """What was set aside, in all shards that are there."""
        return [sample for look in self.looks() for sample in look.aside]

    def digests(self, paths: Sequence[Path]) -> list[str | None]:
        """The SHA-256 of a file that belongs to each shard, as the shard has it; None where it has none."""
        names = [path.relative_to(self.folder.parent).as_posix() for path in paths]
        return [look.beside.get(name) for look, name in zip(self.looks(), names, strict=True)]

    def write(
        self, shard: int, records: Sequence[R], aside: Sequence[Aside] = (), beside: Mapping[str, str] | None = None
    ) -> None:
        """Write one shard, whole. What was set aside has a row that says nothing, or none.

        `beside`: the SHA-256 of each file that belongs to the shard, by the file's path from the table's cell.
        """
        expected = len(self.plan.rows_of(shard))
        if len(records) not in (expected, expected - len(aside)):
            raise ValueError(f"shard {shard} of {self.folder.name} takes {expected} rows, got {len(records)}")
        schema = schema_of(self.record)
        if aside:
            schema = schema.with_metadata({ASIDE: json.dumps([dataclasses.astuple(sample) for sample in aside])})
        columns = [_column([getattr(r, f.name) for r in records], f.type) for f in schema]
        table = pa.Table.from_arrays(columns, schema=schema)
        write_bytes(self.path(shard), parquet_content(table, beside or {}))

    def remove(self, shard: int) -> None:
        """Remove one shard, so that it is made again."""
        self.path(shard).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all shards."""
        for shard in range(self.plan.shards):
            self.remove(shard)

    def batches(self, columns: Sequence[str] | None = None, at_once: int = READ_ROWS) -> Iterator[pa.RecordBatch]:
        """All rows in order, some at a time. The table must be complete."""
        missing = self.missing()
        if missing:
            raise StoreError(
                f"{self.folder}: {len(missing)} of {self.plan.shards} shards are missing",
                "Run the study again; it makes only what is missing.",
            )
        for shard, source in enumerate(sources([self.path(shard) for shard in range(self.plan.shards)])):
            yield from self._shard(shard, source, columns, at_once)

    def __iter__(self) -> Iterator[R]:
        return self.rows()

    def rows(self, ids: Collection[str] | None = None) -> Iterator[R]:
        """All rows in order, or those with one of some ids: a row that is not asked for is never made."""
        if ids is None:
            batches = self.batches()
        else:
            wanted = pa.array(list(ids), pa.string())
            looked = self.batches(at_once=LOOK_ROWS)
            batches = (batch.filter(pc.is_in(batch["id"], value_set=wanted)) for batch in looked)
        for batch in batches:
            for row in batch.to_pylist():
                yield self.record(**row)

    def where(self, equal: Mapping[str, str], words: dict[str, set[str]] | None = None) -> Iterator[R]:
        """The rows in which some columns have these values; no other row is made.

        `words` gets, by column, all values that the table has.
        """
        for batch in self.batches(at_once=WIDE_LOOK):
            mask = None
            for column, value in equal.items():
                if words is not None:
                    words[column].update(pc.unique(batch[column]).to_pylist())
                same = pc.equal(batch[column], value)
                mask = same if mask is None else pc.and_(mask, same)
            for row in (batch if mask is None else batch.filter(mask)).to_pylist():
                yield self.record(**row)

    def values(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of all rows in order."""
        for batch in self.batches(columns, LOOK_ROWS):
            yield from zip(*(batch[column].to_pylist() for column in columns), strict=True)

    def read(self, shard: int) -> list[R]:
        """The rows of one shard."""
        (source,) = sources([self.path(shard)])
        batches = self._shard(shard, source, None, READ_ROWS)
        return [self.record(**row) for batch in batches for row in batch.to_pylist()]

    def _shard(
        self, shard: int, source: Callable[[], Path | BinaryIO], columns: Sequence[str] | None, at_once: int
    ) -> Iterator[pa.RecordBatch]:
        path, expected = self.path(shard), len(self.plan.rows_of(shard))
        try:
            content = source()
            about = read_footer(content) if isinstance(content, Path) else footer_of(content)
            check_pages(content, about)
            with pq.ParquetFile(content, metadata=about, page_checksum_verification=True) as file:
                if not file.schema_arrow.equals(schema_of(self.record)):
                    raise StoreError(f"{path} was written by another version of anchorscope (its columns differ)")
                if about.num_rows != expected and not self.look(shard).whole:
                    raise StoreError(f"{path} has {about.num_rows} rows instead of {expected}")
                for batch in file.iter_batches(batch_size=at_once, columns=columns):
                    if not has_checksums(about):
                        batch.validate(full=True)  # such as texts that are not UTF-8
                    yield batch
        except (pa.ArrowException, OSError, ValueError) as error:
            raise StoreError(f"{path} is damaged ({error})", "Delete this file and run the study again.") from None


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column of plain values, or of arrays of one or several dimensions, which become lists in lists."""
    if not values or not isinstance(values[0], np.ndarray) or values[0].ndim < 2:
        return pa.array(values, type=kind)
    column = pa.array(np.concatenate([array.ravel() for array in values]))
    for axis in reversed(range(values[0].ndim)):  # the innermost lists first
        lengths = [np.full(math.prod(array.shape[:axis]), array.shape[axis]) for array in values]
        ends = np.cumsum(np.concatenate(lengths))
        column = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), column)
    return column.cast(kind)


def as_arrays(column: Any) -> list[NDArray[np.float32]]:
    """The lists of an Arrow column as arrays, lists in lists as arrays of as many dimensions."""
    levels = []  # where the lists of each level begin and end, the outermost first
    while pa.types.is_list(column.type):
        levels.append(column.offsets.to_numpy())
        column = column.values
    flat, arrays = column.to_numpy(), []
    for row in range(len(levels[0]) - 1):
        shape, first = [], row
        for ends in levels:
            # all lists of one level have the same length, so the first one tells
            shape.append(int(ends[first + 1] - ends[first]) if first + 1 < len(ends) and 0 not in shape else 0)
            first = int(ends[first])
        arrays.append(flat[first : first + math.prod(shape)].reshape(shape))
    return arrays
