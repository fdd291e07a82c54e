"""The sixth stage: from activations to probes and the `readouts` table, one site and position at a time.

Layers are independent once they share a regularisation strength, so they are fitted side by side, each reading only its
own activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from anchorscope.probes.fit import Strength, choose_strength, fit_layer
from anchorscope.probes.folds import PARTS, Folds, folds_of
from anchorscope.probes.jackknife import GROUPS, jackknife_layer, jackknife_layers, make_groups
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem, save_probes
from anchorscope.probes.readouts import by_sample, drift, read_out
from anchorscope.probes.record import (
    LEFT_OUT,
    MIRROR_READOUTS,
    READOUTS,
    TEXT_ONLY,
    LeftOutReadout,
    Readout,
    TextReadout,
    refit_name,
)
from anchorscope.probes.text_only import text_only
from anchorscope.progress import Advance, Notice, nobody
from anchorscope.store import Cell, Store, Whole
from anchorscope.study import ProbeSpec
from anchorscope.study.terms import MIRROR, MIRRORED, QUESTION_ONLY, Condition, Further, ReadPoint
from anchorscope.traces.activations import Activations, ReadLayer
from anchorscope.traces.record import TRACES, Trace

SHARD_ROWS = 4096
MEMORY = 4.0  # gigabytes that layers fitted side by side may take together
COPIES = 6  # of a layer's activations in float32: as read, scaled, of another condition, and what fits keep


def readouts_stage(store: Store, model: str, dataset: str, point: ReadPoint, notice: Notice = nobody) -> Whole[Readout]:
    """The probes of one read point, fitted and kept, and the `readouts` table: all conditions read out by them."""
    study, cell = store.study, store.results(model, dataset)
    activations, conditions = Activations(cell), study.traces.conditions

    def compute(advance: Advance) -> list[Readout]:
        # 1. who tests and who trains
        rows = list(activations.table)
        labels, clusters, folds = folds_of(rows, study.probes, study.seed)
        # 2. probes of the answer, and of the question alone
        layers = activations.layers(point)
        fitter = Fitter(labels, clusters, folds, study.probes, study.seed, advance)
        further = study.evidence.further if study.evidence is not None else []
        of_answer = fitter(activations.reader(point), layers, [*conditions, *further])
        before = ReadPoint(point.site, QUESTION_ONLY)
        of_question = fitter(activations.reader(before), layers, ["clean"], parts=1)
        refitted = [condition for condition in conditions if condition in study.probes.refit]
        own = [fitter.refit(activations.reader(point), layers, each, of_answer.strength) for each in refitted]
        # 3. what is kept of them
        strength = of_answer.strength
        if strength.edge:
            notice(
                f"{model}, {dataset}: the {strength.edge} of probes.strengths, {strength.value:g}, is best for "
                f"{point}; a wider range may give better probes"
            )
        if before not in study.traces.points:  # which keeps its own
            of_question.save(cell, before)
        of_answer.save(cell, point)
        passed = len(conditions)
        return [
            *_records(rows, conditions, of_answer.logits[:passed], of_answer.drift[:passed]),
            *_records(rows, further, of_answer.logits[passed:, :, :1]),
            *_records(rows, ["question_only"], of_question.logits, of_question.drift),
            *(_records(rows, MIRROR_READOUTS, mirrored(fitter)) if further else []),
            *(row for c, logits in zip(refitted, own, strict=True) for row in _records(rows, [refit_name(c)], logits)),
        ]

    def mirrored(fitter: Fitter) -> NDArray[np.float32]:
        behind = ReadPoint(point.site, MIRROR)
        fitted = fitter(activations.reader(behind), activations.layers(behind), ["clean", *MIRRORED], parts=1)
        fitted.save(cell, behind)
        return fitted.logits

    inputs = {"traces": cell.origin(TRACES), "probes": study.probes.model_dump(mode="json"), "seed": study.seed}
    title = f"{model}, {dataset}: probing {point}"

    def steps() -> int:
        fitted = 6 if study.evidence is not None else 4
        return (fitted + len(set(study.probes.refit) & set(conditions))) * activations.layers(point)

    return Whole(title, cell, READOUTS.at(point), inputs, compute, steps, SHARD_ROWS)


def left_out_stage(store: Store, model: str, dataset: str, point: ReadPoint) -> Whole[LeftOutReadout]:
    """The `left_out` table of one read point: read-outs at some layers by probes fitted without some samples."""
    study, cell = store.study, store.results(model, dataset)
    activations, conditions = Activations(cell), study.traces.conditions[:2]

    def compute(advance: Advance) -> list[LeftOutReadout]:
        rows = list(activations.table)
        labels, clusters, folds = folds_of(rows, study.probes, study.seed)
        groups = make_groups(labels, clusters, study.seed)
        probes, record = load_probes(probes_stem(cell, point))
        strength = float(record["strength"]["C"])

        def one(layer: int) -> NDArray[np.float32]:
            states = [activations.layer(condition, point, layer) for condition in conditions]
            read = jackknife_layer(states, labels, clusters, folds, strength, probes[layer], groups)
            advance(1)
            return read

        at = jackknife_layers(len(probes))
        width = probes[0].weight.shape[-1]
        with _side_by_side(len(rows), width) as jobs, ThreadPoolExecutor(jobs) as pool:
            read: Any = list(pool.map(one, at))
        return [
            LeftOutReadout(row.id, int(groups[i]), condition, layer, read[place][c, :, :, :, i])
            for place, layer in enumerate(at)
            for c, condition in enumerate(conditions)
            for i, row in enumerate(rows)
        ]

    inputs = {"readouts": cell.origin(READOUTS.at(point)), "groups": GROUPS}
    title = f"{model}, {dataset}: leaving out, {point}"

    def steps() -> int:
        return len(jackknife_layers(activations.layers(point)))

    return Whole(title, cell, LEFT_OUT.at(point), inputs, compute, steps, SHARD_ROWS)


def text_only_stage(store: Store, model: str, dataset: str) -> Whole[TextReadout]:
    """The `text_only` table of one model and dataset: what words alone give away, in the same folds as the probes."""
    study, cell = store.study, store.results(model, dataset)

    def compute(advance: Advance) -> list[TextReadout]:
        rows = list(cell.table(TRACES))
        labels, clusters, folds = folds_of(rows, study.probes, study.seed)
        logits = text_only([row.question for row in rows], [row.answer for row in rows], labels, clusters, folds)
        flat: Any = logits.astype(np.float32).T  # (sample, repeat)
        return [TextReadout(row.id, each) for row, each in zip(rows, flat, strict=True)]

    dealt = {"repeats": study.probes.repeats, "folds": study.probes.folds}
    inputs = {"traces": cell.origin(TRACES), "probes": dealt, "seed": study.seed}
    return Whole(f"{model}, {dataset}: reading words alone", cell, TEXT_ONLY, inputs, compute, shard_rows=SHARD_ROWS)


def _tell_nobody(count: int) -> None:
    """Count for nobody."""


@dataclass(frozen=True)
class Fitted:
    """The probes of all layers, and what they read under each condition."""

    probes: list[LayerProbes]
    """Of each layer."""
    strength: Strength
    """The regularisation they share."""
    logits: NDArray[np.float32]
    """(condition, repeat, part, sample, layer)"""
    drift: NDArray[np.float32]
    """(condition, repeat, part, sample, layer)"""

    def save(self, cell: Cell, point: ReadPoint) -> None:
        """Keep the probes."""
        record = {
            "site": point.site,
            "position": point.position,
            "strength": self.strength.record(),
            "labels": "1 = correct",
        }
        save_probes(probes_stem(cell, point), self.probes, record)


@dataclass(frozen=True)
class Fitter:
    """Fits probes to samples and reads conditions out, all layers side by side."""

    labels: NDArray[np.bool_]
    """(sample): the answer is correct"""
    clusters: NDArray[np.int64]
    """(sample): samples with the same are never split over folds"""
    folds: Folds
    """Who tests, who trains, in which half."""
    spec: ProbeSpec
    """Which regularisation strengths to choose from."""
    seed: int
    """Deals the inner folds."""
    advance: Advance = _tell_nobody
    """Told twice of every layer: when its strength was tried, and when it is fitted."""

    def __call__(
        self, read: ReadLayer, layers: int, conditions: Sequence[Condition | Further], parts: int = len(PARTS)
    ) -> Fitted:
        """Choose the strength, fit each layer, read the conditions out. `read(condition, layer)`: (sample, width)."""
        with _side_by_side(*read("clean", 0).shape) as jobs:
            strength = choose_strength(
                range(layers),
                lambda layer: read("clean", layer),
                self.labels,
                self.clusters,
                self.folds,
                self.spec.strengths,
                jobs,
                self.seed,
            )
            self.advance(layers)
            with ThreadPoolExecutor(jobs) as pool:
                fitted = list(
                    pool.map(lambda layer: self._layer(read, layer, conditions, strength, parts), range(layers))
                )
        return Fitted(
            [probes for probes, _, _ in fitted],
            strength,
            np.stack([logits for _, logits, _ in fitted], axis=-1),
            np.stack([drifts for _, _, drifts in fitted], axis=-1),
        )

    def refit(self, read: ReadLayer, layers: int, condition: Condition, strength: Strength) -> NDArray[np.float32]:
        """(1, repeat, 1, sample, layer): a condition's states by probes fitted on them, standardised by themselves."""

        def one(layer: int) -> NDArray[np.float32]:
            states = read(condition, layer)
            probes = fit_layer(states, self.labels, self.clusters, self.folds, strength, seed=self.seed, parts=1)
            self.advance(1)
            return read_out(probes, states, self.folds).astype(np.float32)

        with _side_by_side(*read(condition, 0).shape) as jobs, ThreadPoolExecutor(jobs) as pool:
            return np.stack(list(pool.map(one, range(layers))), axis=-1)[None]

    def _layer(
        self, read: ReadLayer, layer: int, conditions: Sequence[Condition | Further], strength: Strength, parts: int
    ) -> tuple[LayerProbes, NDArray[np.float32], NDArray[np.float32]]:
        """The probes of one layer, read-outs and drifts: (condition, repeat, part, sample)."""
        clean = read("clean", layer)
        probes = fit_layer(clean, self.labels, self.clusters, self.folds, strength, seed=self.seed, parts=parts)
        logits, drifts = [], []
        for condition in conditions:
            other = clean if condition == "clean" else read(condition, layer)
            logits.append(read_out(probes, other, self.folds).astype(np.float32))
            drifts.append(by_sample(drift(probes, clean, other, self.folds), self.folds).astype(np.float32))
        self.advance(1)
        return probes, np.stack(logits), np.stack(drifts)


