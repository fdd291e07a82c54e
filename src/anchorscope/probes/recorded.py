"""The read-outs as they were written, read back as arrays."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import StoreError
from anchorscope.probes.folds import PARTS
from anchorscope.probes.readouts import Readouts
from anchorscope.probes.record import READOUTS
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
    conditions, repeats = tuple(store.study.traces.conditions), store.study.probes.repeats
    # 1. flat lists by condition, in the order of the samples
    logits: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    drifts: defaultdict[str, list[NDArray[np.float32]]] = defaultdict(list)
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for batch in cell.table(READOUTS.at(point)).batches():
        names, samples = batch.column("condition").to_pylist(), batch.column("id").to_pylist()
        flat = as_arrays(batch.column("logits")), as_arrays(batch.column("drift"))
        for name, sample, logit, drift in zip(names, samples, *flat, strict=True):
            ids[name].append(sample)
            logits[name].append(logit)
            drifts[name].append(drift)
    expected = [row.id for row in rows]
    if any(samples != expected for samples in ids.values()):
        raise StoreError(f"{cell.folder}: traces and read-outs are of other samples", f"Delete {cell.folder}.")

    # 2. in their shape
    def cube(lists: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        """(repeat, part, sample, layer)"""
        return np.stack(lists, axis=1).reshape(repeats, len(PARTS), -1, len(rows)).transpose(0, 1, 3, 2)

    clean, *others = (cube(logits[name]) for name in conditions)
    readouts = Readouts(
        np.array([row.correct for row in rows]),
        np.array([row.cluster for row in rows]),
        np.array([row.probability for row in rows]),
        conditions,
        np.stack([clean, *others]),
        np.stack([np.zeros_like(clean), *(cube(drifts[name]) for name in conditions[1:])]),
    )
    return Recorded(rows, readouts, cube(logits["question_only"])[:, 0], np.stack(logits["text_only"], axis=1))
