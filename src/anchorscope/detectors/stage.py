"""What detectors need of a run beyond its traces: `extras`, another model's states, and sampled agreement.

Rows are those of the `traces` table, in its order. States lie beside a table as safetensors shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from safetensors.torch import save

from anchorscope.answers.generate import Generated
from anchorscope.detectors.agreement import agreement
from anchorscope.detectors.catalogue import BETAS
from anchorscope.detectors.extras import ASKED, SAYS, extras_of, other_states
from anchorscope.detectors.record import AGREEMENT, EXTRAS, OTHER_STATES, Agreement, Extra, OtherStates
from anchorscope.detectors.tables import states_path
from anchorscope.grades.grading import grader
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter, closing_id
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Cell, Forward, Kind, Plan, Sharded, Store
from anchorscope.store.files import write_bytes
from anchorscope.traces.record import TRACES
from anchorscope.traces.tracer import Tracer

R = TypeVar("R")
SHARD_ROWS = 128  # what a stopped run does again, at most
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
        "asked": [ASKED, *SAYS],
    }
    tracer = Tracer(model, prompter.shared_ids, [site])
    closing = closing_id(model.tokenizer, store.study.prompt_for(model.spec).style)

    def rows(samples: Sequence[Sample], shard: int) -> list[Extra]:
        made = extras_of(tracer, samples, site, spec.into, closing, spec.memory)
        _keep(cell, EXTRAS, shard, made.states)
        every = zip(samples, made.p_true, made.support, strict=True)
        return [Extra(sample.question.id, true, support) for sample, true, support in every]

    return _sharded(f"{model.name}, {dataset}: reading for detectors", store, model.name, dataset, EXTRAS, inputs, rows)


def other_states_stage(other: Model, prompter: Prompter, name: str, dataset: str, store: Store) -> Sharded[OtherStates]:
    """The `other_states` table of a model `name` and dataset: the same texts, read by another model."""
    cell, spec = store.results(name, dataset), store.study.traces
    site = spec.sites[0]
    inputs = {"traces": cell.origin(TRACES), "site": site, "other": other.fingerprint, "prompt": prompter.describe()}
    tracer = Tracer(other, prompter.shared_ids, [site])

    def rows(samples: Sequence[Sample], shard: int) -> list[OtherStates]:
        texts = [(sample.question, sample.answer.answer) for sample in samples]
        made = other_states(tracer, prompter, texts, site, spec.memory)
        _keep(cell, OTHER_STATES, shard, made.states)
        return [OtherStates(s.question.id, found) for s, found in zip(samples, made.found, strict=True)]

    title = f"{name}, {dataset}: read by {other.name}"
    return _sharded(title, store, name, dataset, OTHER_STATES, inputs, rows)


def agreement_stage(
    model: Model, prompter: Prompter, draw: Draw, dataset: str, store: Store, answers: int, temperature: float
) -> Sharded[Agreement]:
    """The `agreement` table of one model and dataset: so many answers to each traced question, drawn and compared."""
    cell, seed = store.results(model.name, dataset), store.study.seed
    judge = grader() if store.study.grades.judge else grader(store.study.grades.grader)
    inputs = {"traces": cell.origin(TRACES), "answers": answers, "temperature": temperature, "seed": seed}

    def rows(samples: Sequence[Sample], shard: int) -> list[Agreement]:
        prompts = [[*prompter.shared_ids, *sample.answer.prompt_ids] for sample in samples]
        drawn = draw(prompts, answers, temperature, [f"{seed}/agreement/{s.question.id}" for s in samples])
        out = []
        for sample, some in zip(samples, drawn, strict=True):
            texts = model.tokenizer.batch_decode([each.ids for each in some], skip_special_tokens=True)
            said = [text.strip() for text in texts]
            share, entropy = agreement(judge, sample.question.question, sample.answer.answer, said)
            out.append(Agreement(sample.question.id, answers, share, entropy))
        return out

    return _sharded(f"{model.name}, {dataset}: asking again", store, model.name, dataset, AGREEMENT, inputs, rows)


def _sharded(
    title: str,
    store: Store,
    model: str,
    dataset: str,
    kind: Kind[R],
    inputs: dict[str, Any],
    rows: Callable[[Sequence[Sample], int], list[R]],
) -> Sharded[R]:
    """A stage over the traced samples, in their order."""
    cell = store.results(model, dataset)
    ids = {row.id for row in cell.table(TRACES)}
    table = cell.begin(kind, Plan(len(ids), SHARD_ROWS), inputs, {})

    def traced() -> Iterator[Sample]:
        return read_samples(store, model, dataset, ids)

    samples = Forward(table.plan, traced)
    return Sharded(title, (table,), lambda shard: [rows(samples(shard), shard)])


def _keep(cell: Cell, kind: Kind[Any], shard: int, states: dict[str, torch.Tensor]) -> None:
    write_bytes(states_path(cell, kind, shard), save(states))
