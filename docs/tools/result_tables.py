"""Write the tables that pages of results/ are filled from (found.py).

    python docs/tools/result_tables.py RUN FOLDER

cells.csv has the counts of questions, grades and traced answers. half.csv has the knockout beside its nulls, controls,
refits, corrections and attention mass at the middle layer (fixed in advance), for every read point. evidence.csv has
every line of the experiments at that layer.
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

from anchorscope.evidence.claim import HALF
from anchorscope.evidence.lines import lines_of
from anchorscope.grades.record import GRADES
from anchorscope.pathways.lookup import measured
from anchorscope.pathways.record import PATHWAYS, Key, Statistic
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES

POINT = ReadPoint("mlp", "answer_last")
HALVES = {"split": "anchor_half", "anchor": "half"}
SAME = {"split": "anchor_same", "anchor": "half"}
Q_A: dict[str, Any] = {"group": "Q-A"}
RIGHT: dict[str, Any] = {"stratum": "predicted_correct"}

CONTROLS: dict[str, dict[str, Key]] = {
    "What can be read, and what the question alone gives away (AUROC)": {
        "answer": Key("auroc", "clean"),
        "question-only": Key("auroc_question_only", "clean"),
        "text-only": Key("auroc_text_only", "clean"),
        "refit on knocked-out states": Key("auroc_refit", "knockout"),
        "refit on the control's": Key("auroc_refit", "control_question"),
    },
    "ΔAUROC: the knockout, its null and its controls": {
        "knockout": Key("delta_auroc", "knockout"),
        "permuted": Key("delta_auroc", "permuted"),
        "knockout − permuted": Key("delta_auroc", "knockout-permuted"),
        "matched − control_question": Key("delta_auroc", "matched_question-control_question"),
        "control_prefix": Key("delta_auroc", "control_prefix"),
        "refit (gone)": Key("delta_auroc_refit", "knockout"),
    },
    "ΔP of Q − A (halves): the knockout against its null": {
        "knockout": Key("delta_p", "knockout", **HALVES, **Q_A),
        "permuted": Key("delta_p", "permuted", **HALVES, **Q_A),
        "knockout − permuted": Key("delta_p", "knockout-permuted", **HALVES, **Q_A),
        "knockout, predicted right": Key("delta_p", "knockout", **HALVES, **Q_A, **RIGHT),
        "permuted, predicted right": Key("delta_p", "permuted", **HALVES, **Q_A, **RIGHT),
        "difference, predicted right": Key("delta_p", "knockout-permuted", **HALVES, **Q_A, **RIGHT),
    },
    "ΔP of Q (halves)": {
        "knockout": Key("delta_p", "knockout", **HALVES, group="Q"),
        "permuted": Key("delta_p", "permuted", **HALVES, group="Q"),
        "knockout − permuted": Key("delta_p", "knockout-permuted", **HALVES, group="Q"),
        "A, knockout": Key("delta_p", "knockout", **HALVES, group="A"),
        "A, permuted": Key("delta_p", "permuted", **HALVES, group="A"),
    },
    "ΔP of Q − A (halves), with three drift corrections": {
        "none": Key("delta_p", "knockout", **HALVES, **Q_A),
        "all samples": Key("delta_p", "knockout", **HALVES, **Q_A, correction="drift"),
        "within predicted class": Key("delta_p", "knockout", **HALVES, **Q_A, correction="drift_class"),
        "the control's": Key("delta_p", "knockout", **HALVES, **Q_A, correction="drift_control"),
    },
    "Selection at equal strength: ΔP of Q": {
        "one half labels and measures": Key("delta_p", "knockout", **SAME, group="Q"),
        "crossed halves": Key("delta_p", "knockout", **HALVES, group="Q"),
        "permuted, one half": Key("delta_p", "permuted", **SAME, group="Q"),
        "permuted, crossed": Key("delta_p", "permuted", **HALVES, group="Q"),
    },
    "Share of attention that the cut removes in this layer": {
        name: Key("mass", name) for name in ("knockout", "control_question", "control_prefix")
    },
    "ΔAUROC per share of attention removed up to this layer": {
        name: Key("delta_auroc_per_mass", name)
        for name in ("knockout", "matched_question", "control_question", "control_prefix")
    },
} | {
    f"HotpotQA, {kind.replace('_', '/')} questions: ΔAUROC": {
        "as many exact tokens": Key("delta_auroc", "matched_question", stratum=f"kind_{kind}"),
        "other tokens": Key("delta_auroc", "control_question", stratum=f"kind_{kind}"),
        "difference": Key("delta_auroc", "matched_question-control_question", stratum=f"kind_{kind}"),
    }
    for kind in ("yes_no", "either_or", "entity")
}


def write_tables(store: Store, folder: Path) -> None:
    """Write the three tables; a study without evidence has no evidence.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, Any]]] = {
        "cells": [asdict(cell) for cell in counted(store)],
        "half": [asdict(row) for point in store.study.traces.points for row in half_way(store, point)],
        "evidence": list(experiment_lines(store)),
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
    for origin, cell in measured(store, PATHWAYS, POINT):
        grades = Counter(row.judgement for row in cell.table(GRADES))
        traced = Counter(bool(row.correct) for row in cell.table(TRACES))
        told = grades["right"] + grades["wrong"]
        counts = (grades["right"], grades["wrong"], grades.total() - told, traced[True], traced[False])
        yield Counts(origin.model, origin.dataset, grades.total(), *counts)


def half_way(store: Store, point: ReadPoint = POINT) -> Iterator[Statistic]:
    """The numbers of CONTROLS at the middle layer."""
    wanted = {key for columns in CONTROLS.values() for key in columns.values()}
    for _, cell in measured(store, PATHWAYS, point):
        rows = [row for row in cell.table(PATHWAYS.at(point)) if row.key in wanted]
        middle = round(max(row.layer for row in rows) / 2)
        yield from (row for row in rows if row.layer in (middle, -1))


def experiment_lines(store: Store) -> Iterator[dict[str, str]]:
    """Every line of the experiments, at the middle layer."""
    names = ("model", "dataset", "experiment", "name", "condition", "stratum", "value", "low", "high", "n")
    for model, sets in lines_of(store, POINT).items():
        for dataset, lines in sets.items():
            for name, curve in lines.items():
                low, high = curve.interval()
                at = round((curve.layers - 1) * HALF)
                ends = [f"{float(values[at]):.5g}" for values in (curve.value, low, high)]
                yield dict(zip(names, (model, dataset, *name, *ends, str(curve.n)), strict=True))


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
