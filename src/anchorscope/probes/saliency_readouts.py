"""Saliency: some traced samples again, in a pass with gradients."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem
from anchorscope.probes.record import READOUTS, SALIENCY, Salient
from anchorscope.progress import Advance, in_parts
from anchorscope.spans.samples import Sample, read_samples
from anchorscope.store import Plan, Sharded
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES, Trace
from anchorscope.traces.saliency import saliencies

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.store import Cell, Store

SAMPLES = 64  # per shard
OF: tuple[Literal["logit", "loss"], ...] = ("logit", "loss")


def chosen_again(rows: Sequence[Trace], count: int, seed: int) -> NDArray[np.int64]:
    """Which traced samples: the first by a hash of seed and id, in their order."""
    ranks = [hashlib.blake2b(f"{seed}/again/{row.id}".encode(), digest_size=8).digest() for row in rows]
    return np.array(sorted(sorted(range(len(rows)), key=lambda i: ranks[i])[:count]), dtype=np.int64)


def saliency_stage(model: Model, shared_ids: Sequence[int], dataset: str, store: Store) -> Sharded[Salient]:
    """The `saliency` tables of one model and dataset, one for every read point."""
    study, cell = store.study, store.results(model.name, dataset)
    rows, members, folds, probes = _readers(store, cell)
    tables = _begun(store, cell, SALIENCY, Plan(len(members), SAMPLES), {"layer": "half"})
    samples = _LazySamples(store, model.name, dataset, {rows[i].id for i in members})
    parts, memory = _parts(members), study.traces.memory

    def read(shard: int, advance: Advance) -> list[list[Salient]]:
        part = parts[shard]
        taken = [samples[rows[i].id] for i in part]
        by_point, in_passes = [], in_parts(advance, len(OF) * len(study.traces.points))
        for point in study.traces.points:
            places = [int(getattr(sample.spans, point.position)) for sample in taken]
            layer = round((len(probes[point]) - 1) / 2)
            weights = probes[point][layer].weight[0, folds.fold[0, part], 0]
            both = [
                saliencies(model, shared_ids, taken, places, layer, point.site, weights, of, memory, in_passes)
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
