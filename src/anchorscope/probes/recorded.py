"""The read-outs as they were written, read back as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.probes.folds import folds_of
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.record import LEFT_OUT, MIRROR_READOUTS, READOUTS, TEXT_ONLY, refit_name
from anchorscope.store import Cell, Store
from anchorscope.store.table import as_arrays
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import MASS, TRACES, Trace


@dataclass(frozen=True)
class LeftOut:
    """Read-outs by probes fitted without some samples."""

    groups: NDArray[np.int64]
    """(sample): with which it is left out"""
    layers: list[int]
    """The layers it was done at."""
    logits: NDArray[np.float32]
    """(group left out, condition, repeat, part, sample, layer), conditions clean and knockout"""
    refit: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    """By condition, (group left out, repeat, sample, layer): its states by probes fitted on them"""


@dataclass(frozen=True)
class Recorded:
    """The read-outs of one read point as they were written."""

    rows: list[Trace]
    readouts: Readouts
    question_only: NDArray[np.float32]
    """(repeat, sample, layer), the probes fitted on all training questions"""
    text_only: NDArray[np.float32]
    """(repeat, sample)"""
    refit: dict[str, NDArray[np.float32]]
    """By condition, (repeat, sample, layer): its states by probes fitted on them"""
    mass: dict[str, dict[str, NDArray[np.float32]]]
    """By condition and id, (layer): the attention that its cut removes; of some samples"""
    further: dict[str, NDArray[np.float32]]
    """By condition, (repeat, sample, layer): the passes of evidence, and the mirror's by probes of their own"""


def read_readouts(store: Store, model: str, dataset: str, point: ReadPoint) -> Recorded:
    cell = store.results(model, dataset)
    rows = list(cell.table(TRACES))
    conditions = tuple(store.study.traces.conditions)
    # 1. by condition, in the order of the samples: (repeat, part, layer) each
    logits: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    drifts: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for batch in cell.table(READOUTS.at(point)).batches():
        names, samples = batch.column("condition").to_pylist(), batch.column("id").to_pylist()
        arrays = as_arrays(batch.column("logits")), as_arrays(batch.column("drift"))
        for name, sample, logit, drift in zip(names, samples, *arrays, strict=True):
            ids[name].append(sample)
            logits[name].append(logit)
            drifts[name].append(drift)
    words = list(cell.table(TEXT_ONLY))
    expected = [row.id for row in rows]
    if any(samples != expected for samples in (*ids.values(), [row.id for row in words])):
        raise StoreError(
            f"{cell.folder}: traces and read-outs belong to different samples",
            f"Delete {cell.folder} and run the study again.",
        )
    # 2. samples side by side: (condition, repeat, part, sample, layer)
    clean, *others = (np.stack(logits[name], axis=2) for name in conditions)
    readouts = Readouts(
        np.array([row.correct for row in rows]),
        np.array([row.cluster for row in rows]),
        np.array([row.probability for row in rows]),
        conditions,
        np.stack([clean, *others]),
        np.stack([np.zeros_like(clean), *(np.stack(drifts[name], axis=2) for name in conditions[1:])]),
        folds_of(rows, store.study.probes, store.study.seed)[2].fold,
    )
    question_only = np.stack(logits["question_only"], axis=2)[:, 0]  # its only part
    refit: dict[str, NDArray[np.float32]] = {}
    for name in conditions:
        if refit_name(name) in logits:
            refit[name] = np.stack(logits[refit_name(name)], axis=2)[:, 0]
    evidence = store.study.evidence
    extra = [*evidence.further, *MIRROR_READOUTS] if evidence is not None else []
    further = {name: np.stack(logits[name], axis=2)[:, 0] for name in extra}
    text_only = np.array([row.logits for row in words], np.float32).T
    return Recorded(rows, readouts, question_only, text_only, refit, _mass(cell), further)


def _mass(cell: Cell) -> dict[str, dict[str, NDArray[np.float32]]]:
    """What was measured of attention; empty where it was not."""
    by_condition: defaultdict[str, dict[str, NDArray[np.float32]]] = defaultdict(dict)
    if cell.entry(MASS) is not None:
        for row in cell.table(MASS):
            by_condition[row.condition][row.id] = np.array(row.mass, np.float32)
    return dict(by_condition)


def read_left_out(store: Store, model: str, dataset: str, point: ReadPoint) -> LeftOut:
    cell = store.results(model, dataset)
    names = [row.id for row in cell.table(TRACES)]
    place = {name: i for i, name in enumerate(names)}
    groups = np.zeros(len(names), np.int64)
    by_layer: defaultdict[int, dict[str, list[NDArray[np.float32]]]] = defaultdict(lambda: defaultdict(list))
    for batch in cell.table(LEFT_OUT.at(point)).batches():
        columns = [batch.column(name).to_pylist() for name in ("id", "group", "condition", "layer")]
        for name, group, condition, layer, logits in zip(*columns, as_arrays(batch.column("logits")), strict=True):
            groups[place[name]] = group
            by_layer[layer][condition].append(logits)
    layers = sorted(by_layer)
    # (layer, sample, group, repeat, part) of a condition to (group, repeat, part, sample, layer)
    by_condition = {
        condition: np.ascontiguousarray(
            np.stack([np.stack(by_layer[layer][condition]) for layer in layers]).transpose(2, 3, 4, 1, 0)
        )
        for condition in by_layer[layers[0]]
    }
    conditions: list[str] = list(store.study.traces.conditions)
    refit = {
        name: by_condition.pop(refit_name(name))[:, :, 0] for name in conditions if refit_name(name) in by_condition
    }
    return LeftOut(groups, layers, np.stack(list(by_condition.values()), axis=1), refit)
