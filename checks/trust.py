"""What labels, nulls and intervals must show: `make verify-trust`. Its last line is JSON.

Steps (all by default, or name some): labels (the grader against what was read), tables (what is left of two pathways,
per model and set, as Markdown), permuted (the null from read-outs against the one from activations), cost (the
pathways stage with nulls and refits against an older checkout, given as --before). Coverage is checks/coverage.py.
RUN is a run of studies/small-models, or of a study like it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reading
from anchorscope.pathways.lookup import measured
from anchorscope.pathways.record import PATHWAYS, Key, Statistic
from anchorscope.pathways.shifts import make_donors
from anchorscope.pathways.stage import every_series
from anchorscope.pathways.statistics import DRAWS
from anchorscope.probes.folds import folds_of
from anchorscope.probes.probe import load_probes, probes_stem
from anchorscope.probes.recorded import read_readouts
from anchorscope.store import Store
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.activations import Activations

POINT = ReadPoint("mlp", "answer_last")
HALVES = {"split": "anchor_half", "anchor": "half"}
SAME = {"split": "anchor_same", "anchor": "half"}
Q_A: dict[str, Any] = {"group": "Q-A"}
RIGHT: dict[str, Any] = {"stratum": "predicted_correct"}

TABLES: dict[str, dict[str, Key]] = {
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
    "ΔP of Q − A (halves), drift taken off in three ways": {
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
    "Attention that is removed in this layer, and ΔAUROC by what is removed up to it": {
        "knockout": Key("mass", "knockout"),
        "control_question": Key("mass", "control_question"),
        "control_prefix": Key("mass", "control_prefix"),
        "ΔAUROC per mass, knockout": Key("delta_auroc_per_mass", "knockout"),
        "… matched_question": Key("delta_auroc_per_mass", "matched_question"),
        "… control_question": Key("delta_auroc_per_mass", "control_question"),
        "… control_prefix": Key("delta_auroc_per_mass", "control_prefix"),
    },
    "HotpotQA by kind: ΔAUROC of as many exact tokens, of other tokens, and their difference": {
        f"{kind.replace('_', '/')}: {name}": Key("delta_auroc", condition, stratum=f"kind_{kind}")
        for kind in ("yes_no", "either_or", "entity")
        for name, condition in (
            ("matched", "matched_question"),
            ("control", "control_question"),
            ("difference", "matched_question-control_question"),
        )
    },
}


def tables(store: Store) -> dict[str, Any]:
    """Every table as Markdown, at the layer half-way up (fixed in advance), and its numbers."""
    numbers: dict[str, Any] = {}
    wanted = {key for columns in TABLES.values() for key in columns.values()}
    for origin, cell in measured(store, PATHWAYS, POINT):
        rows = [row for row in cell.table(PATHWAYS.at(POINT)) if row.key in wanted]
        layers = 1 + max(row.layer for row in rows)
        middle = round((layers - 1) / 2)
        at = {row.key: row for row in rows if row.layer in (middle, -1)}
        name = f"{origin.model}, {origin.dataset}"
        numbers[name] = {
            title: {column: _numbers(at.get(key)) for column, key in columns.items()}
            for title, columns in TABLES.items()
        }
    for title, columns in TABLES.items():
        lines = [f"| {name} | " + " | ".join(_shown(each[title][c]) for c in columns) + " |"
                 for name, each in numbers.items() if any(each[title].values())]  # fmt: skip
        print(
            f"**{title}**\n\n| model, set | {' | '.join(columns)} |\n|{'---|' * (1 + len(columns))}",
            *lines,
            "",
            sep="\n",
        )
    return numbers


def _numbers(row: Statistic | None) -> list[float] | None:
    if row is None or row.value is None or row.low is None or row.high is None:
        return None
    return [row.value, row.low, row.high]


def _shown(numbers: list[float] | None) -> str:
    if numbers is None:
        return "–"
    digits = 1 if max(map(abs, numbers)) >= 2 else 3
    value, low, high = (f"{each:.{digits}f}".replace("-", "−") for each in numbers)
    return f"{value} ({low} to {high})"


def permuted(store: Store) -> dict[str, Any]:
    """`permuted` as it is read, against clean_i + (knockout_j − clean_j) under i's own probe, j of the same fold."""
    found = {}
    for origin, cell in measured(store, PATHWAYS, POINT):
        recorded = read_readouts(store, origin.model, origin.dataset, POINT)
        readouts, activations = recorded.readouts, Activations(cell)
        folds = folds_of(recorded.rows, store.study.probes, store.study.seed)[2]
        probes, _ = load_probes(probes_stem(cell, POINT))
        layer = round((len(probes) - 1) / 2)
        clean, other = (activations.layer(each, POINT, layer).astype(np.float64) for each in ("clean", "knockout"))
        as_read, exact = [], []
        for draw, donors in enumerate(make_donors(readouts.clusters, DRAWS, store.study.seed)):
            repeat = draw % readouts.repeats
            for fold in range(folds.count):
                mine = np.flatnonzero(folds.fold[repeat] == fold)
                weight = probes[layer].weight[repeat, fold, 0].astype(np.float64)
                moved = (other - clean)[donors[mine]] @ weight  # by i's probe, whichever fold j is of
                own = (readouts.logits[1] - readouts.logits[0])[repeat, 0, donors[mine], layer]
                as_read.append(own)
                exact.append(moved)
        one, two = np.concatenate(as_read), np.concatenate(exact)
        found[f"{origin.model}, {origin.dataset}"] = {
            "correlation": round(float(np.corrcoef(one, two)[0, 1]), 3),
            "mean of both": [round(float(one.mean()), 3), round(float(two.mean()), 3)],
            "spread of both": [round(float(one.std()), 3), round(float(two.std()), 3)],
        }
    return found


