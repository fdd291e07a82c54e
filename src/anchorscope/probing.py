"""The fifth stage: from activations to probes and the `readouts` table, one site and position at a time.

Layers are independent once they share a regularisation strength, so they are fitted side by side, each reading only its
own activations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from anchorscope.activations import QUESTION_ONLY, Activations, ReadLayer, Trace
from anchorscope.activations import TABLE as TRACES
from anchorscope.baselines import text_only
from anchorscope.conditions import Condition, Position
from anchorscope.errors import StoreError
from anchorscope.models.sites import Site
from anchorscope.probes import (
    PARTS,
    Folds,
    LayerProbes,
    Strength,
    choose_strength,
    fit_layer,
    make_folds,
    save_probes,
)
from anchorscope.progress import Advance, Notice, Progress, nobody, silent
from anchorscope.readouts import Readouts, by_sample, drift, read_out
from anchorscope.store import Store
from anchorscope.study import ProbeSpec
from anchorscope.table import Plan, Table

SHARD_ROWS = 4096
MOST_JOBS = 16  # layers at a time: each takes some 250 MB at 2,000 samples × 5,120
BASELINES = ("question_only", "text_only")
"""Read-outs beside the conditions': of a probe before any answer exists, and of a classifier that sees words only."""


@dataclass(frozen=True, slots=True)
class Readout:
    """One row of a `readouts` table: the calibrated, out-of-fold logits of one sample under one condition."""

    id: str = field(metadata={"doc": "the question's id"})
    condition: str = field(metadata={"doc": "the condition; or question_only, text_only"})
    logits: list[np.float32] = field(metadata={"doc": "(repeat, part, layer), flat; of text_only (repeat)"})
    drift: list[np.float32] = field(metadata={"doc": "what drift correction subtracts, likewise; empty where nothing"})


def table_name(site: Site, position: Position) -> str:
    """The folder of the read-outs of a site and position."""
    return f"readouts-{site}-{position}"


def write_readouts(
    store: Store,
    model: str,
    dataset: str,
    site: Site,
    position: Position,
    progress: Progress = silent,
    notice: Notice = nobody,
) -> Table[Readout]:
    """Fit the probes of one site and position and read all conditions out, unless that is done."""
    study, cell = store.study, store.results(model, dataset)
    inputs = {"traces": cell.origin(TRACES), "probes": study.probes.model_dump(mode="json"), "seed": study.seed}
    done = cell.finished(table_name(site, position), Readout, inputs)
    if done is not None:
        return done
    activations = Activations(cell)
    rows = list(activations.table)
    labels, clusters = np.array([row.correct for row in rows]), np.array([row.cluster for row in rows])
    folds = make_folds(labels, clusters, study.probes.repeats, study.probes.folds, study.seed)
    conditions = study.traces.conditions
    layers = activations.layers(site, position)
    with progress(f"{model}, {dataset}: probing {site} at {position}", 4 * layers) as advance:
        fitter = Fitter(labels, clusters, folds, study.probes, study.seed, advance)
        found = fitter(activations.reader(site, position), layers, conditions)
        before = fitter(activations.reader(site, QUESTION_ONLY), layers, ["clean"])
        words = text_only([row.question for row in rows], [row.answer for row in rows], labels, clusters, folds)
    table = cell.begin(
        table_name(site, position),
        Readout,
        Plan(len(rows) * (len(conditions) + len(BASELINES)), SHARD_ROWS),
        inputs,
        {},
    )
    records = [*_records(rows, conditions, found.logits, found.drift)]
    records += _records(rows, ["question_only"], before.logits, None)
    records += _records(rows, ["text_only"], words[None, :, None, :, None].astype(np.float32), None)
    if found.strength.edge:
        notice(
            f"{model}, {dataset}: the {found.strength.edge} of probes.strengths, {found.strength.value:g}, is best for "
            f"{site} at {position}; a wider range may give better probes"
        )
    before.save(cell.folder / "probes", site, QUESTION_ONLY)
    found.save(cell.folder / "probes", site, position)
    for shard in range(table.plan.shards):
        table.write(shard, [records[i] for i in table.plan.rows_of(shard)])
    return table


def _tell_nobody(count: int) -> None:
    """Count for nobody."""


@dataclass(frozen=True)
class Fitted:
    """The probes of all layers, and what they read under each condition."""

    probes: list[LayerProbes]
    strength: Strength
    logits: NDArray[np.float32]
    """(condition, repeat, part, sample, layer)"""
    drift: NDArray[np.float32]
    """(condition, repeat, part, sample, layer)"""

    def save(self, folder: Path, site: Site, position: Position) -> None:
        """Keep the probes."""
        record = {"site": site, "position": position, "strength": self.strength.record(), "labels": "1 = correct"}
        save_probes(folder / f"{site}-{position}", self.probes, record)


