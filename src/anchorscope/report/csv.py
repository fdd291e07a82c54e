"""Write the numbers behind a chart as CSV, with all their digits, and read them back."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from anchorscope.errors import AnchorscopeError
from anchorscope.pathways.record import Statistic

Record = TypeVar("Record")


def to_csv(rows: Iterable[Any], record: type[Any] = Statistic) -> bytes:
    """The rows of a table as CSV, each number in full; what is too few is empty."""
    columns = [field.name for field in fields(record)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if (value := getattr(row, name)) is None else value for name in columns])
    return text.getvalue().encode()


def from_csv(path: Path, record: type[Record]) -> list[Record]:
    """The rows that `to_csv` wrote: the same numbers to the last digit."""
    read = {name: _reader(hint) for name, hint in get_type_hints(record).items()}
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file)
        if lines.fieldnames is None or list(lines.fieldnames) != list(read):
            raise AnchorscopeError(
                f"{path} is not a table of {record.__name__}: its columns are {', '.join(lines.fieldnames or ())}",
                f"Use a CSV file with the columns {', '.join(read)}.",
            )
        rows = []
        for number, line in enumerate(lines, start=2):
            try:
                rows.append(record(**{name: of(line[name]) for name, of in read.items()}))
            except (TypeError, ValueError) as error:
                raise AnchorscopeError(f"{path}, line {number}: {error}") from error
    return rows


def _reader(hint: Any) -> Callable[[str], Any]:
    """How a field is read from its text; a field that may be None is None where nothing is written."""
    readers: dict[Any, Callable[[str], Any]] = {
        str: str,
        int: int,
        float: float,
        int | None: lambda text: int(text) if text else None,
        float | None: lambda text: float(text) if text else None,
    }
    return readers[hint]
