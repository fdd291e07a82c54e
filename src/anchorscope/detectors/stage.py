"""The stages of detectors: `extras`, another model's states, sampled agreement, and the scores of all detectors.

No study wants them by itself: `detect eval` and `detect fit` ask for them. Rows of the first three are those of the
`traces` table, in its order; states lie beside a table as safetensors shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors.torch import save

from anchorscope.answers.answerer import Answerer
from anchorscope.answers.generate import Generated
from anchorscope.answers.record import SAMPLED
from anchorscope.detectors.agreement import agreement
from anchorscope.detectors.catalogue import BETAS, Entry, catalogue, entry_of, raised
from anchorscope.detectors.crossfit import FOLDS, cross_scored, folds_for, possible, shuffled
from anchorscope.detectors.inputs import states_among
from anchorscope.detectors.pass_plan import RAISED, SAYS, TRUTH, readable
from anchorscope.detectors.reader import Reader
from anchorscope.detectors.record import (
    AGREEMENT,
    EXTRAS,
    OTHER_STATES,
    SCORES,
    SEVERAL,
    SHUFFLED,
    Agreement,
    EvalPlan,
    Extra,
    OtherStates,
    Score,
    Several,
)
from anchorscope.detectors.tables import read_labelled, read_several, states_path
from anchorscope.detectors.widening import widening_of
from anchorscope.grades.grading import Grader, grader
from anchorscope.models.context import ModelContext
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.within import answers_within
from anchorscope.progress import Advance, Notice, nobody
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Cell, Forward, Job, Kind, Plan, Sharded, Store, Whole
from anchorscope.store.stage import Context
from anchorscope.store.tensors import write_tensors
from anchorscope.study import Study
from anchorscope.study.terms import Site, StateName
from anchorscope.traces.record import TRACES

R = TypeVar("R")
SHARD_ROWS = 128  # what a stopped run does again, at most
TEMPERATURE = 1.0  # at which answers are drawn for agreement
Draw = Callable[[Sequence[Sequence[int]], int, float, Sequence[str]], list[list[Generated]]]
"""Draws answers: prompts, how many, temperature, keys."""


def extras_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[Extra]:
    """The `extras` table of one model and dataset: passes of the model itself."""
    cell, spec = store.results(model.name, dataset), store.study.traces
    site = spec.sites[0]
    inputs = {
        "traces": cell.origin(TRACES),
        "site": site,
        "into": spec.into,
        "betas": list(BETAS),
        "asked": [TRUTH, *SAYS],
    }
    reader = Reader(model, prompter, spec.into, memory=spec.memory)
    states = [StateName("clean", site, position) for position in ("answer_mean", "after_answer")]
    states += [raised(span, beta, site) for span in RAISED for beta in BETAS]
    beside: dict[int, dict[str, str]] = {}

    def rows(samples: Sequence[Sample], shard: int) -> list[Extra]:
        read = reader.read(samples, [*states, "support", "p_true"])
        beside[shard] = _keep(cell, EXTRAS, shard, read.states)
        every = zip(samples, read.numbers["p_true"], read.numbers["support"], strict=True)
        return [Extra(sample.question.id, true, support) for sample, true, support in every]

    return _sharded(
        f"{model.name}, {dataset}: reading for detectors", store, model.name, dataset, EXTRAS, inputs, rows, beside
    )


def other_states_stage(other: Model, prompter: Prompter, name: str, dataset: str, store: Store) -> Sharded[OtherStates]:
    """The `other_states` table of a model `name` and dataset: the same texts, read by another model."""
    cell, spec = store.results(name, dataset), store.study.traces
    site = spec.sites[0]
    inputs = {"traces": cell.origin(TRACES), "site": site, "other": other.fingerprint, "prompt": prompter.describe()}
    reader = Reader(other, prompter, memory=spec.memory)
    states = [StateName("clean", site, position) for position in ("prompt_last", "answer_last")]
    beside: dict[int, dict[str, str]] = {}

    def rows(samples: Sequence[Sample], shard: int) -> list[OtherStates]:
        own = [reader.maker(sample.question, sample.answer.answer) for sample in samples]
        read = reader.read([_with_last_token(sample, prompter) for sample in own], states)
        named = {name._replace(condition="other"): tensor for name, tensor in read.states.items()}
        beside[shard] = _keep(cell, OTHER_STATES, shard, named)
        return [OtherStates(sample.question.id, sample.spans.dropped is None) for sample in own]

    title = f"{name}, {dataset}: read by {other.name}"
    return _sharded(title, store, name, dataset, OTHER_STATES, inputs, rows, beside)


def _with_last_token(sample: Sample, prompter: Prompter) -> Sample:
    """A sample whose exact answer was not found, with its last token in that place; any other as it is."""
    if sample.spans.dropped is None:
        return sample
    ids = sample.answer.answer_ids or sample.answer.prompt_ids[-1:]
    start = len(prompter.shared_ids) + len(sample.answer.prompt_ids)
    end = start + len(ids)
    spans = replace(sample.spans, answer=[start, end], answer_last=end - 1, prompt_last=start - 1)
    return replace(sample, answer=replace(sample.answer, answer_ids=ids), spans=spans)


def agreement_stage(
    model: Model, prompter: Prompter, draw: Draw, dataset: str, store: Store, answers: int, temperature: float
) -> Sharded[Agreement]:
    """The `agreement` table of one model and dataset: so many answers to each traced question, drawn and compared."""
    cell, seed = store.results(model.name, dataset), store.study.seed
    judge = _judge_of(store.study)
    inputs = {"traces": cell.origin(TRACES), "answers": answers, "temperature": temperature, "seed": seed}

    def rows(samples: Sequence[Sample], shard: int) -> list[Agreement]:
        prompts = [[*prompter.shared_ids, *sample.answer.prompt_ids] for sample in samples]
        drawn = draw(prompts, answers, temperature, [f"{seed}/agreement/{s.question.id}" for s in samples])
        out = []
        for sample, generated in zip(samples, drawn, strict=True):
            decoded = model.tokenizer.batch_decode([answer.ids for answer in generated], skip_special_tokens=True)
            texts = [text.strip() for text in decoded]
            share, entropy = agreement(judge, sample.question.question, sample.answer.answer, texts)
            out.append(Agreement(sample.question.id, answers, share, entropy))
        return out

    return _sharded(f"{model.name}, {dataset}: asking again", store, model.name, dataset, AGREEMENT, inputs, rows, {})


def _judge_of(study: Study) -> Grader:
    """What says whether two answers say the same: the study's rules, or the usual ones where a model judges."""
    return grader() if study.grades.judge else grader(study.grades.grader)


