"""The fifth stage: from samples to the `traces` table and the activations beside it.

Models here answer a few percent right, so wrong answers are drawn: every row keeps the probability with which it was.
Activations are safetensors shards, one tensor `condition/site/position` of shape (layer, sample, width) each, in the
order of the table; they are read a layer at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from safetensors.torch import save

from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.models.load import Model
from anchorscope.models.prompts import closing_id
from anchorscope.progress import Advance
from anchorscope.spans import SPANS
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Forward, Plan, Sharded, Store, Whole
from anchorscope.store.files import write_bytes
from anchorscope.study import TraceSpec
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.activations import activations_path, support_name, tensor_name
from anchorscope.traces.budget import ENOUGH, Budget, make_budget
from anchorscope.traces.choose import choose
from anchorscope.traces.conditions import CUTS
from anchorscope.traces.donors import Donors, find_donors
from anchorscope.traces.knockout import Knockout
from anchorscope.traces.mass import attention_mass
from anchorscope.traces.passes import Passes
from anchorscope.traces.record import MASS, TRACES, Mass, Trace
from anchorscope.traces.tracer import Read, Tracer

SAID = 6  # tokens of an answer, for the memory of a batch: logits of each are made
SHARD_ROWS = 256  # what a stopped run traces again, at most; fewer where the study has smaller shards


def traces_stage(model: Model, shared_ids: Sequence[int], dataset: str, store: Store) -> Sharded[Trace]:
    """The `traces` table of one model and dataset; a shard's activations are written before its rows."""
    spec, cell = store.study.traces, store.results(model.name, dataset)
    chosen = choose(store, model.name, dataset)
    inputs = {
        "spans": cell.origin(SPANS),
        "traces": spec.model_dump(mode="json", exclude={"memory"}),
        "seed": store.study.seed,
        "chosen": chosen.digest,
    }
    tracer = Tracer(model, shared_ids, spec.sites)
    donors: dict[str, Donors] = {}
    if store.study.evidence is not None:
        inputs["evidence"] = {"donors": store.study.evidence.donors}
        every = read_samples(store, model.name, dataset)
        donors = find_donors(every, chosen.clusters, len(shared_ids), store.study.evidence.donors, store.study.seed)
    passes = _passes(model, tracer, store, donors)
    facts = {
        "batch_plan": {"rows": "of similar length, within a shard", **budget_of(tracer, passes).record()},
        "attention": model.fingerprint["attention"],
        "clusters": {"count": len(set(chosen.clusters.values())), "apart": chosen.apart},
    }
    plan = Plan(len(chosen.clusters), min(SHARD_ROWS, store.study.shard_rows))
    table = cell.begin(TRACES, plan, inputs, facts)
    samples = Forward(table.plan, lambda: chosen.samples(store, model.name, dataset))

    def trace(shard: int) -> list[list[Trace]]:
        some = samples(shard)
        write_bytes(activations_path(cell, shard), save(trace_samples(tracer, some, spec, passes)))
        return [[chosen.row(sample, donors.get(sample.question.id)) for sample in some]]

    return Sharded(f"{model.name}, {dataset}: tracing", (table,), trace)


def mass_stage(model: Model, shared_ids: Sequence[int], dataset: str, store: Store) -> Whole[Mass]:
    """The `mass` table of one model and dataset: of some of the traced samples, drawn by a hash of seed and id."""
    spec, cell, seed = store.study.traces, store.results(model.name, dataset), store.study.seed
    cutting = [condition for condition in spec.conditions if condition in CUTS]

    def compute(advance: Advance) -> list[Mass]:
        ids = [row.id for row in cell.table(TRACES)]
        some = set(sorted(ids, key=lambda each: hashlib.blake2b(f"{seed}/mass/{each}".encode()).digest())[: spec.mass])
        rows = []
        for sample in read_samples(store, model.name, dataset):
            if sample.question.id in some:
                text = [*shared_ids, *sample.answer.prompt_ids, *sample.answer.answer_ids]
                cuts = [Knockout(CUTS[condition], spec.into).cut(sample.spans) for condition in cutting]
                masses: Any = attention_mass(model, text[: sample.spans.answer_last + 1], cuts)
                rows += [Mass(sample.question.id, name, each) for name, each in zip(cutting, masses, strict=True)]
                advance(1)
        return rows

    inputs = {"traces": cell.origin(TRACES), "samples": spec.mass, "conditions": cutting, "into": spec.into}
    steps = min(spec.mass, cell.table(TRACES).plan.rows)
    return Whole(
        f"{model.name}, {dataset}: measuring attention",
        cell,
        MASS,
        inputs,
        compute,
        lambda: steps,
        store.study.shard_rows,
    )


def trace_samples(
    tracer: Tracer, samples: Sequence[Sample], spec: TraceSpec, passes: Passes | None = None
) -> dict[str, torch.Tensor]:
    """The activations of samples: (layer, sample, width) for each `condition/site/position`.

    Where evidence is asked for, also (sample,) for each `support/condition`: the log-probability of the answer.
    """
    passes = passes or Passes(spec, tracer.shared_ids, tracer.layers)
    kept = passes.kept
    # 1. the streams of each sample
    rows = [passes.streams(sample) for sample in samples]
    # 2. where what is read will stay, made before any pass: no holes in the heap
    network = tracer.model.network
    dtype = torch.float32 if network.dtype == torch.float64 else network.dtype
    names = {
        (site, each): tensor_name(each.name, ReadPoint(site, each.position)) for site in tracer.sites for each in kept
    }
    shape = (tracer.layers, len(samples), network.config.get_text_config().hidden_size)
    activations = {name: torch.empty(shape, dtype=dtype) for name in names.values()}
    support = {support_name(condition): torch.zeros(len(samples)) for condition in passes.supported}
    # 3. batch by batch
    budget = budget_of(tracer, passes)
    lengths = [sum(len(stream.ids) for stream in row) for row in rows]
    for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH):
        reads = [
            Read(i, each.stream, passes.place(each.name, samples[row].spans, each.position))
            for each in kept
            for i, row in enumerate(batch)
        ]
        streams = [rows[row] for row in batch]
        said = [passes.said(samples[row], i) for i, row in enumerate(batch)]
        if support:
            made, logprobs = tracer.with_support(streams, reads, [each for some in said for each in some])
            for row, some in zip(batch, torch.split(logprobs, [len(some) for some in said]), strict=True):
                for name, sums in zip(support, some.view(len(support), -1).sum(dim=1), strict=True):
                    support[name][row] = sums
        else:
            made = tracer(streams, reads)
        for site, states in made.items():
            for each, block in zip(kept, torch.split(states, len(batch), dim=1), strict=True):
                activations[names[site, each]][:, batch] = block.to(dtype)
        del made, states, block
        give_back()
    return activations | support


def budget_of(tracer: Tracer, passes: Passes) -> Budget:
    """What a batch of samples may take."""
    reads = len(passes.kept) * len(passes.spec.sites)
    predicted = SAID * len(passes.supported)
    return make_budget(tracer.model, passes.spec.memory, len(tracer.shared_ids), reads, predicted=predicted)


def _passes(model: Model, tracer: Tracer, store: Store, donors: dict[str, Donors]) -> Passes:
    """What is computed of each sample of a study."""
    study, shared = store.study, tracer.shared_ids
    return Passes(
        study.traces,
        shared,
        tracer.layers,
        study.evidence,
        closing_id(model.tokenizer, study.prompt_for(model.spec).style),
        int(bool(shared) and shared[0] == model.tokenizer.bos_token_id),
        {name: each.patches for name, each in donors.items()},
    )
