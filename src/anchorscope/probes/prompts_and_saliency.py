"""Some traced samples again, by the same probes: asked with other shots, and in a pass with gradients.

With other shots the answer's tokens stay as they are; the exact tokens are found anew in the longer or shorter prompt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.models.prompts import Prompter
from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem
from anchorscope.probes.record import PROMPTS, READOUTS, SALIENCY, OtherPrompt, Salient
from anchorscope.probes.within_readouts import read_states
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Plan, Sharded
from anchorscope.study import PromptSpec
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES, Trace
from anchorscope.traces.saliency import saliencies
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.store import Cell, Store

SAMPLES = 64  # per shard
OF: tuple[Literal["logit", "loss"], ...] = ("logit", "loss")


def other_prompts(spec: PromptSpec, count: int) -> list[PromptSpec]:
    """The same prompt with other shots: the examples behind those it has, and every second one, as far as there are."""
    shots = spec.shots
    sets = [spec.examples[shots : 2 * shots], spec.examples[1::2][:shots]]
    return [spec.model_copy(update={"examples": chosen}) for chosen in sets if shots and len(chosen) == shots][:count]


def chosen_again(rows: Sequence[Trace], count: int, seed: int) -> NDArray[np.int64]:
    """Which traced samples: the first by a hash of seed and id, in their order."""
    ranks = [hashlib.blake2b(f"{seed}/again/{row.id}".encode(), digest_size=8).digest() for row in rows]
    return np.array(sorted(sorted(range(len(rows)), key=lambda i: ranks[i])[:count]), dtype=np.int64)


def prompts_stage(model: Model, dataset: str, store: Store) -> Sharded[OtherPrompt]:
    """The `prompts` tables of one model and dataset, one for every read point."""
    study, cell = store.study, store.results(model.name, dataset)
    assert study.evidence is not None
    others = other_prompts(study.prompt_for(model.spec), study.evidence.other_prompts)
    spec = study.traces.model_copy(update={"conditions": ["clean", "knockout"]})
    rows, members, folds, probes = _readers(store, cell)
    makers = [SampleMaker.of(Prompter(model.tokenizer, other, model.wants_bos), study) for other in others]
    tracers = [Tracer(model, maker.prompter.shared_ids, spec.sites) for maker in makers]
    wanted = [(number, int(i)) for number in range(len(others)) for i in members]
    plan = Plan(len(wanted), SAMPLES)
    tables = _begun(store, cell, PROMPTS, plan, {"prompts": [other.model_dump(mode="json") for other in others]})
    samples = _LazySamples(store, model.name, dataset, {rows[i].id for i in members})

    def read(shard: int) -> list[list[OtherPrompt]]:
        of_shard = wanted[shard * SAMPLES : (shard + 1) * SAMPLES]
        by_point: list[list[OtherPrompt]] = [[] for _ in study.traces.points]
        for number in dict.fromkeys(number for number, _ in of_shard):
            indices = np.array([i for prompt, i in of_shard if prompt == number])
            moved = [_moved(samples[rows[i].id], makers[number]) for i in indices]
            usable = [i for i, sample in enumerate(moved) if sample is not None]
            states = trace_samples(tracers[number], [sample for sample in moved if sample is not None], spec)
            for point, table in zip(study.traces.points, by_point, strict=True):
                logits: Any = np.full((len(indices), 2, folds.repeats, len(probes[point])), np.nan, np.float32)
                if usable:
                    logits[usable] = read_states(states, point, spec.conditions, probes[point], folds, indices[usable])
                table += [OtherPrompt(rows[i].id, number, values) for i, values in zip(indices, logits, strict=True)]
        return by_point

    return Sharded(f"{model.name}, {dataset}: asking with other shots", tables, read)


def saliency_stage(model: Model, shared_ids: Sequence[int], dataset: str, store: Store) -> Sharded[Salient]:
    """The `saliency` tables of one model and dataset, one for every read point."""
    study, cell = store.study, store.results(model.name, dataset)
    rows, members, folds, probes = _readers(store, cell)
    tables = _begun(store, cell, SALIENCY, Plan(len(members), SAMPLES), {"layer": "half"})
    samples = _LazySamples(store, model.name, dataset, {rows[i].id for i in members})
    parts = _parts(members)

    def read(shard: int) -> list[list[Salient]]:
        part = parts[shard]
        taken = [samples[rows[i].id] for i in part]
        by_point = []
        for point in study.traces.points:
            places = [int(getattr(sample.spans, point.position)) for sample in taken]
            layer = round((len(probes[point]) - 1) / 2)
            weights = probes[point][layer].weight[0, folds.fold[0, part], 0]
            both = [
                saliencies(model, shared_ids, taken, places, layer, point.site, weights, of, study.traces.memory)
                for of in OF
            ]
            by_point.append([Salient(rows[i].id, *values) for i, *values in zip(part, *both, strict=True)])
        return by_point

    return Sharded(f"{model.name}, {dataset}: saliency", tables, read)


def _readers(
    store: Store, cell: Cell
) -> tuple[list[Trace], NDArray[np.int64], Folds, dict[ReadPoint, list[LayerProbes]]]:
    """The traced samples, which of them are read again, their folds, and the probes of every read point."""
    study = store.study
    assert study.evidence is not None
    rows = list(cell.table(TRACES))
    members = chosen_again(rows, study.evidence.saliency_samples, study.seed)
    folds = folds_of(rows, study.probes, study.seed)[2]
    return rows, members, folds, {p: load_probes(probes_stem(cell, p))[0] for p in study.traces.points}


def _parts(members: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    return [members[first : first + SAMPLES] for first in range(0, len(members), SAMPLES)]


def _begun(store: Store, cell: Cell, kind: Any, plan: Plan, what: dict[str, Any]) -> tuple[Any, ...]:
    """A table for every read point."""
    assert store.study.evidence is not None
    about = {"samples": store.study.evidence.saliency_samples, "seed": store.study.seed, **what}
    return tuple(
        cell.begin(kind.at(point), plan, {"readouts": cell.origin(READOUTS.at(point)), **about}, {})
        for point in store.study.traces.points
    )


class _LazySamples:
    """Samples by the id of their question, read when first asked for."""

    def __init__(self, store: Store, model: str, dataset: str, wanted: set[str]) -> None:
        self._where, self._wanted = (store, model, dataset), wanted
        self._samples: dict[str, Sample] = {}

    def __getitem__(self, name: str) -> Sample:
        if not self._samples:
            samples = read_samples(*self._where, self._wanted)
            self._samples = {sample.question.id: sample for sample in samples}
        return self._samples[name]


def _moved(sample: Sample, maker: SampleMaker) -> Sample | None:
    """The sample behind another prompt; None where its exact tokens cannot be found there."""
    question = replace(sample.question, context=sample.answer.context)
    answer = sample.answer
    moved = maker(question, answer.answer, answer.answer_ids, answer.logprobs, grade=sample.grade, ended=answer.ended)
    return moved if moved.spans.dropped is None else None
