"""The numbers behind a chart as CSV, each in full."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from anchorscope.pathways.record import Statistic


def to_csv(rows: Iterable[Any], record: type[Any] = Statistic) -> bytes:
    """The rows of a table as CSV, each number in full; what is too few is empty."""
    columns = [field.name for field in fields(record)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if (value := getattr(row, name)) is None else value for name in columns])
    return text.getvalue().encode()
