"""Compare the detectors on a run, or fit one. What they need in addition to the run's traces is made first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from anchorscope.detectors.card import GREEDY, Decoding
from anchorscope.detectors.catalogue import DEFAULT, entry_of
from anchorscope.detectors.crossfit import FOLDS, Labelled, pooled
from anchorscope.detectors.fit import check_enough, fit_detector
from anchorscope.detectors.inputs import sites_of, states_among
from anchorscope.detectors.record import DETECTORS, Comparison, EvalPlan
from anchorscope.detectors.scored import read_comparison, read_scores, scored_cells
from anchorscope.detectors.session import Detector, about_of, with_known_answers, witness_of
from anchorscope.detectors.tables import lacking_states, read_labelled
from anchorscope.detectors.thresholds import Promise
from anchorscope.errors import DetectorError
from anchorscope.progress import Notice, Progress, silent
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import named
from anchorscope.store import Job, Store
from anchorscope.traces.record import TRACES


def prepare(
    pipeline: Pipeline, plan: EvalPlan, models: Sequence[str], datasets: Sequence[str], several: bool = False
) -> None:
    """Make what detectors need in addition to the traces. `several`: also several answers to a question.

    The pipeline's engine makes them like a study's own stages. What exists already is not made again.
    """
    if plan.light:
        return
    wanted = ["answer_means"]
    wanted += ["several_answers"] if several and pipeline.store.study.evidence is not None else []
    cells = [(model, dataset) for model in models for dataset in datasets]
    # with the answers, the pipeline also compares the model's weights with those of the run
    answers = named("answers")
    looked_at = [answers] if all(Job(answers, d, m).complete(pipeline.store) for m, d in cells) else []
    pipeline.make([*looked_at, *map(named, wanted)], models, datasets, plan)


def compare_run(
    store: Store,
    plan: EvalPlan,
    models: Sequence[str],
    datasets: Sequence[str],
    progress: Progress,
    notice: Notice,
    ray_address: str | None = None,
) -> list[Comparison]:
    """Score detectors on models and datasets of a run, and compare all that the run has scores of.

    Detectors that were scored before stay as they are. The engine is that of `store.study`.
    """
    plan = replace(plan, detectors=plan.detectors or DETECTORS)
    scores = replace(named("scores"), parts=plan.detectors)
    with Pipeline(store, progress, notice, ray_address=ray_address) as pipeline:
        prepare(pipeline, plan, models, datasets, several=True)
        pipeline.make([named("widening"), scores], models, datasets, plan)  # in cells without several answers too
        if not scored_cells(store):
            raise DetectorError(
                "this run has no traced answers on which detectors can be compared",
                "Run the study first: anchorscope run STUDY",
            )
        pipeline.make([named("comparison")], demand=plan)
    for model, dataset in scored_cells(store):
        if model in models and dataset in datasets:
            lacking = lacking_states(store, model, dataset, plan.detectors)
            listed = "; ".join(f"{name} ({', '.join(map(str, states))})" for name, states in lacking.items())
            if listed:
                notice(f"{model}, {dataset}: detectors are left out, because the run lacks their states: {listed}")
    return read_comparison(store)


def published(store: Store) -> pa.Table:
    """The scores of every sample, without texts. A score is the logit that the answer is right, mean over repeats."""
    pieces = []
    for model, dataset in scored_cells(store):
        samples, scores = read_scores(store, model, dataset)
        size = len(samples.right)
        known: dict[str, Any] = {
            "model": [model] * size, "dataset": [dataset] * size, "id": list(samples.inputs.ids),
            "right": samples.right, "probability": samples.probability, "cluster": samples.clusters,
        }  # fmt: skip
        logits = {name: by_repeat.mean(axis=0).astype(np.float32) for name, by_repeat in scores.items()}
        pieces.append(pa.table(known | logits))
    return pa.concat_tables(pieces, promote_options="default")


def fit_run(
    store: Store,
    model: str,
    datasets: Sequence[str],
    detector: str = DEFAULT,
    promise: Promise | None = None,
    base_rate: float | None = None,
    progress: Progress = silent,
    decoding: Decoding = GREEDY,
) -> Detector:
    """Fit a detector on the traced samples of one model and some datasets of a run.

    `decoding`: how the answers were made, if the run took them from a file. Answers that a run generates are greedy.
    """
    if decoding != GREEDY and store.study.answers.source == "generate":
        raise DetectorError(
            f"the answers of this run are greedy, not {decoding}",
            "Leave --temperature and --top-p out, or fit on a file of sampled answers: detect fit FILE -m MODEL",
        )
    site = store.study.traces.sites[0]
    entry = entry_of(detector, site)
    lacking = [name for name in datasets if not store.results(model, name).complete(TRACES)]
    if lacking:
        raise DetectorError(f"{model} has no traced answers on {', '.join(lacking)} yet", "Run: anchorscope run STUDY")
    samples = _labelled(store, model, datasets)
    check_enough(samples.right)  # before a model is loaded
    with Pipeline(store, progress) as pipeline:  # which keeps the model between the two
        if not samples.inputs.has(entry.fitter.needs):
            with Store.writing(store.root, store.study):
                prepare(pipeline, EvalPlan(), [model], datasets)
            samples = _labelled(store, model, datasets)
        context = pipeline.context
        loaded, prompter = context.model(model), context.prompter(model)
        witness: dict[str, Any] = dict(witness_of(loaded, prompter, sites_of(states_among(entry.fitter.needs))))
        about = about_of(loaded, prompter, site, store.study)
        with progress(f"{model}: fitting {detector}", FOLDS + 1) as advance:
            seed = store.study.seed
            fitted = fit_detector(samples, entry, about, datasets, promise, base_rate, seed, witness, advance, decoding)
        return Detector.of(with_known_answers(fitted, loaded))


def _labelled(store: Store, model: str, datasets: Sequence[str]) -> Labelled:
    return pooled([read_labelled(store, model, name) for name in datasets])
