"""Does the chart show nothing where there is nothing, and is the permutation null what it claims to be?

    python checks/null_effects.py --run RUN

Steps: `chart` fits probes again with shuffled labels, and with noise in place of activations, and counts the layers
whose interval leaves zero out (TriviaQA); `permuted` compares the permutation null as the chart reads it (each sample
receives another sample's shift, as that sample's own probe reads it) with the same null from activations. RUN is a run
of the study small-models, or of one like it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from anchorscope.pathways.effects import effects
from anchorscope.pathways.intervals import resample
from anchorscope.pathways.lookup import measured
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Line, as_lines
from anchorscope.pathways.shifts import make_donors
from anchorscope.probes.fitter import ProbeFitter
from anchorscope.probes.folds import folds_of, make_folds
from anchorscope.probes.probe import load_probes, probes_stem
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.recorded import read_readouts
from anchorscope.store import Store
from anchorscope.study.terms import Condition, Further, ReadPoint
from anchorscope.traces.activations import Activations
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

POINT = ReadPoint("mlp", "answer_last")
HALVES = Key("delta_p", "knockout", "anchor_half", "best", group="Q")
KEYS = {
    "published_q": Key("delta_p", "knockout", "layer", group="Q"),
    "halves_q": HALVES,
    "halves_q_by_layer": Key("delta_p", "knockout", "layer_half", group="Q"),
    "q_minus_placebo": HALVES._replace(condition="matched_question-control_question"),
    "all": Key("delta_p", "knockout", "layer_half"),
    "delta_auroc": Key("delta_auroc", "knockout"),
}


@check.step("run")
def chart(options: Options, work: Path) -> Figures:
    """Effects that are left with shuffled labels, and with noise in place of activations."""
    store = Store.open(options.run)
    conditions: list[Condition] = ["clean", "knockout", "control_question", "matched_question"]
    figures = {}
    for model in store.study.models:
        cell = store.results(model.name, "triviaqa")
        activations = Activations(cell)
        rows = list(activations.table)
        labels, clusters = np.array([r.correct for r in rows]), np.array([r.cluster for r in rows])
        layers = activations.layers(POINT)
        real = activations.reader(POINT)
        shuffled = np.random.default_rng(7).permutation(labels)

        def noise(condition: Condition | Further, layer: int, shape: tuple[int, ...] = real("clean", 0).shape) -> Any:
            seed = [layer, *condition.encode()]
            return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

        for name, target, read in (("real", labels, real), ("shuffled", shuffled, real), ("noise", labels, noise)):
            folds = make_folds(target, clusters, 5, 5, 0)
            fitted = ProbeFitter(target, clusters, folds, store.study.probes, 0)(read, layers, conditions)
            share = np.array([r.probability for r in rows])
            readouts = Readouts(target, clusters, share, tuple(conditions), fitted.logits, fitted.drift)
            drawn = resample(clusters, readouts.repeats, 500, 0)
            parts = effects(readouts, drawn, set(KEYS.values()))
            lines = as_lines(one for part in parts for one in part())
            figures[f"{model.name}/{name}"] = {line: about(lines[key]) for line, key in KEYS.items()}
    return figures


def about(line: Line) -> Figures:
    """Layers whose interval leaves zero out, and the range of values."""
    value, low, high = line.numbers[:3, np.isfinite(line.numbers[0])]
    extreme = [round(float(value.min()), 3), round(float(value.max()), 3)] if len(value) else None
    return {"layers": len(value), "interval_without_zero": int((low * high > 0).sum()), "range": extreme}


@check.step("run")
def permuted(options: Options, work: Path) -> Figures:
    """Correlation, means and spreads of both forms of the null: by the donor's probe, and by the sample's own probe."""
    store, figures = Store.open(options.run), {}
    for origin, cell in measured(store, POINT):
        recorded = read_readouts(store, origin.model, origin.dataset, POINT)
        readouts, activations = recorded.readouts, Activations(cell)
        folds = folds_of(recorded.rows, store.study.probes, store.study.seed)[2]
        probes, _ = load_probes(probes_stem(cell, POINT))
        layer = round((len(probes) - 1) / 2)
        clean, other = (activations.layer(each, POINT, layer).astype(np.float64) for each in ("clean", "knockout"))
        as_read, exact = [], []
        for draw, donors in enumerate(make_donors(readouts.clusters, store.study.seed)):
            repeat = draw % readouts.repeats
            for fold in range(folds.count):
                mine = np.flatnonzero(folds.fold[repeat] == fold)
                weight = probes[layer].weight[repeat, fold, 0].astype(np.float64)
                moved = (other - clean)[donors[mine]] @ weight  # by the sample's own probe, whatever the donor's fold
                own = (readouts.logits[1] - readouts.logits[0])[repeat, 0, donors[mine], layer]
                as_read.append(own)
                exact.append(moved)
        one, two = np.concatenate(as_read), np.concatenate(exact)
        figures[f"{origin.model}, {origin.dataset}"] = {
            "correlation": round(float(np.corrcoef(one, two)[0, 1]), 3),
            "mean of both": [round(float(one.mean()), 3), round(float(two.mean()), 3)],
            "spread of both": [round(float(one.std()), 3), round(float(two.std()), 3)],
        }
    return figures


if __name__ == "__main__":
    check()
