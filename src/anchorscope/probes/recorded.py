"""The read-outs as they were written, read back as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.record import READOUTS, TEXT_ONLY
from anchorscope.store import Store
from anchorscope.store.table import as_arrays
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import TRACES, Trace


@dataclass(frozen=True)
class Recorded:
    """The read-outs of one read point as they were written."""

    rows: list[Trace]
    """The samples, in their order."""
    readouts: Readouts
    """Of the conditions."""
    question_only: NDArray[np.float32]
    """(repeat, sample, layer), the probes fitted on all training questions"""
    text_only: NDArray[np.float32]
    """(repeat, sample)"""


def read_readouts(store: Store, model: str, dataset: str, point: ReadPoint) -> Recorded:
    """Read the read-outs back."""
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
        raise StoreError(f"{cell.folder}: traces and read-outs are of other samples", f"Delete {cell.folder}.")
    # 2. samples side by side: (condition, repeat, part, sample, layer)
    clean, *others = (np.stack(logits[name], axis=2) for name in conditions)
    readouts = Readouts(
        np.array([row.correct for row in rows]),
        np.array([row.cluster for row in rows]),
        np.array([row.probability for row in rows]),
        conditions,
        np.stack([clean, *others]),
        np.stack([np.zeros_like(clean), *(np.stack(drifts[name], axis=2) for name in conditions[1:])]),
    )
    question_only = np.stack(logits["question_only"], axis=2)[:, 0]  # its only part
    return Recorded(rows, readouts, question_only, np.array([row.logits for row in words], np.float32).T)
