"""The fourth stage: from samples to the `traces` table and the activations beside it.

Models here answer a few percent right, so wrong answers are drawn: every row keeps the probability with which it was.
Activations are safetensors shards, one tensor `condition/site/position` of shape (layer, sample, width) each, in the
order of the table; they are read a layer at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from anchorscope.batching import plan_batches
from anchorscope.budget import ENOUGH, Budget, make_budget
from anchorscope.conditions import Condition, Position, place_of, stream_of
from anchorscope.errors import StoreError
from anchorscope.memory import give_back
from anchorscope.models.load import Model
from anchorscope.models.sites import Site
from anchorscope.progress import Progress, silent
from anchorscope.samples import TABLE as SPANS
from anchorscope.samples import Sample, read_samples
from anchorscope.store import Cell, Store
from anchorscope.study import TraceSpec
from anchorscope.table import Plan, Table, write_bytes
from anchorscope.tracing import Read, Tracer

TABLE = "traces"
SHARD_ROWS = 256  # what a stopped run traces again, at most
ReadLayer = Callable[[Condition, int], NDArray[np.float32]]
"""From a condition and a layer to activations, (sample, width)."""
QUESTION_ONLY: Position = "prompt_last"  # before any answer exists; read in the clean pass always, for the baseline


@dataclass(frozen=True, slots=True)
class Trace:
    """One row of the `traces` table: a sample whose activations are kept, in their order."""

    id: str = field(metadata={"doc": "the question's id"})
    question: str = field(metadata={"doc": "the question"})
    answer: str = field(metadata={"doc": "the answer"})
    correct: bool = field(metadata={"doc": "the grade: what probes learn"})
    probability: float = field(metadata={"doc": "with which a sample of this grade was drawn"})
    cluster: int = field(metadata={"doc": "samples with the same question text or subject have the same"})
    relation: str | None = field(metadata={"doc": "property asked for, where the set says"})
    popularity: float | None = field(metadata={"doc": "how well known the subject is, where the set says"})
    logprobs: list[float] = field(metadata={"doc": "log-probability (natural) of each answer token"})
    cut_tokens: int = field(metadata={"doc": "exact question tokens that the knockout cuts"})


def write_traces(
    model: Model, shared_ids: Sequence[int], dataset: str, store: Store, progress: Progress = silent
) -> Table[Trace]:
    """Write the `traces` table and the activations of one model and dataset, or what is missing of them."""
    spec, cell = store.study.traces, store.results(model.name, dataset)
    inputs = {"spans": cell.origin(SPANS), "traces": spec.model_dump(mode="json"), "seed": store.study.seed}
    begun = cell.plan(TABLE)
    if begun is not None and not cell.table(TABLE, Trace).missing():
        return cell.begin(TABLE, Trace, _plan(begun["rows"]), {**inputs, "chosen": begun["inputs"]["chosen"]}, {})
    chosen = choose(store, model.name, dataset)
    inputs["chosen"] = chosen.digest
    tracer = Tracer(model, shared_ids, spec.sites)
    facts = {
        "batch_plan": {"rows": "of similar length, within a shard", **budget_of(tracer, spec).record()},
        "attention": model.fingerprint["attention"],
    }
    table = cell.begin(TABLE, Trace, _plan(len(chosen.clusters)), inputs, facts)
    missing, rest = table.missing(), chosen.samples(store, model.name, dataset)
    with progress(f"{model.name}, {dataset}: tracing", table.plan.rows) as advance:
        for shard in range(table.plan.shards):
            samples = list(islice(rest, len(table.plan.rows_of(shard))))
            if shard in missing:
                write_bytes(activations_path(cell, shard), save(trace_samples(tracer, samples, spec)))
                table.write(shard, [chosen.row(sample) for sample in samples])
            advance(len(samples))
    return table


def _plan(rows: int) -> Plan:
    return Plan(rows, SHARD_ROWS)


def trace_samples(tracer: Tracer, samples: Sequence[Sample], spec: TraceSpec) -> dict[str, torch.Tensor]:
    """The activations of samples: (layer, sample, width) for each `condition/site/position`."""
    shared, kinds = tracer.shared_ids, _kinds(spec)
    rows = []
    for sample in samples:
        end = 1 + max(place_of("clean", sample.spans, position) for _, position in kinds)
        ids = [*shared, *sample.answer.prompt_ids, *sample.answer.answer_ids][:end]  # later ones change nothing read
        rows.append([stream_of(c, ids, sample.spans, len(shared), spec.into, tracer.layers) for c in spec.conditions])
    dtype = torch.float32 if tracer.model.network.dtype == torch.float64 else tracer.model.network.dtype
    names = {
        (site, kind): tensor_name(spec.conditions[kind[0]], site, kind[1]) for site in tracer.sites for kind in kinds
    }
    shape = (tracer.layers, len(samples), tracer.model.network.config.get_text_config().hidden_size)
    found = {name: torch.empty(shape, dtype=dtype) for name in names.values()}  # before any pass: no holes in the heap
    budget = budget_of(tracer, spec)
    lengths = [sum(len(stream.ids) for stream in row) for row in rows]
    for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH):
        reads = [
            Read(i, c, place_of(spec.conditions[c], samples[row].spans, position))
            for c, position in kinds
            for i, row in enumerate(batch)
        ]
        for site, states in tracer([rows[row] for row in batch], reads).items():
            for kind, block in zip(kinds, torch.split(states, len(batch), dim=1), strict=True):
                found[names[site, kind]][:, batch] = block.to(dtype)
        del states, block
        give_back()
    return found


def budget_of(tracer: Tracer, spec: TraceSpec) -> Budget:
    """What a batch of samples may take."""
    return make_budget(tracer.model, spec.memory, len(tracer.shared_ids), len(_kinds(spec)) * len(spec.sites))


def _kinds(spec: TraceSpec) -> list[tuple[int, Position]]:
    """What is read of each sample: the number of a condition, and a position."""
    return [(c, position) for c in range(len(spec.conditions)) for position in _positions(spec, spec.conditions[c])]


def _positions(spec: TraceSpec, condition: Condition) -> list[Position]:
    """The positions read under a condition."""
    extra = [QUESTION_ONLY] if condition == "clean" and QUESTION_ONLY not in spec.positions else []
    return [*spec.positions, *extra]


def tensor_name(condition: Condition, site: Site, position: Position) -> str:
    """What an activation is called in its file."""
    return f"{condition}/{site}/{position}"


def activations_path(cell: Cell, shard: int) -> Path:
    """The file of one shard's activations."""
    return cell.folder / "activations" / f"part-{shard:06d}.safetensors"


