"""What several tables of a run share: its cells, and shares with intervals."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anchorscope.pathways.intervals import wilson
from anchorscope.store import Kind, Store


def cells_of(store: Store, table: str, only: str | None = None) -> list[tuple[str, str]]:
    """The models and sets that have a table; those of one model if its name is given."""
    cells = [(model.name, dataset.name) for model in store.study.models for dataset in store.study.datasets]
    wanted = [cell for cell in cells if only in (None, cell[0])]
    return [cell for cell in wanted if store.results(*cell).entry(Kind(table, dict)) is not None]


def write_rows(place: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file; fractions have five digits."""
    with place.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.5g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def share(k: int, n: int, digits: int = 1) -> dict[str, float]:
    """A share in percent, with its 95 % Wilson interval."""
    low, high = wilson(k, n)
    shares = {"percent": k / max(1, n), "low": low, "high": high}
    return {"k": k, "n": n, **{name: round(100 * value, digits) for name, value in shares.items()}}
