"""What does a detector cost while a model answers, and does it still work when the model is changed?

    python checks/detector_in_use.py --run RUN

Steps: `latency` times `Detector.answer` against plain generation; `drift` reads answers with the model in bfloat16 and
with weights rounded to 4 bits, and recalibrates the detector from 100 labels. RUN is a run with traces whose models can
be loaded.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorscope.detectors.card import Card
from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.detector import FittedDetector
from anchorscope.detectors.drift import drift_of, moments_of
from anchorscope.detectors.fit import fit_detector, recalibrated
from anchorscope.detectors.session import Session, about_of, apart, reader_of, refused, witness_of
from anchorscope.detectors.tables import read_labelled
from anchorscope.detectors.training import area
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.logistic import balanced_log_loss
from anchorscope.store import Store
from anchorscope.study import ModelSpec
from helpers.steps import Check, Figures, Options
from helpers.tables import cells_of

check = Check(__doc__)

ROUNDS = 10  # of timing
TESTED = 240  # answers that the changed models read


@check.step("run")
def latency(options: Options, work: Path) -> Figures:
    """Times of plain generation with and without a detector: median of the ratio and its quartiles."""
    store, out = Store.open(options.run), Figures()
    for spec in store.study.models:
        cells = cells_of(store, "traces", spec.name)
        if cells and options.model in (None, spec.name):
            out[spec.name] = _latency(store, spec, cells[0][1])
            print(spec.name, out[spec.name])
    return out


def without_card(store: Store, model: Model, dataset: str, kind: str) -> FittedDetector:
    """A detector fitted on all traced samples of a cell, without the nested fits for its card."""
    samples = read_labelled(store, model.name, dataset)
    prompter = Prompter(model.tokenizer, store.study.prompt_for(model.spec), model.wants_bos)
    about, witness = about_of(model, prompter, "mlp", store.study), witness_of(model, prompter, ["mlp"])
    training = samples.training(np.arange(len(samples.right)))
    fitted = catalogue()[kind].fitter.fit(training)
    card = Card(kind, kind, [dataset], 0, 0, samples.base_rate, (0, 0, 0), (0, 0, 0), {}, {}, ())
    moments = moments_of(samples.inputs, fitted.needs)
    return FittedDetector(fitted, about, card, moments, samples.base_rate, witness=dict(witness))


def _latency(store: Store, spec: ModelSpec, dataset: str) -> Figures:
    model = load_model(spec, store.study.base)
    lives = {kind: Session(without_card(store, model, dataset, kind), model) for kind in ("stack", "combined")}
    reader = lives["stack"].reader

    def plain(some: list[str]) -> Any:
        return reader.generator([reader.prompter(each).ids for each in some])

    ways: dict[str, Callable[[list[str]], Any]] = {
        "plain": plain,
        **{kind: each.answer for kind, each in lives.items()},
    }
    out = {}
    for batch in (1, 16):
        rows = read_labelled(store, spec.name, dataset).inputs.questions[: ROUNDS * batch]
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


@check.step("run")
def drift(options: Options, work: Path) -> Figures:
    """A detector fitted on half of a cell, on answers of the other half as changed models read them."""
    store = Store.open(options.run)
    model, dataset = cells_of(store, "traces", options.model)[-1]
    spec = next(each for each in store.study.models if each.name == model)
    samples = read_labelled(store, model, dataset)
    out: Figures = {}
    half = np.random.default_rng(3).random(int(samples.clusters.max()) + 1) < 0.5
    rows = np.flatnonzero(half[samples.clusters])
    rest = np.random.default_rng(4).permutation(np.flatnonzero(~half[samples.clusters]))[:TESTED]
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
        right, clusters = samples.right[rest[read.rows]], samples.clusters[rest[read.rows]]
        some, others = np.arange(100), np.arange(100, len(right))
        again = recalibrated(detector, read.inputs.of(some), right[some], clusters[some], natural=False)
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


check.option("--model", "Look at the model NAME of the run instead of all models", metavar="NAME")

if __name__ == "__main__":
    check()
