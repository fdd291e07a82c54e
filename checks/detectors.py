"""Detectors, checked: the table of a run, the null, promises in made-up worlds, latency, reloading, other dtypes.

`python checks/detectors.py --run RUN [STEP …]`; without steps the core: all but transfer, labels, errors and cost. The
last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import MEAN, by_error, compared, kinds_of_error, lookup
from anchorscope.detectors.crossfit import WIDENED, Labelled, cross_scored, folds_for, pooled
from anchorscope.detectors.detector import Card, FittedDetector
from anchorscope.detectors.drift import drift_of, moments_of
from anchorscope.detectors.fit import fit_detector, recalibrated
from anchorscope.detectors.inputs import Inputs, States, states_among
from anchorscope.detectors.scored import measured, read_scores
from anchorscope.detectors.session import Session, about_of, apart, reader_of, refused, witness_of
from anchorscope.detectors.tables import read_labelled
from anchorscope.detectors.thresholds import Promise, choose_threshold, rates
from anchorscope.detectors.training import area
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.pathways.intervals import Estimate, estimate, mean_auroc, resample
from anchorscope.probes.logistic import balanced_log_loss
from anchorscope.progress import printed, told
from anchorscope.spans.samples import read_samples
from anchorscope.store import Kind, Store
from anchorscope.study import ModelSpec
from anchorscope.study.terms import StateName
from anchorscope.traces.record import TRACES
from generalise import carried, learning

SHUFFLED = "scores_shuffled"
CLEAN = StateName("clean", "mlp", "answer_last")
ONLY: str | None = None  # the model that is meant; None: all


def cells_of(store: Store, table: str) -> list[tuple[str, str]]:
    """The models and sets that have a table."""
    every = [(model.name, dataset.name) for model in store.study.models for dataset in store.study.datasets]
    every = [cell for cell in every if ONLY in (None, cell[0])]
    return [cell for cell in every if store.results(*cell).entry(Kind(table, dict)) is not None]


def table(store: Store) -> dict[str, Any]:
    """The comparison: our best against the single-layer probe, and beyond the question."""
    cells = [measured(store, *cell) for cell in cells_of(store, "scores")]
    rows = lookup(compared(cells))
    out: dict[str, Any] = {"cells": len(cells)}
    for name in cells[0].auroc:
        if ("all", MEAN, name, "auroc") not in rows:
            continue
        ahead = [rows[c.model, c.dataset, name, "beyond_question"] for c in cells if name in c.auroc]
        each: dict[str, Any] = {}
        for what in ("auroc", "auroc_minus_single_layer", "beyond_question"):
            row = rows.get(("all", MEAN, name, what))
            each[what] = [round(v, 4) for v in (row.value, row.low, row.high)] if row else None
        each["cells beyond the question"] = sum(row.low > 0 for row in ahead)
        out[name] = each
        print(f"{name:22} {each}")
    return out


def null(store: Store) -> dict[str, Any]:
    """Labels dealt anew in every cell: AUROC of each detector, mean over cells, with the interval of that mean."""
    by_name: dict[str, list[float]] = {}
    for cell in cells_of(store, SHUFFLED):
        samples, scores = read_scores(store, *cell, shuffled=True)
        for name, each in scores.items():
            by_name.setdefault(name, []).append(float(np.mean([area(row, samples.right) for row in each])))
    out = {}
    for name, values in by_name.items():
        spread = 2.36 * float(np.std(values, ddof=1)) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        mean = float(np.mean(values))
        out[name] = {"auroc": round(mean, 4), "plus or minus": round(spread, 4), "holds": abs(mean - 0.5) <= spread}
        print(f"{name:22} {out[name]}")
    return out


def world(size: int, rng: np.random.Generator, rate: float, layers: int = 3, width: int = 12) -> Labelled:
    """Samples of a made-up world, wrong answers with probability `rate`; a direction of each layer tells them."""
    right = rng.random(size) > rate
    sign = np.where(right, 1.0, -1.0)
    directions = np.linspace(0.3, 0.7, layers)[:, None, None] * np.ones(width) / np.sqrt(width)
    states = rng.normal(size=(layers, size, width)) + sign[None, :, None] * directions
    inputs = Inputs(
        [str(i) for i in range(size)], [""] * size, [""] * size, {},
        {CLEAN: States.held(states.astype(np.float32))},
    )  # fmt: skip
    return Labelled(inputs, right, np.arange(size), np.ones(size))


def promises(repeats: int = 200, delta: float = 0.1) -> dict[str, Any]:
    """Fit, choose a threshold on held-out samples, and look on 20,000 new ones whether the promise is kept."""
    out = {}
    fitter = catalogue()["stack"].fitter
    for title, promise, rate, size in (
        ("1 % false alarms", Promise("false_alarms", 0.01, delta), 0.5, 1200),
        ("5 % false alarms", Promise("false_alarms", 0.05, delta), 0.7, 600),
        ("5 % errors among passed", Promise("errors_passed", 0.05, delta), 0.3, 1200),
        ("1 % false alarms, too few", Promise("false_alarms", 0.01, delta), 0.5, 300),
    ):
        kept, given, passed = 0, 0, []
        test = world(20_000, np.random.default_rng(99), rate)
        for seed in range(repeats):
            samples = world(size, np.random.default_rng(seed), rate)
            half = np.arange(size) % 2 == 0
            fitted = fitter.fit(samples.training(np.flatnonzero(half)))
            rest = samples.of(np.flatnonzero(~half))
            scores = -fitted.logits(rest.inputs)
            limit = choose_threshold(promise, scores, rest.right, rest.clusters, rate, seed)
            if limit.value is None:
                continue
            given += 1
            alarms, errors = rates(-fitted.logits(test.inputs), test.right, limit.value, rate)
            kept += (alarms if promise.kind == "false_alarms" else errors) <= promise.at_most
            passed.append(float((-fitted.logits(test.inputs) <= limit.value).mean()))
        broken = round(1 - kept / given, 3) if given else None
        share = round(float(np.mean(passed)), 3) if passed else None
        out[title] = {"repeats": repeats, "given": given, "kept": kept, "broken share": broken, "passed": share}
        print(f"{title:28} {out[title]}")
    return out


def coverage(repeats: int = 100, size: int = 400) -> dict[str, Any]:
    """How often 95 % intervals of AUROC, and of the difference of two detectors, hold the truth.

    The truth is the mean over repeats: what such detectors of so many samples are worth on average.
    """
    names = ("single_layer", "stack")
    fitters = {name: catalogue()[name].fitter for name in names}
    found: dict[str, list[Estimate]] = {"single_layer": [], "stack": [], "difference": []}
    for seed in range(repeats):
        samples = world(size, np.random.default_rng([7, seed]), 0.5, layers=6, width=24)
        scores = cross_scored(samples, fitters, folds_for(samples, 2, 5, seed), seed)
        drawn = resample(samples.clusters, 2, 500, seed)
        each = {name: mean_auroc(samples.right, scores[name][:, :, None], drawn)[:, 0] for name in names}
        for name in names:
            found[name].append(estimate(each[name], WIDENED))
        found["difference"].append(estimate(each["stack"] - each["single_layer"], WIDENED))
    out = {}
    for name, rows in found.items():
        values = np.array(rows)
        truth = values[:, 0].mean()
        inside = (values[:, 1] <= truth) & (truth <= values[:, 2])
        half = (values[:, 2] - values[:, 1]).mean() / 2
        out[name] = {
            "truth": round(float(truth), 4), "coverage": round(float(inside.mean()), 3),
            "spread of values": round(float(values[:, 0].std()), 4), "half width": round(float(half), 4),
            "spread by half width": round(float(1.96 * values[:, 0].std() / half), 2),
        }  # fmt: skip
        print(f"{name:14} {out[name]}")
    return out


def latency(store: Store, rounds: int = 10) -> dict[str, Any]:
    """`detector.answer` against plain generation, one question at a time and some at once, in turns."""
    out: dict[str, Any] = {}
    for spec in store.study.models:
        sets = [name for model, name in cells_of(store, "traces") if model == spec.name]
        if sets:
            out[spec.name] = _latency(store, spec, sets[0], rounds)
            print(spec.name, out[spec.name])
    return out


def without_card(store: Store, model: Model, dataset: str, kind: str) -> FittedDetector:
    """A detector fitted on all traced samples of a cell, without the nested fits that its card would take."""
    samples = read_labelled(store, model.name, dataset)
    prompter = Prompter(model.tokenizer, store.study.prompt_for(model.spec), model.wants_bos)
    about, witness = about_of(model, prompter, "mlp", store.study), witness_of(model, prompter, ["mlp"])
    training = samples.training(np.arange(len(samples.right)))
    fitted = catalogue()[kind].fitter.fit(training)
    card = Card(kind, kind, [dataset], 0, 0, samples.base_rate, (0, 0, 0), (0, 0, 0), {}, {}, ())
    moments = moments_of(samples.inputs, states_among(fitted.needs))
    return FittedDetector(fitted, about, card, moments, samples.base_rate, witness=dict(witness))


def _latency(store: Store, spec: ModelSpec, dataset: str, rounds: int) -> dict[str, Any]:
    model = load_model(spec, store.study.base)
    lives = {
        kind: Session(without_card(store, model, dataset, kind), model) for kind in ("stack", "combined", "causal")
    }
    reader = lives["stack"].reader

    def plain(some: list[str]) -> Any:
        return reader.generator([reader.prompter(each).ids for each in some])

    ways: dict[str, Callable[[list[str]], Any]] = {
        "plain": plain,
        **{kind: each.answer for kind, each in lives.items()},
    }
    out = {}
    for batch in (1, 16):
        rows = read_labelled(store, spec.name, dataset).inputs.questions[: rounds * batch]
        times: dict[str, list[float]] = {way: [] for way in ways}
        for start in range(0, len(rows), batch):
            some = list(rows[start : start + batch])
            for way, act in ways.items():
                begin = time.perf_counter()
                act(some)
                times[way].append(time.perf_counter() - begin)
        ratios = {way: np.array(times[way][1:]) / np.array(times["plain"][1:]) for way in lives}
        quartiles = {
            way: [round(float(q), 3) for q in np.quantile(each, [0.5, 0.25, 0.75])] for way, each in ratios.items()
        }
        out[f"batch {batch}"] = {
            "plain, ms": round(1000 * float(np.median(times["plain"][1:])) / batch, 1),
            **quartiles,
        }
    return out


def reloading(store: Store) -> dict[str, Any]:
    """Scores of detectors that were saved and loaded, on the samples of a run."""
    out = {}
    model, dataset = cells_of(store, "traces")[0]
    inputs = read_labelled(store, model, dataset).inputs
    spec = next(each for each in store.study.models if each.name == model)
    loaded = load_model(spec, store.study.base)
    for kind in ("single_layer", "stack", "causal", "mixture", "combined", "everything", "text_only", "confidence"):
        detector = without_card(store, loaded, dataset, kind)
        with tempfile.TemporaryDirectory() as folder:
            detector.save(Path(folder) / "d")
            again = FittedDetector.load(Path(folder) / "d")
        out[kind] = bool(np.array_equal(again.logits(inputs), detector.logits(inputs)))
    print(out)
    return out


def drift(store: Store, test: int = 240) -> dict[str, Any]:
    """One detector, fitted in the run's dtype on half of a cell; the other half read by other versions of the model.

    As it is; in bfloat16; and with its weights rounded to 4 bits in groups of 32. Then recalibrated from 100 labels.
    """
    model, dataset = cells_of(store, "traces")[-1]
    spec = next(each for each in store.study.models if each.name == model)
    samples = read_labelled(store, model, dataset)
    out: dict[str, Any] = {}
    half = np.random.default_rng(3).random(int(samples.clusters.max()) + 1) < 0.5
    rows = np.flatnonzero(half[samples.clusters])
    rest = np.random.default_rng(4).permutation(np.flatnonzero(~half[samples.clusters]))[:test]
    base = load_model(spec, store.study.base)
    prompter = Prompter(base.tokenizer, store.study.prompt_for(spec), base.wants_bos)
    about, witness = about_of(base, prompter, "mlp", store.study), witness_of(base, prompter, ["mlp"])
    detector = fit_detector(samples.of(rows), catalogue()["joint"], about, [dataset], witness=dict(witness))
    questions, answers = ([texts[i] for i in rest] for texts in (samples.inputs.questions, samples.inputs.answers))
    for name, change in (("as fitted", None), ("bfloat16", "bfloat16"), ("4 bits", "rounded")):
        dtype = "bfloat16" if change == "bfloat16" else spec.dtype
        other = load_model(spec.model_copy(update={"dtype": dtype}), store.study.base)
        if change == "rounded":
            round_weights(other)
        reader = reader_of(detector, other)
        read = reader.given(questions, answers, detector.needs)
        right = samples.right[rest[read.rows]]
        some, others = np.arange(100), np.arange(100, len(right))
        again = recalibrated(detector, read.inputs.of(some), right[some], natural=False)
        moved = drift_of(detector.moments, read.inputs)
        held = read.inputs.of(others)
        losses = [balanced_log_loss(-each.logits(held), right[others]) for each in (detector, again)]
        out[name] = {
            "states apart": round(apart(detector, other, reader.prompter), 4),
            "refused": bool(refused(detector, other, reader.prompter)),
            "unlike": round(moved.unlike / moved.samples, 3),
            "mean moved": round(moved.moved, 3),
            "auroc": round(area(-detector.logits(held), right[others]), 3),
            "log-loss before and after": [round(loss, 3) for loss in losses],
        }
        print(name, out[name])
    return {"model": model, "dataset": dataset, "answers": len(rest), **out}


def round_weights(model: Model, group: int = 32) -> None:
    """Round the weights of all layers to 4 bits, symmetric, in groups along the input."""
    with torch.no_grad():
        for name, weight in model.network.named_parameters():
            if weight.ndim == 2 and "embed" not in name and "lm_head" not in name:
                parts = weight.view(weight.shape[0], -1, group)
                scale = parts.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / 7
                weight.copy_(((parts / scale).round().clamp(-8, 7) * scale).view_as(weight))


CARRIED = ("confidence", "question_only", "single_layer", "joint", "combined")
LABELS = (100, 200, 500, 1000, 1900)


def _sets(store: Store, model: str) -> dict[str, Labelled]:
    return {name: read_labelled(store, each, name) for each, name in cells_of(store, "traces") if each == model}


def transfer(store: Store) -> dict[str, Any]:
    """Fitted on one set, or on the three others, and tested on another."""
    out: dict[str, Any] = {}
    fitters = {name: catalogue()[name].fitter for name in CARRIED}
    for model in dict.fromkeys(each for each, _ in cells_of(store, "traces")):
        for name, fitted, tested, replicates in carried(_sets(store, model), fitters, pooled):
            value, low, high = estimate(replicates)
            numbers = [round(float(each), 3) for each in (value, low, high)]
            out.setdefault(model, {}).setdefault(name, {})[f"{fitted} > {tested}"] = numbers
        for name in CARRIED:
            told = {where: numbers[0] for where, numbers in out[model][name].items()}
            print(f"{model:14} {name:14} {told}")
    return out


def labels(store: Store) -> dict[str, Any]:
    """AUROC within sets, by the number of labels: all sets pooled, four folds; mean and spread over these."""
    out: dict[str, Any] = {}
    fitters = {name: catalogue()[name].fitter for name in CARRIED}
    for model in dict.fromkeys(each for each, _ in cells_of(store, "traces")):
        sets = _sets(store, model)
        both = pooled(list(sets.values()))
        strata = [name for name, each in sets.items() for _ in each.right]
        for name, by_size in learning(both, fitters, folds_for(both, 1, 4), LABELS, strata).items():
            means = {
                size: [round(float(np.mean(v)), 3), round(float(np.std(v, ddof=1)), 3)]
                for size, v in by_size.items()
                if v
            }
            out.setdefault(model, {})[name] = means
            print(f"{model:14} {name:14} {means}")
    return out


def errors(store: Store) -> dict[str, Any]:
    """AUROC by kind of error: all right answers against the wrong ones of a kind."""
    out: dict[str, Any] = {}
    for model, dataset in cells_of(store, "scores"):
        samples, scores = read_scores(store, model, dataset)
        kinds = {row.id: row.kind for row in store.results(model, dataset).table(TRACES)}
        told = kinds_of_error(samples.inputs.answers, samples.right, [kinds[name] for name in samples.inputs.ids])
        some = {name: each for name, each in scores.items() if name in CARRIED}
        found = {f"{kind}: {name}": estimate(each) for (name, kind), each in by_error(samples, told, some).items()}
        counts = {kind: told.count(kind) for kind in dict.fromkeys(told) if kind}
        rows = {key: [round(float(each), 3) for each in value] for key, value in found.items()}
        out[f"{model}, {dataset}"] = {"counts": counts, **rows}
        print(model, dataset, counts, {key: value[0] for key, value in rows.items()})
    return out


def cost(store: Store) -> dict[str, Any]:
    """Token-layers of an answer, mean: of generating it, and of what detectors take beside it."""
    out: dict[str, Any] = {}
    for model, dataset in cells_of(store, "traces"):
        ids = {row.id for row in store.results(model, dataset).table(TRACES)}
        layers = read_labelled(store, model, dataset).inputs.state(CLEAN).layers
        counts = []
        for sample in read_samples(store, model, dataset):
            if sample.question.id in ids:
                spans = sample.spans
                first = min(spans.exact_question) + 1
                prompt, size = len(sample.answer.prompt_ids), len(sample.answer.answer_ids)
                counts.append(
                    (prompt + size, spans.answer_last - first + 1, spans.answer_last - spans.cue[0] + 1, size)
                )
        generate, cut, short, size = np.mean(counts, axis=0) * layers
        out[f"{model}, {dataset}"] = {
            "generating": round(generate), "knockout": round(cut), "answer only": round(short), "P(True)": 9 * layers,
            "one more answer": round(size),
        }  # fmt: skip
        print(model, dataset, out[f"{model}, {dataset}"])
    return out


CORE = ("table", "null", "promises", "coverage", "reloading", "latency", "drift")
STEPS = (*CORE, "transfer", "labels", "errors", "cost")


def main() -> int:
    """Carry out the steps and print their numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], default=[])
    parser.add_argument("--model", help="of this model alone")
    parser.add_argument("--run", type=Path, help="a run that `anchorscope detect eval` has compared")
    options = parser.parse_args()
    global ONLY
    ONLY = options.model
    steps = options.steps or CORE
    store = Store.open(options.run) if options.run else None
    acts: dict[str, Callable[[], Any]] = {"promises": promises, "coverage": coverage}
    if store is not None:
        acts |= {
            "table": lambda: table(store), "null": lambda: null(store), "reloading": lambda: reloading(store),
            "latency": lambda: latency(store), "drift": lambda: drift(store),
            "transfer": lambda: transfer(store), "labels": lambda: labels(store), "errors": lambda: errors(store),
            "cost": lambda: cost(store),
        }  # fmt: skip
    out = {}
    for step in steps:
        if step not in acts:
            told(f"{step} needs --run")
            continue
        with printed(step, None):
            print(f"\n== {step}")
            out[step] = acts[step]()
    print(json.dumps(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