def _sharded(
    title: str,
    store: Store,
    model: str,
    dataset: str,
    kind: Kind[R],
    inputs: dict[str, Any],
    rows: Callable[[Sequence[Sample], int], list[R]],
    beside: dict[int, dict[str, str]],
) -> Sharded[R]:
    """A stage over the traced samples, in their order. `rows` puts the digests of the states it writes in `beside`."""
    cell = store.results(model, dataset)
    ids = {row.id for row in cell.table(TRACES)}
    table = cell.begin(kind, Plan(len(ids), SHARD_ROWS), inputs, {})

    def traced() -> Iterator[Sample]:
        return read_samples(store, model, dataset, ids)

    samples = Forward(table.plan, traced)
    return Sharded(title, (table,), lambda shard: [rows(samples(shard), shard)], beside=beside)


def _keep(cell: Cell, kind: Kind[Any], shard: int, states: dict[StateName, torch.Tensor]) -> dict[str, str]:
    """Write the states of a shard, and return the file's digest."""
    content = save({str(name): tensor for name, tensor in states.items()})
    return write_tensors(states_path(cell, kind, shard), content, cell.folder)


def several_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[Several]:
    """The `several` table of one model and dataset: right and wrong answers to one question, read for detectors."""
    study, cell = store.study, store.results(model.name, dataset)
    assert study.evidence is not None
    spec, site = study.traces, study.traces.sites[0]
    sampled = {row.id: row for row in cell.table(SAMPLED)}
    answers = answers_within(store, prompter, model.name, dataset)
    states = several_states(study)
    inputs = {
        "traces": cell.origin(TRACES), "sampled": cell.origin(SAMPLED), "into": spec.into,
        "states": [str(name) for name in states], "asked": [TRUTH, *SAYS], "distinct": study.evidence.distinct,
        "grades": study.grades.identity(), "site": site,
    }  # fmt: skip
    table = cell.begin(SEVERAL, Plan(len(answers), SHARD_ROWS), inputs, {})
    reader = Reader(model, prompter, spec.into, memory=spec.memory)
    judge = _judge_of(study)
    beside: dict[int, dict[str, str]] = {}

    def rows(shard: int) -> list[list[Several]]:
        of_shard = answers[shard * SHARD_ROWS : (shard + 1) * SHARD_ROWS]
        samples = [answer.sample for answer in of_shard]
        read = reader.read(samples, [*states, "support", "p_true"])
        beside[shard] = _keep(cell, SEVERAL, shard, read.states)
        several = []
        for place, (answer, sample) in enumerate(zip(of_shard, samples, strict=True)):
            row = sampled[sample.question.id]
            counts = [count - (number == answer.number) for number, count in enumerate(row.times)]
            others = [text for text, count in zip(row.texts, counts, strict=True) for _ in range(count)]
            share, entropy = agreement(judge, sample.question.question, row.texts[answer.number], others)
            numbers = read.numbers["p_true"][place], read.numbers["support"][place], share, entropy
            logprobs, right = [float(value) for value in sample.answer.logprobs], bool(sample.grade.correct)
            several.append(Several(sample.question.id, answer.number, sample.answer.answer, right, logprobs, *numbers))
        return [several]

    return Sharded(f"{model.name}, {dataset}: reading several answers for detectors", (table,), rows, beside=beside)


