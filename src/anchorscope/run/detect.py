"""Detectors of a run: what they need is made, all are compared, and one is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from anchorscope.answers.stage import Answerer
from anchorscope.detectors.catalogue import Entry, catalogue, entry_of
from anchorscope.detectors.compare import Measured, compared
from anchorscope.detectors.detector import About, Detector
from anchorscope.detectors.evaluate import Labelled, cross_scored, folds_for, possible, shuffled
from anchorscope.detectors.fitting import fit_detector
from anchorscope.detectors.inputs import Inputs, States
from anchorscope.detectors.live import template_hash, witness_of
from anchorscope.detectors.promises import Promise
from anchorscope.detectors.reading import sites_of
from anchorscope.detectors.record import AGREEMENT, EXTRAS, OTHER_STATES, SCORES, SHUFFLED, Comparison, Score
from anchorscope.detectors.scored import measured, read_scores
from anchorscope.detectors.stage import agreement_stage, extras_stage, other_states_stage
from anchorscope.detectors.tables import read_labelled
from anchorscope.errors import DetectorError, ProbeError
from anchorscope.models.load import Model, load_model
from anchorscope.models.opened import open_model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Advance, Notice, Progress, nobody, silent
from anchorscope.run.engine import fill, make
from anchorscope.store import Kind, Store, Whole
from anchorscope.study import ModelSpec, Study
from anchorscope.study.terms import Site
from anchorscope.traces.record import TRACES

if TYPE_CHECKING:
    from anchorscope.answers.generate import Generator

FOLDS = 5


@dataclass(frozen=True)
class Plan:
    """How detectors of a run are compared."""

    repeats: int = 2
    """How often folds are drawn anew."""
    detectors: tuple[str, ...] = ()
    """Which; empty: all that the run has what it takes for."""
    other: str | None = None
    """Another model, whose states of the same texts are a baseline."""
    embedder: str | None = None
    """A folder with a text-embedding model, for another."""
    answers: int = 0
    """Answers drawn to each question, for sampled agreement; 0: none."""
    light: bool = False
    """Only what the run has: no pass of the model."""
    seed: int = 0
    """Deals folds."""
    shuffled: bool = False
    """Labels dealt anew: the null."""


def prepare(store: Store, spec: ModelSpec, plan: Plan, datasets: Sequence[str], progress: Progress = silent) -> None:
    """Make what detectors need of one model beyond its traces; what is there already is not made again."""
    cells = {name: store.results(spec.name, name) for name in datasets}
    wanted: list[Kind[Any]] = [EXTRAS, *([AGREEMENT] if plan.answers else [])]
    if not all(cell.complete(kind) for cell in cells.values() for kind in wanted):
        with progress(f"{spec.name}: loading", None):
            model = load_model(spec, store.study.base)
            answerer = Answerer(model, store.study)
        for name in datasets:
            fill(extras_stage(model, answerer.prompter, name, store), progress)
        if plan.answers:
            for name in datasets:
                draw = cast("Generator", answerer.generate).sample
                fill(agreement_stage(model, answerer.prompter, draw, name, store, plan.answers, 1.0), progress)
        answerer.close()
        del model, answerer
    if plan.other is not None and not all(cell.complete(OTHER_STATES) for cell in cells.values()):
        with progress(f"{plan.other}: loading", None):
            known = [each for each in store.study.models if plan.other in (each.name, each.id)]
            other = load_model(known[0], store.study.base) if known else open_model(plan.other)
        prompter = Prompter(other.tokenizer, store.study.prompt_for(spec), other.wants_bos)
        for name in datasets:
            fill(other_states_stage(other, prompter, spec.name, name, store), progress)


def labelled(store: Store, model: str, dataset: str, embedder: str | None = None) -> Labelled:
    """The traced samples of a cell."""
    rows = list(store.results(model, dataset).table(TRACES))
    vectors = None
    if embedder is not None:
        from anchorscope.detectors.embedding import Embedder

        vectors = Embedder(embedder).of([row.question for row in rows], [row.answer for row in rows])
    return read_labelled(store, model, dataset, vectors)


def scores_stage(store: Store, model: str, dataset: str, plan: Plan, notice: Notice = nobody) -> Whole[Score]:
    """The `scores` table of one model and dataset: every detector, nested."""
    cell, site = store.results(model, dataset), store.study.traces.sites[0]
    entries = _entries(plan.detectors, site)

    def compute(advance: Advance) -> list[Score]:
        samples = labelled(store, model, dataset, plan.embedder)
        if plan.shuffled:
            samples = shuffled(samples, plan.seed)
        can, lacking = possible(samples.inputs, {name: entry.fitter for name, entry in entries.items()})
        if lacking:
            said = "; ".join(f"{name} ({', '.join(needs[:2])})" for name, needs in lacking.items())
            notice(f"{model}, {dataset}: left out, as the run lacks what they need: {said}")
        made = cross_scored(samples, can, folds_for(samples, plan.repeats, FOLDS, plan.seed), plan.seed, advance)
        return [
            Score(model, dataset, name, samples.inputs.ids[i], bool(samples.right[i]), float(samples.probability[i]),
                  int(samples.clusters[i]), [float(each) for each in logits[:, i]])
            for name, logits in made.items() for i in range(len(samples.right))
        ]  # fmt: skip

    kinds: list[Kind[Any]] = [EXTRAS, OTHER_STATES, AGREEMENT]
    beside = {kind.name: cell.origin(kind) for kind in kinds if cell.complete(kind)}
    inputs = {
        "traces": cell.origin(TRACES), "beside": beside, "detectors": list(entries), "repeats": plan.repeats,
        "embedder": bool(plan.embedder), "seed": plan.seed, "shuffled": plan.shuffled,
    }  # fmt: skip
    title = f"{model}, {dataset}: {'labels dealt anew' if plan.shuffled else 'comparing detectors'}"
    return Whole(title, cell, SHUFFLED if plan.shuffled else SCORES, inputs, compute, lambda: plan.repeats * FOLDS)


def _entries(names: Sequence[str], site: Site) -> dict[str, Entry]:
    return {name: entry_of(name, site) for name in names} if names else catalogue(site)


def compare_run(
    store: Store, plan: Plan, models: Sequence[str], datasets: Sequence[str], progress: Progress, notice: Notice
) -> list[Comparison]:
    """Compare detectors on every model and dataset of a run."""
    cells: list[Measured] = []
    for spec in store.study.models:
        if spec.name not in models:
            continue
        ready = [name for name in datasets if store.results(spec.name, name).complete(TRACES)]
        if not plan.light:
            prepare(store, spec, plan, ready, progress)
        for name in ready:
            try:
                make(scores_stage(store, spec.name, name, plan, notice), progress)
            except ProbeError as error:  # one set with too few right answers does not stop the others
                notice(f"{spec.name}, {name}: {error.message}. {error.hint}")
                continue
            cells.append(measured(store, spec.name, name))
    if not cells:
        raise DetectorError("there is nothing to compare", "Run the study first: anchorscope run STUDY.")
    return compared(cells)


def published(store: Store, models: Sequence[str], datasets: Sequence[str]) -> pa.Table:
    """Scores of every sample, ids only: for each detector the logit that the answer is right, mean over repeats."""
    pieces = []
    for model in models:
        for dataset in datasets:
            if store.results(model, dataset).entry(SCORES) is None:
                continue
            samples, scores = read_scores(store, model, dataset)
            size = len(samples.right)
            known: dict[str, Any] = {
                "model": [model] * size, "dataset": [dataset] * size, "id": list(samples.inputs.ids),
                "right": samples.right, "probability": samples.probability, "cluster": samples.clusters,
            }  # fmt: skip
            logits = {name: each.mean(axis=0).astype(np.float32) for name, each in scores.items()}
            pieces.append(pa.table(known | logits))
    return pa.concat_tables(pieces, promote_options="default")


# --- fitting


def about_of(model: Model, prompter: Prompter, site: Site, study: Study | None = None) -> About:
    """What a detector of this model belongs to."""
    config = model.network.config.get_text_config()
    return About(
        model=model.fingerprint,
        name=model.name,
        prompt=prompter.spec.model_dump(mode="json"),
        template=template_hash(prompter),
        site=site,
        layers=int(config.num_hidden_layers),
        width=int(config.hidden_size),
        into=study.traces.into if study else "after",
        exact_question=study.spans.exact_question if study else "content",
        seed=study.seed if study else 0,
    )


def fit_run(
    store: Store,
    model: str,
    datasets: Sequence[str],
    detector: str = "stack",
    promise: Promise | None = None,
    base_rate: float | None = None,
    progress: Progress = silent,
) -> Detector:
    """Fit a detector on the traced samples of one model and some sets of a run."""
    spec = next(each for each in store.study.models if each.name == model)
    site = store.study.traces.sites[0]
    entry = entry_of(detector, site)
    samples = pooled([labelled(store, model, name) for name in datasets])
    if not samples.inputs.has(entry.fitter.needs):
        prepare(store, spec, Plan(), datasets, progress)
        samples = pooled([labelled(store, model, name) for name in datasets])
    with progress(f"{model}: loading", None):
        loaded = load_model(spec, store.study.base)
        prompter = Prompter(loaded.tokenizer, store.study.prompt_for(spec), loaded.wants_bos)
        sites = sites_of([name for name in entry.fitter.needs if name.startswith(("clean/", "knockout/"))])
        witness: dict[str, Any] = dict(witness_of(loaded, prompter, sites))
        about = about_of(loaded, prompter, site, store.study)
    with progress(f"{model}: fitting {detector}", FOLDS + 1) as advance:
        return fit_detector(samples, entry, about, datasets, promise, base_rate, store.study.seed, witness, advance)


def pooled(some: Sequence[Labelled]) -> Labelled:
    """The samples of several sets as one; their clusters stay apart, and states are read when they are asked for."""
    if len(some) == 1:
        return some[0]
    first = some[0].inputs
    names = [name for name in first.states if all(name in each.inputs.states for each in some)]

    def joined(name: str) -> States:
        parts = [each.inputs.states[name] for each in some]
        return States(parts[0].layers, lambda layer: np.concatenate([part.layer(layer) for part in parts]))

    numbers = {
        name: np.concatenate([each.inputs.numbers[name] for each in some])
        for name in first.numbers
        if all(name in each.inputs.numbers for each in some)
    }
    inputs = Inputs(
        [f"{place}/{name}" for place, each in enumerate(some) for name in each.inputs.ids],
        [text for each in some for text in each.inputs.questions],
        [text for each in some for text in each.inputs.answers],
        numbers,
        {name: joined(name) for name in names},
    )
    starts = np.cumsum([0, *(int(each.clusters.max()) + 1 for each in some[:-1])])
    return Labelled(
        inputs,
        np.concatenate([each.right for each in some]),
        np.concatenate([each.clusters + start for each, start in zip(some, starts, strict=True)]),
        np.concatenate([each.probability for each in some]),
    )