def cost(store: Store, before: Path | None) -> dict[str, Any]:
    """Seconds of the pathways stage on one cell, here and in an older checkout, in turns."""
    origin, _ = next(measured(store, PATHWAYS, POINT))
    recorded = read_readouts(store, origin.model, origin.dataset, POINT)
    readouts = recorded.readouts
    resamples = store.study.probes.resamples
    np.savez("/tmp/anchorscope-cost.npz", labels=readouts.labels, clusters=readouts.clusters,  # noqa: S108
             probability=readouts.probability, logits=readouts.logits[:7], drift=readouts.drift[:7])  # fmt: skip
    conditions = readouts.conditions[:7]
    old = (
        "import numpy as np, time\n"
        "from anchorscope.pathways import *\n"
        "from anchorscope.readouts import Readouts\n"
        "d = np.load('/tmp/anchorscope-cost.npz')\n"
        f"r = Readouts(d['labels'], d['clusters'], d['probability'], {conditions!r}, d['logits'], d['drift'])\n"
        "import anchorscope.pathways as p\n"
        "start = time.perf_counter()\n"
        f"rows = p.pathways(r, 'm', 'd', 'mlp', 'answer_last', {resamples}, 0)\n"
        "print(time.perf_counter() - start)\n"
    )
    times: dict[str, list[float]] = {"now": [], "before": []}
    for _ in range(2):
        start = time.perf_counter()
        rows = [row for one in every_series(recorded, resamples, 0) for row in one.rows(origin)]
        times["now"].append(time.perf_counter() - start)
        assert rows
        if before is not None:
            done = subprocess.run([sys.executable, "-c", old], env={"PYTHONPATH": str(before / "src"), "PATH": ""},
                                  capture_output=True, text=True)  # fmt: skip
            times["before"].append(float(done.stdout or "nan"))
            if done.returncode:
                print(done.stderr[-2000:])
    return {name: [round(each, 1) for each in seconds] for name, seconds in times.items()}


def steps(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Each step that is asked for, and what it found."""
    store = Store.open(options.run)
    every = {
        "labels": lambda: reading.count(store),
        "tables": lambda: tables(store),
        "permuted": lambda: permuted(store),
        "cost": lambda: cost(store, options.before),
    }
    for name in options.steps or every:
        print(f"== {name}", flush=True)
        yield name, every[name]()


def main() -> None:
    """Run the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("steps", nargs="*")
    parser.add_argument("--before", type=Path, help="an older checkout")
    options = parser.parse_args()
    print(json.dumps(dict(steps(options)), ensure_ascii=False))


if __name__ == "__main__":
    main()
