"""From samples to the `traces` table and the activations beside it.

Models here answer a few percent right, so wrong answers are drawn: every row keeps the probability with which it was.
Activations are safetensors shards, one tensor `condition/site/position` of shape (layer, sample, width) each, in the
order of the table; they are read a layer at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from safetensors.torch import save

from anchorscope.models.context import ModelContext
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter, closing_id
from anchorscope.progress import Advance
from anchorscope.spans import SPANS
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Forward, Guard, Job, Plan, Sharded, Store, Whole
from anchorscope.store.table import Aside
from anchorscope.store.tensors import write_tensors
from anchorscope.traces.activations import activations_path
from anchorscope.traces.choose import choose
from anchorscope.traces.conditions import CUTS, cut_layers, cut_of
from anchorscope.traces.donors import Donors, find_donors
from anchorscope.traces.mass import attention_mass
from anchorscope.traces.passes import Passes
from anchorscope.traces.record import MASS, TRACES, Mass, Trace
from anchorscope.traces.swapped import swapped_prompts
from anchorscope.traces.sweep import budget_of, trace_samples
from anchorscope.traces.tracer import Tracer

BATCHES = "of similar length, within a shard; longest: the tokens of the shard's longest stream"
SHARD_ROWS = 256  # what a stopped run traces again, at most; fewer where the study has smaller shards


def traces_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[Trace]:
    """The `traces` table of one model and dataset; a shard's activations are written before its rows.

    A sample on which the model fails is set aside: it has neither.
    """
    spec, cell = store.study.traces, store.results(model.name, dataset)
    chosen = choose(store, model.name, dataset)
    inputs = {
        "spans": cell.origin(SPANS),
        "traces": spec.model_dump(mode="json", exclude={"memory"}),
        "seed": store.study.seed,
        "chosen": chosen.digest,
    }
    shared_ids = prompter.shared_ids
    tracer = Tracer(model, shared_ids, spec.sites)
    donors: dict[str, Donors] = {}
    if store.study.evidence is not None:
        inputs["evidence"] = {"donors": store.study.evidence.donors}
        every = read_samples(store, model.name, dataset)
        donors = find_donors(every, chosen.clusters, len(shared_ids), store.study.evidence.donors, store.study.seed)
    passages: dict[str, list[int]] = {}
    if "swapped_context" in spec.conditions:
        every = read_samples(store, model.name, dataset)
        passages = swapped_prompts(every, chosen.clusters, prompter, store.study.seed)
    passes = _passes(model, tracer, store, donors, passages)
    facts = {
        "batch_plan": {"rows": BATCHES, **budget_of(tracer, passes).record()},
        "attention": model.fingerprint["attention"],
        "clusters": {"count": len(set(chosen.clusters.values())), "apart": chosen.apart},
        **({"swapped": len(passages)} if passages else {}),
    }
    plan = Plan(len(chosen.clusters), min(SHARD_ROWS, store.study.shard_rows))
    table = cell.begin(TRACES, plan, inputs, facts)
    samples = Forward(table.plan, lambda: chosen.samples(store, model.name, dataset))

    guard: Guard[Sample] = Guard(table, lambda sample: sample.question.id)
    aside: dict[int, list[Aside]] = {}
    beside: dict[int, dict[str, str]] = {}

    def trace(shard: int, advance: Advance) -> list[list[Trace]]:
        of_shard = samples(shard)
        states, aside[shard] = guard(shard, of_shard, lambda batch: trace_samples(tracer, batch, spec, passes, advance))
        left = {failed.id for failed in aside[shard]}
        beside[shard] = write_tensors(activations_path(cell, shard), save(states), cell.folder)
        return [
            [
                chosen.row(sample, donors.get(sample.question.id))
                for sample in of_shard
                if sample.question.id not in left
            ]
        ]

    return Sharded(f"{model.name}, {dataset}: tracing", (table,), trace, aside=aside, beside=beside, guarded=True)


def mass_stage(model: Model, shared_ids: Sequence[int], dataset: str, store: Store) -> Whole[Mass]:
    """The `mass` table of one model and dataset: of some of the traced samples, drawn by a hash of seed and id."""
    spec, cell, seed = store.study.traces, store.results(model.name, dataset), store.study.seed
    everywhere = range(len(model.windows))
    cuts_everywhere = [name for name in CUTS if cut_layers(name, len(everywhere)) == everywhere]
    cutting = [condition for condition in spec.conditions if condition in cuts_everywhere]

    def compute(advance: Advance) -> list[Mass]:
        import torch

        ids = list(choose(store, model.name, dataset).clusters)  # so it can be made while they are traced
        wanted = set(
            sorted(ids, key=lambda question_id: hashlib.blake2b(f"{seed}/mass/{question_id}".encode()).digest())[
                : spec.attention_samples
            ]
        )
        rows, failure = [], None
        for sample in read_samples(store, model.name, dataset, wanted):
            text = [*shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]
            cuts = [cut_of(condition, sample.spans, spec.into) for condition in cutting]
            advance(1)
            try:
                masses = attention_mass(model, text[: sample.spans.answer_last + 1], cuts)
            except (torch.OutOfMemoryError, torch.AcceleratorError):
                raise
            except (RuntimeError, IndexError, ValueError) as error:  # the model fails on it: tracing sets it aside
                failure = error
                continue
            rows += [Mass(sample.question.id, name, mass) for name, mass in zip(cutting, masses, strict=True)]
        if failure is not None and not rows:  # of all of them: it is not the samples
            raise failure
        return rows

    inputs = {
        "traces": cell.origin(TRACES),
        "samples": spec.attention_samples,
        "conditions": cutting,
        "into": spec.into,
    }
    steps = min(spec.attention_samples, cell.table(TRACES).plan.rows)
    return Whole(
        f"{model.name}, {dataset}: measuring attention",
        cell,
        MASS,
        inputs,
        compute,
        lambda: steps,
        store.study.shard_rows,
    )


def _passes(
    model: Model, tracer: Tracer, store: Store, donors: dict[str, Donors], passages: dict[str, list[int]]
) -> Passes:
    """What is computed of each sample of a study."""
    study, shared = store.study, tracer.shared_ids
    return Passes(
        study.traces,
        shared,
        tracer.layers,
        study.evidence,
        closing_id(model.tokenizer, study.prompt_for(model.spec).style),
        int(bool(shared) and shared[0] == model.tokenizer.bos_token_id),
        {name: of_sample.patches for name, of_sample in donors.items()},
        passages,
    )


def traces_of(context: ModelContext, job: Job) -> Sharded[Trace]:
    return traces_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def mass_of(context: ModelContext, job: Job) -> Whole[Mass]:
    return mass_stage(context.model(job.model), context.prompter(job.model).shared_ids, job.dataset, context.store)
