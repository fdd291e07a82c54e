"""The stages of detectors: what they read beyond the traces, the scores of each, and their comparison.

No study wants them by itself: `detect eval` and `detect fit` ask for them. States lie beside a table as safetensors
shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from safetensors.torch import save

from anchorscope.answers.record import SAMPLED
from anchorscope.detectors.catalogue import entry_of
from anchorscope.detectors.compare import compared
from anchorscope.detectors.crossfit import FOLDS, cross_scored, folds_for, width_of
from anchorscope.detectors.reader import Reader
from anchorscope.detectors.record import (
    ANSWER_MEANS,
    COMPARISON,
    DETECTORS,
    SCORES,
    SEVERAL,
    SEVERAL_SCORES,
    WIDENING,
    AnswerMean,
    Comparison,
    EvalPlan,
    Score,
    Several,
    WideningFactors,
)
from anchorscope.detectors.score_widening import widening_of
from anchorscope.detectors.scored import comparison_inputs, measured, scored_cells
from anchorscope.detectors.tables import lacking_states, read_labelled, read_several, states_path
from anchorscope.errors import StoreError
from anchorscope.models.context import ModelContext
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.fitter import side_by_side
from anchorscope.probes.within_readouts import answers_within
from anchorscope.progress import Advance
from anchorscope.spans.samples import read_samples
from anchorscope.store import Cell, Forward, Job, Kind, Parts, Plan, Sharded, Store, Whole
from anchorscope.store.rundir import differences
from anchorscope.store.stage import Context
from anchorscope.store.tensors import write_tensors
from anchorscope.study.terms import StateName
from anchorscope.traces.passes import ANSWER_MEAN
from anchorscope.traces.record import TRACES

SHARD_ROWS = 128  # what a stopped run does again, at most


def answer_means_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[AnswerMean]:
    """The `answer_means` table of one model and dataset: the mean of states over each traced answer."""
    cell, spec = store.results(model.name, dataset), store.study.traces
    ids = {row.id for row in cell.table(TRACES)}
    inputs = {"traces": cell.origin(TRACES), "site": spec.sites[0]}
    table = cell.begin(ANSWER_MEANS, Plan(len(ids), SHARD_ROWS), inputs, {})
    reader = Reader(model, prompter, spec.into, memory=spec.memory)
    samples = Forward(table.plan, lambda: read_samples(store, model.name, dataset, ids))
    beside: dict[int, dict[str, str]] = {}

    def rows(shard: int, advance: Advance) -> list[list[AnswerMean]]:
        of_shard = samples(shard)
        states = reader.read(of_shard, [StateName("clean", spec.sites[0], ANSWER_MEAN)], advance)
        beside[shard] = _keep(cell, ANSWER_MEANS, shard, states)
        return [[AnswerMean(sample.question.id) for sample in of_shard]]

    return Sharded(f"{model.name}, {dataset}: reading for detectors", (table,), rows, beside=beside)


def _keep(cell: Cell, kind: Kind[Any], shard: int, states: dict[StateName, torch.Tensor]) -> dict[str, str]:
    """Write the states of a shard, and return the file's digest."""
    content = save({str(name): tensor for name, tensor in states.items()})
    return write_tensors(states_path(cell, kind, shard), content, cell.folder)


def several_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[Several]:
    """The `several_answers` table of one model and dataset: right and wrong answers to one question, for detectors."""
    study, cell = store.study, store.results(model.name, dataset)
    assert study.evidence is not None
    spec, site = study.traces, study.traces.sites[0]
    answers = answers_within(store, prompter, model.name, dataset)
    states = [StateName("clean", site, position) for position in ("answer_last", "prompt_last", ANSWER_MEAN)]
    inputs = {
        "traces": cell.origin(TRACES), "sampled": cell.origin(SAMPLED), "states": [str(name) for name in states],
        "distinct": study.evidence.distinct, "grades": study.grades.identity(),
    }  # fmt: skip
    table = cell.begin(SEVERAL, Plan(len(answers), SHARD_ROWS), inputs, {})
    reader = Reader(model, prompter, spec.into, memory=spec.memory)
    beside: dict[int, dict[str, str]] = {}

    def rows(shard: int, advance: Advance) -> list[list[Several]]:
        of_shard = answers[shard * SHARD_ROWS : (shard + 1) * SHARD_ROWS]
        samples = [answer.sample for answer in of_shard]
        beside[shard] = _keep(cell, SEVERAL, shard, reader.read(samples, states, advance))
        several = []
        for answer, sample in zip(of_shard, samples, strict=True):
            logprobs, right = [float(value) for value in sample.answer.logprobs], bool(sample.grade.correct)
            several.append(Several(sample.question.id, answer.number, sample.answer.answer, right, logprobs))
        return [several]

    return Sharded(f"{model.name}, {dataset}: reading several answers for detectors", (table,), rows, beside=beside)


def widening_stage(store: Store, model: str, dataset: str, seed: int) -> Whole[WideningFactors]:
    """The `widening` table of one model and dataset, made anew when the run has more kinds of states."""
    cell, site = store.results(model, dataset), store.study.traces.sites[0]
    means = cell.origin(ANSWER_MEANS) if cell.complete(ANSWER_MEANS) else None
    inputs = {"traces": cell.origin(TRACES), "answer_means": means, "seed": seed}

    def compute(advance: Advance) -> list[WideningFactors]:
        return [WideningFactors(*widening_of(read_labelled(store, model, dataset), site, seed))]

    return Whole(f"{model}, {dataset}: widening intervals", cell, WIDENING, inputs, compute, renewed=True)