def several_states(study: Study) -> list[StateName]:
    """The states that detectors look at and that both traces, or `extras`, and further answers can have."""
    traced = {(condition, *point) for condition in study.traces.conditions for point in study.traces.points}
    known = readable()
    names: dict[StateName, None] = {}
    for entry in catalogue(study.traces.sites[0]).values():
        for name in states_among(entry.fitter.needs):
            kept = name.condition == "clean" and name.site in study.traces.sites
            if name.condition in known and (kept or tuple(name) in traced or name.condition.startswith("raised")):
                names[name] = None
    return list(names)


def scores_stage(
    store: Store, model: str, dataset: str, plan: EvalPlan, kind: Kind[Score] = SCORES, notice: Notice = nobody
) -> Whole[Score]:
    """The `scores` table of one model and dataset: every detector, nested. As `scores_shuffled`, of permuted labels."""
    cell, site, null = store.results(model, dataset), store.study.traces.sites[0], kind == SHUFFLED
    entries = entries_of(plan.detectors, site)

    def compute(advance: Advance) -> list[Score]:
        samples = read_labelled(store, model, dataset, plan.embedder)
        if null:
            samples = shuffled(samples, plan.seed)
        can, lacking = possible(samples.inputs, {name: entry.fitter for name, entry in entries.items()})
        if lacking:
            listed = "; ".join(f"{name} ({', '.join(map(str, needs[:2]))})" for name, needs in lacking.items())
            notice(f"{model}, {dataset}: these detectors are left out, because the run lacks their inputs: {listed}")
        several = None if null else read_several(store, model, dataset, samples.inputs, plan.embedder)
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
            if number < 0 or np.isfinite(logits[:, column]).all()
        ]  # fmt: skip

    kinds: list[Kind[Any]] = [EXTRAS, OTHER_STATES, AGREEMENT, *([] if null else [SEVERAL])]
    beside = {kind.name: cell.origin(kind) for kind in kinds if cell.complete(kind)}
    inputs = {
        "traces": cell.origin(TRACES), "beside": beside, "detectors": list(entries), "repeats": plan.repeats,
        "embedder": _weights_of(plan.embedder), "seed": plan.seed, "shuffled": null,
    }  # fmt: skip
    title = f"{model}, {dataset}: {'permuted labels' if null else 'comparing detectors'}"
    return Whole(title, cell, kind, inputs, compute, lambda: plan.repeats * FOLDS)


def _weights_of(embedder: str | None) -> dict[str, str] | bool:
    """The hashes of an embedding model's weights; False where there is none."""
    from anchorscope.models.load import file_hashes

    return file_hashes(Path(embedder)) if embedder else False


def entries_of(names: Sequence[str], site: Site) -> dict[str, Entry]:
    """The detectors of these names, or all."""
    return {name: entry_of(name, site) for name in names} if names else catalogue(site)


# --- from jobs to stages


def extras_of(context: ModelContext, job: Job) -> Sharded[Extra]:
    """The stage that a job asks for."""
    return extras_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def agreement_of(context: ModelContext, job: Job) -> Sharded[Agreement]:
    """The stage that a job asks for."""
    answerer = context.kept(Answerer, job.model, "generation")
    draw: Draw = lambda *about: answerer.generate.sample(*about)  # type: ignore[attr-defined]  # noqa: E731 when needed
    parts = (answerer.model, answerer.prompter, draw)
    return agreement_stage(*parts, job.dataset, context.store, job.demand.answers, TEMPERATURE)


def other_of(context: ModelContext, job: Job) -> Sharded[OtherStates]:
    """The stage that a job asks for."""
    study = context.store.study
    other = context.model(job.demand.other)
    spec = next(model for model in study.models if model.name == job.model)
    prompter = Prompter(other.tokenizer, study.prompt_for(spec), other.wants_bos)
    return other_states_stage(other, prompter, job.model, job.dataset, context.store)


def several_of(context: ModelContext, job: Job) -> Sharded[Several]:
    """The stage that a job asks for."""
    return several_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def scores_of(context: Context, job: Job) -> Whole[Score]:
    """The stage that a job asks for."""
    (kind,) = job.stage.tables
    return scores_stage(context.store, job.model, job.dataset, job.demand, kind, context.notice)