def layers_at_once(samples: int, width: int, cores: int, memory: float = MEMORY) -> int:
    """How many layers are fitted side by side: one a core as far as the memory (gigabytes) goes, one at least."""
    return max(1, min(cores, int(memory * 1e9 / (4 * COPIES * samples * max(width, 1)))))


@contextmanager
def _side_by_side(samples: int, width: int) -> Iterator[int]:
    """How many layers at once; meanwhile each has its share of the cores."""
    cores = torch.get_num_threads()  # all there are, or those of a replica
    jobs = layers_at_once(samples, width, cores)
    with threadpool_limits(max(1, cores // jobs)):
        torch.set_num_threads(max(1, cores // jobs))
        try:
            yield jobs
        finally:
            torch.set_num_threads(cores)


def _records(
    rows: Sequence[Trace],
    conditions: Sequence[str],
    logits: NDArray[np.float32],
    drifts: NDArray[np.float32] | None = None,
) -> Iterator[Readout]:
    """Rows of the table from (condition, repeat, part, sample, layer). The clean pass does not drift."""
    nothing: Any = np.empty((0, 0, 0), np.float32)
    for c, condition in enumerate(conditions):
        for i, row in enumerate(rows):
            read: Any = logits[c, :, :, i]  # (repeat, part, layer)
            moved: Any = nothing
            if drifts is not None and condition not in ("clean", "question_only"):
                moved = drifts[c, :, :, i]
            yield Readout(row.id, condition, read, moved)
