"""The layer × layer map: the cut holds in one layer or a window of them, and every layer from there on is read.

It tells where the question's information enters. For each sample there is one pass per cut layer, each from its own
layer on; activations would be layers² per sample, so probes are applied at once and only read-outs are kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.activations import TABLE as TRACES
from anchorscope.activations import Trace
from anchorscope.batching import plan_batches
from anchorscope.budget import ENOUGH, Budget, make_budget
from anchorscope.conditions import CUTS, Condition, Position, place_of
from anchorscope.knockout import Knockout
from anchorscope.layout import Stream, clean_stream, cut_stream
from anchorscope.memory import give_back
from anchorscope.probes import Folds, LayerProbes, load_probes, make_folds
from anchorscope.probing import table_name
from anchorscope.progress import Progress, silent
from anchorscope.readouts import read_out_some
from anchorscope.samples import Sample, read_samples
from anchorscope.study import MapSpec
from anchorscope.table import Plan
from anchorscope.tracing import Read, Tracer

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.models.sites import Site
    from anchorscope.store import Store

ENOUGH_MAPPED = 4 * ENOUGH  # tokens of a batch: half of them have joined on average, and few in the first layers
ROWS = "of similar length, within a shard; longest: the tokens of the shard's longest sample behind the prefix"
SAMPLES = 64  # per shard: what a stopped run maps again, at most
CLEAN = -1  # the cut layer of a pass without a cut


@dataclass(frozen=True, slots=True)
class MapReadout:
    """One row of a `map` table: the out-of-fold logits of one sample, cut around one layer."""

    id: str = field(metadata={"doc": "the question's id"})
    condition: str = field(metadata={"doc": "what is cut; clean for nothing"})
    cut: int = field(metadata={"doc": "the layer the cut is centred on; -1 for the clean pass"})
    first: int = field(metadata={"doc": "the first layer in which it holds, and the first that is read"})
    logits: list[np.float32] = field(metadata={"doc": "(repeat, part, layer from `first` on), flat"})


def map_name(site: Site, position: Position) -> str:
    """The folder of the map's read-outs of a site and position."""
    return f"map-{site}-{position}"


def mapped(rows: Sequence[Trace], spec: MapSpec, seed: int) -> NDArray[np.int64]:
    """Which traced samples are mapped: the first right and wrong ones by a hash of seed and id, in their order."""
    order = [hashlib.blake2b(f"{seed}/map/{row.id}".encode(), digest_size=8).digest() for row in rows]
    chosen: list[int] = []
    for label, most in ((True, spec.correct), (False, spec.wrong)):
        chosen += sorted((i for i, row in enumerate(rows) if row.correct == label), key=lambda i: order[i])[:most]
    return np.array(sorted(chosen), dtype=np.int64)


def write_map(model: Model, shared_ids: Sequence[int], dataset: str, store: Store, progress: Progress = silent) -> None:
    """Write the map's read-outs of one model and dataset at every site and position, or what is missing of them."""
    study, cell = store.study, store.results(model.name, dataset)
    spec = study.map
    assert spec is not None
    rows = list(cell.table(TRACES, Trace))
    members = mapped(rows, spec, study.seed)
    tracer = Tracer(model, shared_ids, study.traces.sites)
    per_sample = 1 + len(spec.conditions) * tracer.layers
    plan = Plan(len(members) * per_sample, SAMPLES * per_sample)
    labels, clusters = np.array([row.correct for row in rows]), np.array([row.cluster for row in rows])
    folds = make_folds(labels, clusters, study.probes.repeats, study.probes.folds, study.seed)
    mapper = Mapper(tracer, spec, study.traces.positions, folds, study.traces.memory)
    tables = {}
    for site in study.traces.sites:
        for position in study.traces.positions:
            readouts = cell.origin(table_name(site, position))
            inputs = {"readouts": readouts, "map": spec.model_dump(mode="json"), "seed": study.seed}
            facts = {"batch_plan": {"rows": ROWS, **mapper.budget().record(ENOUGH_MAPPED)}}
            tables[site, position] = cell.begin(map_name(site, position), MapReadout, plan, inputs, facts)
            mapper.probes[site, position] = load_probes(cell.folder / "probes" / f"{site}-{position}")[0]
    missing = {shard for table in tables.values() for shard in table.missing()}
    if not missing:
        return
    wanted = {rows[i].id for i in members}
    samples = [sample for sample in read_samples(store, model.name, dataset) if sample.question.id in wanted]
    with progress(f"{model.name}, {dataset}: mapping layers", len(members)) as advance:
        for shard in range(plan.shards):
            some = range(shard * SAMPLES, min((shard + 1) * SAMPLES, len(members)))
            if shard in missing:
                found = mapper([samples[i] for i in some], members[some.start : some.stop])
                for where, table in tables.items():
                    table.write(shard, found[where])
            advance(len(some))


