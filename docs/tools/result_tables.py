"""Write the tables that pages of results/ are filled from (found.py).

    python docs/tools/result_tables.py RUN FOLDER

cells.csv has the counts of questions, grades and traced answers. half.csv has the numbers that tables of results show
(evidence/tables.py, and `tables` of each experiment) at the middle layer, fixed in advance, for every read point. Cuts
in windows of layers are read at the last layer. first.csv has the lines of first.png (first_figure.py), by layer.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from first_figure import KEYS, TABLE

from anchorscope.evidence import chart, crossed
from anchorscope.evidence.experiments import experiments
from anchorscope.evidence.tables import CONTROLS
from anchorscope.grades.record import GRADES
from anchorscope.pathways.lookup import measured, read_lines, read_statistics
from anchorscope.pathways.record import Statistic
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES

POINT = ReadPoint("mlp", "answer_last")


def write_tables(store: Store, folder: Path) -> None:
    """Write the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, Any]]] = {
        "cells": [asdict(cell) for cell in counted(store)],
        "half": [asdict(row) for point in store.study.traces.points for row in half_way(store, point)],
        TABLE: [asdict(row) for row in read_statistics(store, POINT) if row.key in KEYS],
    }
    for name, rows in tables.items():
        if rows:
            out = io.StringIO()
            writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            (folder / f"{name}.csv").write_text(out.getvalue(), encoding="utf-8")


@dataclass(frozen=True)
class Counts:
    """How many questions, grades and traced answers a model has on a dataset."""

    model: str
    dataset: str
    questions: int
    right: int
    wrong: int
    not_graded: int
    traced_right: int
    traced_wrong: int


def counted(store: Store) -> Iterator[Counts]:
    """The counts of every model and dataset."""
    for origin, cell in measured(store, POINT):
        grades = Counter(row.judgement for row in cell.table(GRADES))
        traced = Counter(bool(row.correct) for row in cell.table(TRACES))
        told = grades["right"] + grades["wrong"]
        counts = (grades["right"], grades["wrong"], grades.total() - told, traced[True], traced[False])
        yield Counts(origin.model, origin.dataset, grades.total(), *counts)


def half_way(store: Store, point: ReadPoint) -> Iterator[Statistic]:
    """The numbers that tables of results show, at the middle layer."""
    wanted = {key for columns in CONTROLS.values() for key in columns.values()}
    wanted |= {key for each in experiments() if each is not chart.EXPERIMENT for key in each.tables}
    for origin, cell in measured(store, point):
        lines = read_lines(cell, point, replicates=False).values()
        rows = [row for line in lines if line.key.among(wanted) for row in line.rows(origin)]
        last = max(row.layer for row in rows)
        for row in rows:
            if row.layer in (-1, last if row.key in crossed.AT_LAST else round(last / 2)):
                yield row


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the tables of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="Run directory.")
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="Folder for the tables, such as results/small-models."
    )
    options = parser.parse_args(arguments)
    write_tables(Store.open(options.run), options.folder)


if __name__ == "__main__":
    main()
