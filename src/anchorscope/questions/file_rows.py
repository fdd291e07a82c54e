"""Rows of local files, one at a time: JSONL, CSV and Parquet, with the line of everything that is wrong.

Files come from anywhere, so nothing about them is trusted: no line is read whole beyond `MAX_LINE`, text is
UTF-8 or refused, and every way a file can be broken ends in a QuestionsError that names the line.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

from anchorscope.errors import QuestionsError, did_you_mean, printable, reason_of

MAX_LINE = 16 << 20  # bytes; a longer line is not a question
FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet"}
_BOMS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\x1f\x8b": "gzip", b"PK": "zip"}

RawRow = dict[str, Any]
csv.field_size_limit(MAX_LINE)


@dataclass(frozen=True)
class FileRows:
    path: Path
    columns: tuple[str, ...] | None = None
    """Columns that are read; only Parquet can skip the others."""
    needed: tuple[str, ...] = ()
    """Columns that must be there."""

    @property
    def unit(self) -> Literal["line", "row"]:
        """What the numbers of its rows count."""
        return "row" if self.path.suffix.lower() == ".parquet" else "line"

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def format(self) -> str:
        """jsonl, csv, tsv or parquet, by the file's ending."""
        suffix = self.path.suffix.lower()
        if suffix not in FORMATS:
            raise QuestionsError(
                f"{self.path}: cannot tell the format from the ending '{suffix}'; {did_you_mean(suffix, FORMATS)}"
            )
        return FORMATS[suffix]

    def identity(self) -> dict[str, Any]:
        """What the rows are, wherever the file lies: hash and size."""
        digest = hashlib.sha256()
        with self._open() as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
            size = stream.tell()
        return {"kind": "file", "sha256": digest.hexdigest(), "bytes": size}

    def describe(self) -> str:
        """For people: that it is there, and how large."""
        return f"{self.identity()['bytes']:,} bytes"

    def __iter__(self) -> Iterator[tuple[int, RawRow]]:
        """Yield (line or row number from 1, row)."""
        read = {"jsonl": self._jsonl, "csv": self._csv, "tsv": self._csv, "parquet": self._parquet}[self.format]
        try:
            yield from read()
        except OSError as error:
            raise QuestionsError(f"{self.path}: {error.strerror or error}") from None

    def _open(self) -> BinaryIO:
        if not self.path.exists():
            raise QuestionsError(f"{self.path}: no such file")
        if not self.path.is_file():
            raise QuestionsError(f"{self.path}: not a file")
        try:
            return self.path.open("rb")
        except OSError as error:
            raise QuestionsError(f"{self.path}: {error.strerror or error}") from None

    def _fail(self, line: int, problem: str, hint: str = "") -> NoReturn:
        raise QuestionsError(f"{self.path}:{line}: {problem}", hint)

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Lines of a text file with their line ends, bounded in length, UTF-8 or refused."""
        with self._open() as stream:
            line = 0
            while raw := stream.readline(MAX_LINE + 1):
                line += 1
                if len(raw) > MAX_LINE:
                    self._fail(line, f"the line is longer than {MAX_LINE >> 20} MiB")
                if line == 1:
                    for mark, kind in _BOMS.items():
                        if raw.startswith(mark):
                            self._fail(1, f"this is {kind}, not UTF-8 text", "Convert or unpack the file first.")
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                try:
                    yield line, raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    self._fail(line, f"not UTF-8 text (byte {error.start + 1} of the line)", "Save it as UTF-8.")

    def _jsonl(self) -> Iterator[tuple[int, RawRow]]:
        for line, text in self._lines():
            if not text.strip():
                continue
            try:
                row = json.loads(text, object_pairs_hook=_once)
            except _RepeatedKeyError as error:
                self._fail(line, f"the key '{printable(str(error))}' is given twice")
            except json.JSONDecodeError as error:
                cut = "" if text.endswith("\n") else " (the file may have been cut off)"
                self._fail(line, f"not JSON: {error.msg} at column {error.colno}{cut}")
            except RecursionError:
                self._fail(line, "nested too deeply")
            except ValueError:
                self._fail(line, "not JSON: a number is too long")
            if not isinstance(row, dict):
                self._fail(line, 'each line should be one JSON object, like {"question": …, "answers": […]}')
            yield line, row

    def _csv(self) -> Iterator[tuple[int, RawRow]]:
        current = 0

        def text() -> Iterator[str]:
            nonlocal current
            for number, line in self._lines():
                current = number
                yield line

        # strict: an open quote at the end of the file is an error, not a last, huge cell
        reader = csv.reader(text(), delimiter="\t" if self.format == "tsv" else ",", strict=True)
        start = 1  # the line a record starts on: a cell may hold line ends
        try:
            header = next(reader, None)
            if header is None:
                return
            if len(set(header)) != len(header):
                self._fail(1, "two columns have the same name")
            start = current + 1
            for cells in reader:
                if cells:
                    if len(cells) != len(header):
                        self._fail(start, f"{len(cells)} cells, but the header has {len(header)}")
                    yield start, dict(zip(header, cells, strict=True))
                start = current + 1
        except csv.Error as error:
            self._fail(start, f"not CSV: {error}")

    def _parquet(self) -> Iterator[tuple[int, RawRow]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        row = 0
        self._open().close()
        try:
            with pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file:
                there = file.schema_arrow.names
                if len(set(there)) != len(there):
                    raise QuestionsError(f"{self.path}: two columns have the same name")
                wanted = [name for name in there if self.columns is None or name in self.columns]
                if not set(self.needed) <= set(there):
                    wanted = there  # the error will list them all
                for batch in file.iter_batches(batch_size=256, columns=wanted):
                    for values in batch.to_pylist():
                        row += 1
                        yield row, values
        except (pa.ArrowException, UnicodeDecodeError, OverflowError, ValueError, OSError) as error:
            if isinstance(error, QuestionsError):
                raise
            reason = reason_of(error)
            raise QuestionsError(f"{self.path}: after row {row}: not a readable Parquet file ({reason})") from None


class _RepeatedKeyError(Exception):
    """A JSON object that gives one key twice, where json.loads would silently keep the last."""


def _once(pairs: list[tuple[str, Any]]) -> RawRow:
    row: RawRow = {}
    for key, value in pairs:
        if key in row:
            raise _RepeatedKeyError(key)
        row[key] = value
    return row