@dataclass(frozen=True)
class Chosen:
    """Which samples are traced. The samples themselves are read when they are needed, and not kept."""

    clusters: dict[str, int]
    """Of each chosen sample, by its question's id."""
    probability: dict[bool, float]
    """With which samples of either grade were drawn."""
    digest: str
    """What was drawn, as a hash: answers that were made again may give another draw."""

    def samples(self, store: Store, model: str, dataset: str) -> Iterator[Sample]:
        """The chosen samples, in order."""
        return (s for s in read_samples(store, model, dataset) if s.question.id in self.clusters)

    def row(self, sample: Sample) -> Trace:
        """The row of a chosen sample."""
        question, answer, correct = sample.question, sample.answer, bool(sample.answer.correct)
        return Trace(
            id=question.id,
            question=question.question,
            answer=answer.answer,
            correct=correct,
            probability=self.probability[correct],
            cluster=self.clusters[question.id],
            relation=question.relation,
            popularity=question.popularity,
            logprobs=answer.logprobs,
            cut_tokens=len(sample.spans.exact_question),
        )


def choose(store: Store, model: str, dataset: str) -> Chosen:
    """Draw right and wrong answers by a hash of seed and id, in the order of the questions."""
    spec, seed = store.study.traces, store.study.seed
    ranks: dict[bool, list[tuple[bytes, str]]] = {True: [], False: []}
    for sample in read_samples(store, model, dataset):
        if sample.spans.dropped is None and sample.answer.correct is not None:
            rank = hashlib.blake2b(f"{seed}/traces/{sample.question.id}".encode(), digest_size=8).digest()
            ranks[sample.answer.correct].append((rank, sample.question.id))
    limits = {True: spec.correct, False: spec.wrong}
    drawn = {label: {name for _, name in sorted(found)[: limits[label]]} for label, found in ranks.items()}
    probability = {label: len(drawn[label]) / max(1, len(found)) for label, found in ranks.items()}
    both = drawn[True] | drawn[False]
    names: list[str] = []
    keys: list[tuple[str | None, ...]] = []
    digest = hashlib.sha256()
    for sample in read_samples(store, model, dataset):
        if sample.question.id in both:
            names.append(sample.question.id)
            keys.append((sample.question.question_group, sample.question.subject_group))
            digest.update(repr((sample.question.id, sample.answer.correct, sample.answer.answer_ids)).encode())
    clusters = cluster(keys)
    digest.update(repr(clusters).encode())
    return Chosen(dict(zip(names, clusters, strict=True)), probability, digest.hexdigest())


def cluster(keys: Sequence[tuple[str | None, ...]]) -> list[int]:
    """Number the clusters: rows that share any key are in one, directly or through others."""
    parent = list(range(len(keys)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first: dict[tuple[int, str], int] = {}
    for row, each in enumerate(keys):
        for kind, key in enumerate(each):
            if key is not None:
                parent[root(row)] = root(first.setdefault((kind, key), row))
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(row), len(numbers)) for row in range(len(keys))]


class Activations:
    """The activations of one model and dataset, read a layer at a time."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.table = cell.table(TABLE, Trace)

    def layer(self, condition: Condition, site: Site, position: Position, layer: int) -> NDArray[np.float32]:
        """(sample, width)"""
        blocks = [tensor[layer].float().numpy() for tensor in self._slices(condition, site, position)]
        return np.concatenate(blocks)

    def reader(self, site: Site, position: Position) -> ReadLayer:
        """A function that reads one condition and layer of a site and position."""
        return lambda condition, layer: self.layer(condition, site, position, layer)

    def layers(self, site: Site, position: Position) -> int:
        """How many layers there are."""
        return int(next(self._slices("clean", site, position)).get_shape()[0])

    def _slices(self, condition: Condition, site: Site, position: Position) -> Iterator[Any]:
        for shard in range(self.table.plan.shards):
            path = activations_path(self.cell, shard)
            try:
                with safe_open(path, framework="pt") as file:
                    yield file.get_slice(tensor_name(condition, site, position))
            except (OSError, SafetensorError) as error:
                path = self.table.path(shard)
                raise StoreError(
                    f"{activations_path(self.cell, shard)}: cannot be read ({error})",
                    f"Delete {path} too and run the study again; it makes both again.",
                ) from None
