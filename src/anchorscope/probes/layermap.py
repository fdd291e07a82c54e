"""The layer × layer map: the cut holds in one layer or a window of them, and every layer from there on is read.

It tells where the question's information enters. For each sample there is one pass per cut layer, each from its own
layer on; activations would be layers² per sample, so probes are applied at once and only read-outs are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anchorscope.models.batches import plan_batches
from anchorscope.models.heap import give_back
from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem
from anchorscope.probes.readouts import read_out_some
from anchorscope.probes.record import CLEAN, MAPS, READOUTS, MapReadout, mapped
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Plan, Sharded
from anchorscope.study import MapSpec
from anchorscope.study.terms import Condition, Position, ReadPoint, Site
from anchorscope.traces.budget import ENOUGH, Budget, make_budget
from anchorscope.traces.conditions import CUTS, place_of
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import Stream, clean_stream, cut_stream
from anchorscope.traces.record import TRACES
from anchorscope.traces.tracer import Read, Tracer

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.store import Store


ENOUGH_MAPPED = 4 * ENOUGH  # tokens of a batch: half of them have joined on average, and few in the first layers
ROWS = "of similar length, within a shard; longest: the tokens of the shard's longest sample behind the prefix"
SAMPLES = 64  # per shard: what a stopped run maps again, at most


def map_stage(model: Model, shared_ids: Sequence[int], dataset: str, store: Store) -> Sharded[MapReadout]:
    """The map's read-outs of one model and dataset: a table for every read point, filled side by side."""
    study, cell, spec = store.study, store.results(model.name, dataset), store.study.map
    assert spec is not None
    # 1. which samples, and who read them out
    rows = list(cell.table(TRACES))
    members = mapped(rows, spec, study.seed)
    folds = folds_of(rows, study.probes, study.seed)[2]
    probes = {point: load_probes(probes_stem(cell, point))[0] for point in study.traces.points}
    tracer = Tracer(model, shared_ids, study.traces.sites)
    mapper = Mapper(tracer, spec, study.traces.positions, folds, study.traces.memory, probes)
    # 2. a table for every read point
    per_sample = 1 + len(spec.conditions) * tracer.layers
    plan = Plan(len(members) * per_sample, SAMPLES * per_sample)
    tables = tuple(
        cell.begin(
            MAPS.at(point),
            plan,
            {"readouts": cell.origin(READOUTS.at(point)), "map": spec.model_dump(mode="json"), "seed": study.seed},
            {"batch_plan": {"rows": ROWS, **mapper.budget().record(ENOUGH_MAPPED)}},
        )
        for point in probes
    )
    # 3. their rows, some samples at a time
    wanted = {rows[i].id for i in members}
    samples: list[Sample] = []

    def cut(shard: int) -> list[list[MapReadout]]:
        if not samples:
            samples.extend(read_samples(store, model.name, dataset, wanted))
        of_shard = slice(shard * SAMPLES, (shard + 1) * SAMPLES)
        readouts = mapper(samples[of_shard], members[of_shard])
        return [readouts[point] for point in probes]

    return Sharded(f"{model.name}, {dataset}: mapping layers", tables, cut, per_sample)


class _Variant(NamedTuple):
    """One cut of the map."""

    condition: Condition
    """What is cut."""
    cut: int
    """The layer it is centred on."""
    layers: range
    """In which layers it holds."""