class Mapper:
    """Cuts samples layer by layer and reads them out."""

    def __init__(
        self, tracer: Tracer, spec: MapSpec, positions: Sequence[Position], folds: Folds, gigabytes: float
    ) -> None:
        self.tracer, self.spec, self.positions = tracer, spec, tuple(positions)
        self.folds, self.gigabytes = folds, gigabytes
        self.probes: dict[tuple[Site, Position], list[LayerProbes]] = {}
        self.variants = [
            (condition, cut, layers)
            for condition in spec.conditions
            for cut, layers in enumerate(self._knockout(condition).variants(tracer.layers))
        ]

    def _knockout(self, condition: Condition) -> Knockout:
        spec = self.spec
        return Knockout(CUTS[condition], spec.into, spec.layers, spec.width if spec.layers == "window" else 1)

    def __call__(
        self, samples: Sequence[Sample], members: NDArray[np.int64]
    ) -> dict[tuple[Site, Position], list[MapReadout]]:
        """The rows of each table. `members`: which of the traced samples these are."""
        rows = [self._row(sample) for sample in samples]
        lengths = [sum(len(stream.ids) for stream in row) for row in rows]
        budget = self.budget(max(len(row[0].ids) for row in rows))
        found: dict[tuple[Site, Position], dict[int, list[MapReadout]]] = {where: {} for where in self.probes}
        for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH_MAPPED):
            some = [samples[row] for row in batch]
            for site, states in self._states([rows[row] for row in batch], some, budget).items():
                for p, position in enumerate(self.positions):
                    logits = self._logits(states[:, p].float().numpy(), members[batch], site, position)
                    for i, row in enumerate(batch):
                        found[site, position][row] = list(self._records(samples[row].question.id, logits[i]))
            del states, logits
            give_back()
        return {where: [one for row in sorted(by_row) for one in by_row[row]] for where, by_row in found.items()}

    def _states(
        self, rows: Sequence[Sequence[Stream]], samples: Sequence[Sample], budget: Budget
    ) -> dict[Site, torch.Tensor]:
        """(layer, position, sample, stream, width). Where one sample alone is too large, some variants at a time."""
        size = len(rows) * budget.cost(max(sum(len(stream.ids) for stream in row) for row in rows))
        parts = np.array_split(np.arange(1, 1 + len(self.variants)), min(-(-size // budget.memory), len(self.variants)))
        found: dict[Site, list[torch.Tensor]] = {site: [] for site in self.tracer.sites}
        for number, part in enumerate(parts):
            read = range(1 if number else 0, 1 + len(part))  # the clean stream once
            reads = [
                Read(i, stream, place_of("clean", sample.spans, position))
                for position in self.positions
                for i, sample in enumerate(samples)
                for stream in read
            ]
            for site, states in self.tracer([[row[0], *(row[s] for s in part)] for row in rows], reads).items():
                shape = (states.shape[0], len(self.positions), len(rows), len(read), states.shape[2])
                found[site].append(states.reshape(shape))
        return {site: torch.cat(states, dim=3) for site, states in found.items()}

    def _row(self, sample: Sample) -> list[Stream]:
        """The clean stream, and one for each variant. Tokens after the last that is read change nothing."""
        shared = self.tracer.shared_ids
        end = 1 + max(place_of("clean", sample.spans, position) for position in self.positions)
        ids = [*shared, *sample.answer.prompt_ids, *sample.answer.answer_ids][:end]
        cuts = {condition: self._knockout(condition).cut(sample.spans) for condition in self.spec.conditions}
        streams = [cut_stream(ids, len(shared), cuts[condition], layers) for condition, _, layers in self.variants]
        return [clean_stream(ids, len(shared)), *streams]

    def budget(self, longest: int | None = None) -> Budget:
        """The memory of a batch whose longest sample has so many tokens behind the prefix."""
        reads = len(self.positions) * len(self.tracer.sites) * (1 + len(self.variants))
        return make_budget(self.tracer.model, self.gigabytes, len(self.tracer.shared_ids), reads, longest)

    def _logits(
        self, states: NDArray[np.float32], members: NDArray[np.int64], site: Site, position: Position
    ) -> NDArray[np.float32]:
        """(sample, stream, repeat, part, layer), from states (layer, sample, stream, width)."""
        layers = [
            read_out_some(probes, states[layer], self.folds, members)
            for layer, probes in enumerate(self.probes[site, position])
        ]  # (repeat, part, sample, stream) each
        return np.stack(layers, axis=-1).transpose(2, 3, 0, 1, 4).astype(np.float32)

    def _records(self, name: str, logits: NDArray[np.float32]) -> Iterator[MapReadout]:
        """The rows of one sample, from (stream, repeat, part, layer)."""
        clean: list[np.float32] = logits[0].ravel()
        yield MapReadout(name, "clean", CLEAN, 0, clean)
        for (condition, cut, layers), values in zip(self.variants, logits[1:], strict=True):
            flat: list[np.float32] = values[..., layers.start :].ravel()
            yield MapReadout(name, condition, cut, layers.start, flat)
