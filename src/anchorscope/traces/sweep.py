"""Samples through the model, all passes of each at once, batch by batch: what is read, and what is said."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.spans.samples import Sample
from anchorscope.study import TraceSpec
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.activations import support_name, tensor_name
from anchorscope.traces.budget import ENOUGH, Budget, longest_of, make_budget
from anchorscope.traces.layout import Stream
from anchorscope.traces.passes import Passes
from anchorscope.traces.tracer import Read, Tracer

SAID = 6  # tokens of an answer, for the memory of a batch: logits of each are made


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
        (site, reading): tensor_name(reading.name, ReadPoint(site, reading.position))
        for site in tracer.sites
        for reading in kept
    }
    shape = (tracer.layers, len(samples), network.config.get_text_config().hidden_size)
    activations = {name: torch.empty(shape, dtype=dtype) for name in names.values()}
    support = {support_name(condition): torch.zeros(len(samples)) for condition in passes.supported}
    # 3. batch by batch
    budget = budget_of(tracer, passes, rows)
    lengths = [sum(len(stream.ids) for stream in row) for row in rows]
    for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH):
        reads = [
            Read(i, reading.stream, passes.place(reading.name, samples[row].spans, reading.position))
            for reading in kept
            for i, row in enumerate(batch)
        ]
        streams = [rows[row] for row in batch]
        predicted = [passes.said(samples[row], i) for i, row in enumerate(batch)]
        if support:
            by_site, logprobs = tracer.with_support(streams, reads, [token for tokens in predicted for token in tokens])
            for row, values in zip(batch, torch.split(logprobs, [len(tokens) for tokens in predicted]), strict=True):
                for name, sums in zip(support, values.view(len(support), -1).sum(dim=1), strict=True):
                    support[name][row] = sums
        else:
            by_site = tracer(streams, reads)
        for site, states in by_site.items():
            for reading, block in zip(kept, torch.split(states, len(batch), dim=1), strict=True):
                activations[names[site, reading]][:, batch] = block.to(dtype)
        del by_site, states, block
        give_back()
    return activations | support


def budget_of(tracer: Tracer, passes: Passes, rows: Sequence[Sequence[Stream]] = ()) -> Budget:
    """What a batch of samples may take, whose streams these are."""
    reads = len(passes.kept) * len(passes.spec.sites)
    predicted, longest = SAID * len(passes.supported), longest_of(rows)
    return make_budget(tracer.model, passes.spec.memory, len(tracer.shared_ids), reads, longest, predicted)