@dataclass(frozen=True)
class Fitter:
    """Fits probes to samples and reads conditions out, all layers side by side."""

    labels: NDArray[np.bool_]
    clusters: NDArray[np.int64]
    folds: Folds
    spec: ProbeSpec
    seed: int
    advance: Advance = _tell_nobody

    def __call__(self, read: ReadLayer, layers: int, conditions: Sequence[Condition]) -> Fitted:
        """Choose the strength, fit each layer, read the conditions out. `read(condition, layer)`: (sample, width)."""
        with threadpool_limits(1):  # layers run side by side, each on one thread
            strength = choose_strength(
                range(layers),
                lambda layer: read("clean", layer),
                self.labels,
                self.clusters,
                self.folds,
                self.spec.strengths,
                _jobs(),
                self.seed,
            )
            self.advance(layers)
            with ThreadPoolExecutor(_jobs()) as pool:
                found = list(pool.map(lambda layer: self._layer(read, layer, conditions, strength), range(layers)))
        return Fitted(
            [probes for probes, _, _ in found],
            strength,
            np.stack([logits for _, logits, _ in found], axis=-1),
            np.stack([drifts for _, _, drifts in found], axis=-1),
        )

    def _layer(
        self, read: ReadLayer, layer: int, conditions: Sequence[Condition], strength: Strength
    ) -> tuple[LayerProbes, NDArray[np.float32], NDArray[np.float32]]:
        """The probes of one layer, read-outs and drifts: (condition, repeat, part, sample)."""
        clean = read("clean", layer)
        probes = fit_layer(clean, self.labels, self.clusters, self.folds, strength, seed=self.seed)
        logits, drifts = [], []
        for condition in conditions:
            other = clean if condition == "clean" else read(condition, layer)
            logits.append(read_out(probes, other, self.folds).astype(np.float32))
            drifts.append(by_sample(drift(probes, clean, other, self.folds), self.folds).astype(np.float32))
        self.advance(1)
        return probes, np.stack(logits), np.stack(drifts)


def _jobs() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_JOBS)


def _records(
    rows: Sequence[Trace], conditions: Sequence[str], logits: NDArray[np.float32], drifts: NDArray[np.float32] | None
) -> Iterator[Readout]:
    """Rows of the table from (condition, repeat, part, sample, layer)."""
    for c, condition in enumerate(conditions):
        for i, row in enumerate(rows):
            moved: Any = drifts[c, :, :, i].ravel() if drifts is not None and condition != "clean" else []
            flat: Any = logits[c, :, :, i].ravel()
            yield Readout(row.id, condition, flat, moved)


@dataclass(frozen=True)
class Recorded:
    """The read-outs of one site and position as they were written."""

    rows: list[Trace]
    readouts: Readouts
    question_only: NDArray[np.float32]
    """(repeat, sample, layer), the probes fitted on all training questions"""
    text_only: NDArray[np.float32]
    """(repeat, sample)"""


def read_readouts(store: Store, model: str, dataset: str, site: Site, position: Position) -> Recorded:
    """Read the read-outs back."""
    cell = store.results(model, dataset)
    rows = list(cell.table(TRACES, Trace))
    conditions, repeats = tuple(store.study.traces.conditions), store.study.probes.repeats
    columns: dict[str, list[NDArray[np.float32]]] = {}
    ids: dict[str, list[str]] = {}
    for batch in cell.table(table_name(site, position), Readout).batches():
        names = batch.column("condition").to_pylist()
        flat = [as_arrays(batch.column(column)) for column in ("logits", "drift")]
        for i, (name, sample) in enumerate(zip(names, batch.column("id").to_pylist(), strict=True)):
            ids.setdefault(name, []).append(sample)
            columns.setdefault(name, []).append(flat[0][i])
            columns.setdefault(f"drift of {name}", []).append(flat[1][i])

    if any(found != [row.id for row in rows] for found in ids.values()):
        raise StoreError(f"{cell.folder}: traces and read-outs are of other samples", f"Delete {cell.folder}.")

    def cube(name: str) -> NDArray[np.float32]:
        """(repeat, part, sample, layer)"""
        return np.stack(columns[name], axis=1).reshape(repeats, len(PARTS), -1, len(rows)).transpose(0, 1, 3, 2)

    logits = np.stack([cube(name) for name in conditions])
    drifts = np.stack([np.zeros_like(logits[0]), *(cube(f"drift of {name}") for name in conditions[1:])])
    readouts = Readouts(
        np.array([row.correct for row in rows]),
        np.array([row.cluster for row in rows]),
        np.array([row.probability for row in rows]),
        conditions,
        np.ascontiguousarray(logits),
        np.ascontiguousarray(drifts),
    )
    return Recorded(rows, readouts, cube("question_only")[:, 0], np.stack(columns["text_only"], axis=1))


def as_arrays(column: Any) -> list[NDArray[np.float32]]:
    """The lists of an Arrow column as arrays."""
    values, ends = column.values.to_numpy(), column.offsets.to_numpy()
    return [values[start:end] for start, end in pairwise(ends)]
