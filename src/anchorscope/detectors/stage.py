"""The stages of detectors: the mean of states over each answer, several answers to a question, and all scores.

No study wants them by itself: `detect eval` and `detect fit` ask for them. States lie beside a table as safetensors
shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from safetensors.torch import save

from anchorscope.answers.record import SAMPLED
from anchorscope.detectors.catalogue import Entry, catalogue, entry_of
from anchorscope.detectors.crossfit import FOLDS, cross_scored, folds_for, possible
from anchorscope.detectors.reader import Reader
from anchorscope.detectors.record import ANSWER_MEANS, SCORES, SEVERAL, AnswerMean, EvalPlan, Score, Several
from anchorscope.detectors.tables import read_labelled, read_several, states_path
from anchorscope.detectors.widening import widening_of
from anchorscope.models.context import ModelContext
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.within_readouts import answers_within
from anchorscope.progress import Advance, Notice, nobody
from anchorscope.spans.samples import read_samples
from anchorscope.store import Cell, Forward, Job, Kind, Plan, Sharded, Store, Whole
from anchorscope.store.stage import Context
from anchorscope.store.tensors import write_tensors
from anchorscope.study.terms import Site, StateName
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

    def rows(shard: int) -> list[list[AnswerMean]]:
        of_shard = samples(shard)
        states = reader.read(of_shard, [StateName("clean", spec.sites[0], ANSWER_MEAN)])
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

    def rows(shard: int) -> list[list[Several]]:
        of_shard = answers[shard * SHARD_ROWS : (shard + 1) * SHARD_ROWS]
        samples = [answer.sample for answer in of_shard]
        beside[shard] = _keep(cell, SEVERAL, shard, reader.read(samples, states))
        several = []
        for answer, sample in zip(of_shard, samples, strict=True):
            logprobs, right = [float(value) for value in sample.answer.logprobs], bool(sample.grade.correct)
            several.append(Several(sample.question.id, answer.number, sample.answer.answer, right, logprobs))
        return [several]

    return Sharded(f"{model.name}, {dataset}: reading several answers for detectors", (table,), rows, beside=beside)


def scores_stage(store: Store, model: str, dataset: str, plan: EvalPlan, notice: Notice = nobody) -> Whole[Score]:
    """The `scores` table of one model and dataset: every detector, nested."""
    cell, site = store.results(model, dataset), store.study.traces.sites[0]
    entries = entries_of(plan.detectors, site)

    def compute(advance: Advance) -> list[Score]:
        samples = read_labelled(store, model, dataset)
        can, lacking = possible(samples.inputs, {name: entry.fitter for name, entry in entries.items()})
        if lacking:
            listed = "; ".join(f"{name} ({', '.join(map(str, needs[:2]))})" for name, needs in lacking.items())
            notice(f"{model}, {dataset}: these detectors are left out, because the run lacks their inputs: {listed}")
        several = read_several(store, model, dataset, samples.inputs)
        folds = folds_for(samples, plan.repeats, FOLDS, plan.seed)
        again = (several.inputs, several.question) if several else None
        scores = cross_scored(samples, can, folds, plan.seed, advance, again)
        widened = widening_of(samples, site, plan.seed)
        size = len(samples.right)
        asked = [(i, -1, bool(samples.right[i])) for i in range(size)]
        if several:
            asked += list(zip(several.question.tolist(), several.number.tolist(), several.right.tolist(), strict=True))
        return [
            Score(model, dataset, name, samples.inputs.ids[i], number, right, float(samples.probability[i]),
                  int(samples.clusters[i]), [float(logit) for logit in logits[:, column]], *widened)
            for name, logits in scores.items() for column, (i, number, right) in enumerate(asked)
        ]  # fmt: skip

    kinds: list[Kind[Any]] = [ANSWER_MEANS, SEVERAL]
    beside = {kind.name: cell.origin(kind) for kind in kinds if cell.complete(kind)}
    inputs = {
        "traces": cell.origin(TRACES), "beside": beside, "detectors": list(entries), "repeats": plan.repeats,
        "seed": plan.seed,
    }  # fmt: skip
    return Whole(
        f"{model}, {dataset}: comparing detectors", cell, SCORES, inputs, compute, lambda: plan.repeats * FOLDS
    )


def entries_of(names: Sequence[str], site: Site) -> dict[str, Entry]:
    """The detectors of these names, or all."""
    return {name: entry_of(name, site) for name in names} if names else catalogue(site)


# --- from jobs to stages


def answer_means_of(context: ModelContext, job: Job) -> Sharded[AnswerMean]:
    """The stage that a job asks for."""
    return answer_means_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def several_of(context: ModelContext, job: Job) -> Sharded[Several]:
    """The stage that a job asks for."""
    return several_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def scores_of(context: Context, job: Job) -> Whole[Score]:
    """The stage that a job asks for."""
    return scores_stage(context.store, job.model, job.dataset, job.demand, context.notice)