def scores_stage(store: Store, model: str, dataset: str, plan: EvalPlan) -> Parts[Score]:
    """The `scores` and `several_scores` of one model and dataset, two tables for each detector that can be fitted."""
    cell, site = store.results(model, dataset), store.study.traces.sites[0]
    lacking = lacking_states(store, model, dataset, plan.detectors)
    names = [name for name in plan.detectors if name not in lacking]
    shared = {"traces": cell.origin(TRACES), "repeats": plan.repeats, "seed": plan.seed}
    by_kind = {SCORES: shared}
    if cell.complete(SEVERAL) and cell.table(SEVERAL).plan.rows:
        by_kind[SEVERAL_SCORES] = {**shared, "several_answers": cell.origin(SEVERAL)}
    for kind, of_kind in by_kind.items():
        _refuse_others(cell, kind, of_kind)

    def compute(missing: Sequence[Kind[Score]], advance: Advance) -> dict[Kind[Score], list[Score]]:
        samples = read_labelled(store, model, dataset)
        several = read_several(store, model, dataset, samples.inputs)
        folds = folds_for(samples, plan.repeats, FOLDS, plan.seed)
        again = (several.inputs, several.question) if several else None
        incomplete = [name for name in names if any(kind.part(name) in missing for kind in by_kind)]
        fitters = {name: entry_of(name, site).fitter for name in incomplete}
        # fits of small training sets are small steps: with a thread each, folds do not wait for each other
        with side_by_side(len(samples.right), width_of(samples, fitters)) as at_once:
            scores = cross_scored(samples, fitters, folds, plan.seed, advance, again, at_once)
        greedy = [(i, -1, bool(right)) for i, right in enumerate(samples.right)]
        sampled = zip(several.question, several.number, several.right, strict=True) if several else ()
        answers = [*greedy, *((int(i), int(number), bool(right)) for i, number, right in sampled)]

        def rows(name: str) -> list[Score]:
            return [
                Score(model, dataset, name, samples.inputs.ids[i], number, right, float(samples.probability[i]),
                      int(samples.clusters[i]), [float(logit) for logit in scores[name][:, column]])
                for column, (i, number, right) in enumerate(answers)
            ]  # fmt: skip

        by_part: dict[Kind[Score], list[Score]] = {}
        for name in incomplete:
            of_detector = rows(name)
            by_part[SCORES.part(name)] = of_detector[: len(greedy)]
            by_part[SEVERAL_SCORES.part(name)] = of_detector[len(greedy) :]
        return by_part

    inputs = {kind.part(name): of_kind for kind, of_kind in by_kind.items() for name in names}
    return Parts(f"{model}, {dataset}: comparing detectors", cell, inputs, compute, lambda: plan.repeats * FOLDS)


def _refuse_others(cell: Cell, kind: Kind[Score], inputs: dict[str, Any]) -> None:
    """Refuse scores that cannot be compared with those of detectors in the cell."""
    kinds = [kind.part(name) for name in DETECTORS]
    entries = {kind: entry for kind in kinds if (entry := cell.entry(kind)) and (cell.folder / kind.name).exists()}
    others = [kind for kind, entry in entries.items() if entry["inputs"] != inputs]
    if others:
        changes = differences(entries[others[0]]["inputs"], inputs)
        folders = ", ".join(str(cell.folder / kind.name) for kind in others)
        raise StoreError(
            f"{cell.folder}: the detectors that were compared before have other inputs:\n  " + "\n  ".join(changes),
            f"Give the same options as before. To compare all detectors anew, delete {folders}. Nothing else is lost.",
        )


def comparison_stage(store: Store) -> Whole[Comparison]:
    """The `comparison` table of a run: every measure of all detectors that were scored in it."""

    def compute(advance: Advance) -> list[Comparison]:
        cells = []
        for model, dataset in scored_cells(store):
            cells.append(measured(store, model, dataset))
            advance(1)
        return compared(cells)

    title, inputs = "measuring detectors", comparison_inputs(store)
    return Whole(title, store.together(), COMPARISON, inputs, compute, lambda: len(scored_cells(store)), renewed=True)


# --- from jobs to stages


def answer_means_of(context: ModelContext, job: Job) -> Sharded[AnswerMean]:
    """The stage that a job asks for."""
    return answer_means_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def several_of(context: ModelContext, job: Job) -> Sharded[Several]:
    """The stage that a job asks for."""
    return several_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def widening_of_cell(context: Context, job: Job) -> Whole[WideningFactors]:
    """The stage that a job asks for."""
    return widening_stage(context.store, job.model, job.dataset, job.demand.seed)


def scores_of(context: Context, job: Job) -> Parts[Score]:
    """The stage that a job asks for."""
    return scores_stage(context.store, job.model, job.dataset, job.demand)


def comparison_of(context: Context, job: Job) -> Whole[Comparison]:
    """The stage that a job asks for."""
    return comparison_stage(context.store)
