"""Rows of a question set as a file of each format: JSONL, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]


def as_jsonl(rows: Rows) -> bytes:
    """One JSON object a line."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows: Rows) -> bytes:
    """Id, question and accepted answers, the last as a JSON list."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "question", "answers"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows({**row, "answers": json.dumps(row["answers"])} for row in rows)
    return text.getvalue().encode()


def as_parquet(rows: Rows) -> bytes:
    """Row groups of 1,000 rows."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=1_000)
    return sink.getvalue()


ENCODERS: dict[str, Callable[[Rows], bytes]] = {".jsonl": as_jsonl, ".csv": as_csv, ".parquet": as_parquet}
"""Functions from rows to the bytes of a file, by the ending of its name."""
