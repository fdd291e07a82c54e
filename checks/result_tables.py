"""Which numbers does a run's page of results state? Its tables as Markdown, and the controls' numbers as JSON.

    python checks/result_tables.py --run RUN

Steps: `first` prints the run's main numbers and the groups under every split; `controls` prints, at the middle layer
(fixed in advance), the knockout beside its nulls, controls, refits, corrections and attention mass. Both read the
pathways at the MLP's output and the last exact answer token. `written` writes what pages of
results/ are filled from (docs/tools/found.py): cells.csv has the counts of questions, grades and traced answers,
half.csv the numbers of `controls` at every read point, evidence.csv every line of the experiments at that layer.
"""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anchorscope.evidence.claim import HALF
from anchorscope.evidence.lines import lines_of
from anchorscope.grades.record import GRADES
from anchorscope.pathways.headline import Curves, Headline, Number, headlines
from anchorscope.pathways.lookup import measured
from anchorscope.pathways.record import PATHWAYS, Key, Statistic
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

POINT = ReadPoint("mlp", "answer_last")
SPLITS = {
    "published": "Published split (`split: layer`)",
    "anchor": "One label per sample (`split: anchor`)",
    "halves": "Split halves (`anchor_half`)",
    "halves_drift": "Split halves, drift corrected",
    "halves_predicted_correct": "Split halves, answers the probe takes for right",
    "halves_predicted_wrong": "Split halves, answers the probe takes for wrong",
    "halves_label_correct": "Split halves, answers that are right",
    "halves_label_wrong": "Split halves, answers that are wrong",
}
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


def shown(number: Number | None, digits: int) -> str:
    """Value, interval, and the layer where there is one."""
    if number is None or number.low is None or number.high is None:
        return "too few"
    value, low, high = (f"{each:.{digits}f}".replace("-", "−") for each in (number.value, number.low, number.high))
    return f"{value} ({low} to {high})" + (f" @{number.layer}" if number.layer is not None else "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def groups(curves: Curves) -> list[str]:
    """The columns for one split of one model and set."""
    share, spread = curves.share_q, curves.a_range
    return [
        f"{100 * share.value:.0f} %" if share else "–",
        shown(curves.q_lowest, 0),
        shown(curves.a_there, 0),
        f"{spread[0]:.0f}…{spread[1]:.0f}".replace("-", "−") if spread else "–",
        shown(curves.q_minus_a, 0),
    ]


def tables(cells: Sequence[Headline]) -> Iterator[str]:
    """The lines of all tables of the main numbers."""
    named = [([f"{cell.model}, {cell.dataset}"], cell) for cell in cells]
    keys = {"AUROC": "auroc", "question-only": "auroc_question_only", "text-only": "auroc_text_only"}
    relations = [shown(h.numbers["auroc_within_relation"], 2).replace("too few", "–") for h in cells]
    yield from table(
        ["model, set", "n (right)", *keys, "within relation"],
        [
            [*name, f"{h.n:,} ({h.right:,})", *(shown(h.numbers[key], 3) for key in keys.values()), relation]
            for (name, h), relation in zip(named, relations, strict=True)
        ],
    )
    yield "ΔAUROC under the knockout at its lowest layer, and in that layer with equal numbers of tokens cut.\n"
    keys = {
        "knockout, lowest": "delta_auroc_lowest",
        "matched": "delta_auroc_matched_question",
        "control": "delta_auroc_control_question",
        "matched − control": "delta_auroc_matched_question-control_question",
    }
    yield from table(
        ["model, set", *keys], [[*name, *(shown(h.numbers[k], 3) for k in keys.values())] for name, h in named]
    )
    for split, title in SPLITS.items():
        yield f"**{title}**\n"
        head = ["model, set", "share Q", "lowest ΔP of Q @layer", "ΔP of A there", "range of ΔP of A", "Q − A there"]
        yield from table(head, [[*name, *groups(h.curves[split])] for name, h in named])
    yield "**Against placebo (`anchor_half`), and how stable labels are**\n"
    yield from table(
        ["model, set", "Q − placebo-Q, other question tokens", "Q − placebo-Q, random tokens", "kappa"],
        [
            [
                *name,
                shown(h.numbers["placebo_question"], 0),
                shown(h.numbers["placebo_random"], 0),
                shown(h.numbers["kappa"], 2),
            ]
            for name, h in named
        ],
    )


@check.step("run")
def first(options: Options, work: Path) -> None:
    """Print the tables of the main numbers."""
    print("\n".join(tables(list(headlines(Store.open(options.run), POINT)))))


@check.step("run")
def controls(options: Options, work: Path) -> Figures:
    """Print the tables of the controls, and return their numbers."""
    numbers: dict[str, Any] = {}
    by_cell: defaultdict[str, dict[Key, Statistic]] = defaultdict(dict)
    for row in half_way(Store.open(options.run)):
        by_cell[f"{row.model}, {row.dataset}"][row.key] = row
    for name, at in by_cell.items():
        numbers[name] = {
            title: {column: _numbers(at.get(key)) for column, key in columns.items()}
            for title, columns in CONTROLS.items()
        }
    for title, columns in CONTROLS.items():
        rows_of = [
            [name, *(_with_interval(by_title[title][column]) for column in columns)]
            for name, by_title in numbers.items()
            if any(by_title[title].values())
        ]
        print(f"**{title}**\n", *table(["model, set", *columns], rows_of), sep="\n")
    return numbers


@check.step("run", by_default=False)
def written(options: Options, work: Path) -> Figures:
    """Write cells.csv, half.csv and evidence.csv."""
    store = Store.open(options.run)
    options.output.mkdir(parents=True, exist_ok=True)
    rows = {
        "cells": [asdict(cell) for cell in counted(store)],
        "half": [asdict(row) for point in store.study.traces.points for row in half_way(store, point)],
        "evidence": list(experiment_lines(store)),
    }
    for name, lines in rows.items():
        if not lines:  # a study without evidence
            continue
        out = io.StringIO()
        writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        (options.output / f"{name}.csv").write_text(out.getvalue(), encoding="utf-8")
    return {name: len(lines) for name, lines in rows.items()}


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
    """The numbers of `controls` at the middle layer."""
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


def _numbers(row: Statistic | None) -> list[float] | None:
    if row is None or row.value is None or row.low is None or row.high is None:
        return None
    return [row.value, row.low, row.high]


def _with_interval(numbers: list[float] | None) -> str:
    if numbers is None:
        return "–"
    digits = 1 if max(map(abs, numbers)) >= 2 else 3
    value, low, high = (f"{number:.{digits}f}".replace("-", "−") for number in numbers)
    return f"{value} ({low} to {high})"


check.option("--output", "With `written`, write the tables into DIR", Path(), type=Path, metavar="DIR")

if __name__ == "__main__":
    check()
