"""Write the table behind `anchorscope demo`, the example that comes with the package.

    python docs/tools/example.py RUN_OR_RESULTS

RUN_OR_RESULTS is a run directory, or a folder with its delta_p.csv, such as results/small-models. Numbers are
rounded to a tenth of a percentage point, and bands over all layers, which the chart does not draw, are left
out. tests/report/test_example.py holds the table to that folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from anchorscope.evidence.chart_figures import DELTA_P
from anchorscope.pathways.lookup import collect, read_statistics
from anchorscope.pathways.record import Statistic
from anchorscope.report.csv import from_csv, to_csv
from anchorscope.report.draw.lines import drawn_rows
from anchorscope.report.example import POINT, TABLE
from anchorscope.store import Store
from anchorscope.store.files import write_bytes

DIGITS = 1
ROUNDED = ("value", "low", "high")


def rows_in(folder: Path) -> list[Statistic]:
    """The rows that the ΔP chart of a run, or of a folder of results, draws."""
    table = folder / f"{DELTA_P.name}.csv"
    if table.exists():
        return from_csv(table, Statistic)
    store = Store.open(folder)
    models, datasets = [model.name for model in store.study.models], [each.name for each in store.study.datasets]
    numbers = collect(read_statistics(store, POINT), DELTA_P.keys, models, datasets, POINT)
    return [row for _, row in drawn_rows(DELTA_P, numbers, models, datasets)]


def table_of(rows: Iterable[Statistic]) -> bytes:
    """The rows as the package holds them."""

    def shortened(row: Statistic) -> Statistic:
        values: dict[str, Any] = {name: getattr(row, name) for name in ROUNDED}
        rounded: dict[str, Any] = {
            name: None if value is None else round(value, DIGITS) for name, value in values.items()
        }
        return replace(row, **rounded, band_low=None, band_high=None)

    return to_csv(map(shortened, rows))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="RUN_OR_RESULTS", help="Run directory or folder of results.")
    content = table_of(rows_in(parser.parse_args(arguments).folder))
    write_bytes(TABLE, content)
    print(f"{TABLE}  ({len(content):,} bytes)")


if __name__ == "__main__":
    main()
