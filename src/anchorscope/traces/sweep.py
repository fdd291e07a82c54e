"""Samples through the model, all passes of each at once, batch by batch: what is read, and what is said."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.progress import Advance, uncounted
from anchorscope.spans.samples import Sample
from anchorscope.study import TraceSpec
from anchorscope.study.terms import StateName
from anchorscope.traces.activations import support_name
from anchorscope.traces.budget import ENOUGH, Budget, longest_of, make_budget
from anchorscope.traces.layout import Stream
from anchorscope.traces.passes import ANSWER_MEAN, Passes
from anchorscope.traces.tracer import Read, Tracer

SAID = 6  # tokens of an answer, for the memory of a batch: logits of each are made, or states of each are read


def trace_samples(
    tracer: Tracer,
    samples: Sequence[Sample],
    spec: TraceSpec,
    passes: Passes | None = None,
    advance: Advance = uncounted,
) -> dict[str, torch.Tensor]:
    """The activations of samples: (layer, sample, width) for each `condition/site/position`.

    A mean over the answer's tokens is in float32. Where evidence is asked for, also (sample,) for each
    `support/condition`: the log-probability of the answer.
    """
    passes = passes or Passes(spec, tracer.shared_ids, tracer.layers)
    kept = passes.kept
    # 1. the streams of each sample
    rows = [passes.streams(sample) for sample in samples]
    # 2. where what is read will stay, made before any pass: no holes in the heap
    network = tracer.model.network
    dtype = torch.float32 if network.dtype == torch.float64 else network.dtype
    names = {
        (site, reading): str(StateName(reading.name, site, reading.position))
        for site in tracer.sites
        for reading in kept
    }
    shape = (tracer.layers, len(samples), network.config.get_text_config().hidden_size)
    activations = {
        name: torch.empty(shape, dtype=torch.float32 if reading.position == ANSWER_MEAN else dtype)
        for (_, reading), name in names.items()
    }
    support = {support_name(condition): torch.zeros(len(samples)) for condition in passes.supported}
    # 3. batch by batch
    budget = budget_of(tracer, passes, rows)
    lengths = [sum(len(stream.ids) for stream in row) for row in rows]
    for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH):
        places = [[passes.places(one.name, samples[row].spans, one.position) for row in batch] for one in kept]
        reads = [
            Read(i, reading.stream, place)
            for reading, of_samples in zip(kept, places, strict=True)
            for i, of_sample in enumerate(of_samples)
            for place in of_sample
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
        counts = [[len(of_sample) for of_sample in of_samples] for of_samples in places]
        for site, states in by_site.items():
            blocks = torch.split(states, [sum(of_samples) for of_samples in counts], dim=1)
            for reading, of_samples, block in zip(kept, counts, blocks, strict=True):
                if reading.position == ANSWER_MEAN:
                    answers = torch.split(block.float(), of_samples, dim=1)
                    block = torch.stack([answer.mean(dim=1) for answer in answers], dim=1)
                kept_as = activations[names[site, reading]]
                kept_as[:, batch] = block.to(kept_as.dtype)
        del by_site, states, blocks, block
        advance(len(batch))
        give_back()
    return activations | support


def budget_of(tracer: Tracer, passes: Passes, rows: Sequence[Sequence[Stream]] = ()) -> Budget:
    """What a batch of samples may take, whose streams these are."""
    reads = sum(SAID if one.position == ANSWER_MEAN else 1 for one in passes.kept) * len(passes.spec.sites)
    predicted, longest = SAID * len(passes.supported), longest_of(rows)
    return make_budget(tracer.model, passes.spec.memory, len(tracer.shared_ids), reads, longest, predicted)