class Mapper:
    """Cuts samples layer by layer and reads them out."""

    def __init__(
        self,
        tracer: Tracer,
        spec: MapSpec,
        positions: Sequence[Position],
        folds: Folds,
        gigabytes: float,
        probes: dict[ReadPoint, list[LayerProbes]],
    ) -> None:
        self.tracer, self.spec, self.positions = tracer, spec, tuple(positions)
        self.folds, self.gigabytes, self.probes = folds, gigabytes, probes
        self.variants = [
            _Variant(condition, cut, layers)
            for condition in spec.conditions
            for cut, layers in enumerate(self._knockout(condition).variants(tracer.layers))
        ]

    def _knockout(self, condition: Condition) -> Knockout:
        spec = self.spec
        return Knockout(CUTS[condition], spec.into, spec.layers, spec.width if spec.layers == "window" else 1)

    def __call__(self, samples: Sequence[Sample], members: NDArray[np.int64]) -> dict[ReadPoint, list[MapReadout]]:
        """The rows of each table. `members`: which of the traced samples these are."""
        streams = [self._streams(sample) for sample in samples]
        lengths = [sum(len(stream.ids) for stream in row) for row in streams]
        budget = self.budget(max(len(row[0].ids) for row in streams))
        of_sample: dict[tuple[ReadPoint, int], list[MapReadout]] = {}
        for batch in plan_batches(lengths, budget.memory, budget.cost, enough=ENOUGH_MAPPED):
            batched = [samples[i] for i in batch]
            for site, states in self._states([streams[i] for i in batch], batched, budget).items():
                for p, position in enumerate(self.positions):
                    point = ReadPoint(site, position)
                    logits = self._logits(states[:, p].float().numpy(), members[batch], point)
                    for i, values in zip(batch, logits, strict=True):
                        of_sample[point, i] = list(self._records(samples[i].question.id, values))
            del states, logits
            give_back()
        return {point: [row for i in range(len(samples)) for row in of_sample[point, i]] for point in self.probes}

    def _states(
        self, streams: Sequence[Sequence[Stream]], samples: Sequence[Sample], budget: Budget
    ) -> dict[Site, torch.Tensor]:
        """(layer, position, sample, stream, width). Where one sample alone is too large, some variants at a time."""
        size = len(streams) * budget.cost(max(sum(len(stream.ids) for stream in row) for row in streams))
        passes = min(-(-size // budget.memory), len(self.variants))
        pieces: dict[Site, list[torch.Tensor]] = {site: [] for site in self.tracer.sites}
        for number, chunk in enumerate(np.array_split(np.arange(1, 1 + len(self.variants)), passes)):
            read = range(1 if number else 0, 1 + len(chunk))  # the clean stream once
            reads = [
                Read(i, stream, place_of("clean", sample.spans, position))
                for position in self.positions
                for i, sample in enumerate(samples)
                for stream in read
            ]
            shape = (self.tracer.layers, len(self.positions), len(samples), len(read), -1)
            for site, states in self.tracer([[row[0], *(row[s] for s in chunk)] for row in streams], reads).items():
                pieces[site].append(states.reshape(shape))
        return {site: torch.cat(states, dim=3) for site, states in pieces.items()}

    def _streams(self, sample: Sample) -> list[Stream]:
        """The clean stream, and one for each variant. Tokens after the last that is read change nothing."""
        shared = self.tracer.shared_ids
        end = 1 + max(place_of("clean", sample.spans, position) for position in self.positions)
        ids = [*shared, *sample.answer.prompt_ids, *sample.answer.answer_ids][:end]
        cuts: dict[Condition, Cut] = {c: self._knockout(c).cut(sample.spans) for c in self.spec.conditions}
        cut = [cut_stream(ids, len(shared), cuts[variant.condition], variant.layers) for variant in self.variants]
        return [clean_stream(ids, len(shared)), *cut]

    def budget(self, longest: int | None = None) -> Budget:
        """The memory of a batch whose longest sample has so many tokens behind the prefix."""
        reads = len(self.positions) * len(self.tracer.sites) * (1 + len(self.variants))
        return make_budget(self.tracer.model, self.gigabytes, len(self.tracer.shared_ids), reads, longest)

    def _logits(self, states: NDArray[np.float32], members: NDArray[np.int64], point: ReadPoint) -> NDArray[np.float32]:
        """(sample, stream, repeat, part, layer), from states (layer, sample, stream, width)."""
        layers = [
            read_out_some(probes, states[layer], self.folds, members) for layer, probes in enumerate(self.probes[point])
        ]  # (repeat, part, sample, stream) each
        return np.stack(layers, axis=-1).transpose(2, 3, 0, 1, 4).astype(np.float32)

    def _records(self, name: str, logits: NDArray[np.float32]) -> Iterator[MapReadout]:
        """The rows of one sample, from (stream, repeat, part, layer)."""
        clean: Any = logits[0]
        yield MapReadout(name, "clean", CLEAN, 0, clean)
        for variant, values in zip(self.variants, logits[1:], strict=True):
            first = variant.layers.start
            later: Any = values[..., first:]
            yield MapReadout(name, variant.condition, variant.cut, first, later)
