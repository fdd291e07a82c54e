"""The scores and the comparison of detectors, read back from a run. Needs no model and no states."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import CellMeasures, measure
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Inputs
from anchorscope.detectors.record import (
    COMPARISON,
    DETECTORS,
    SCORES,
    SEVERAL,
    SEVERAL_SCORES,
    WIDENING,
    Comparison,
    Score,
)
from anchorscope.detectors.score_widening import Widening
from anchorscope.detectors.several import SeveralScores, known_numbers
from anchorscope.store import Cell, Kind, Store
from anchorscope.traces.record import TRACES

Scored = tuple[Labelled, dict[str, NDArray[np.float64]]]
"""Samples without their states, and what each detector says of them, (repeat, sample)."""


def _parts(cell: Cell, kind: Kind[Score] = SCORES) -> dict[str, Kind[Score]]:
    """The tables of scores that a cell has, by detector."""
    kinds = {name: kind.part(name) for name in DETECTORS}
    return {name: part for name, part in kinds.items() if cell.complete(part)}


def scored_cells(store: Store) -> list[tuple[str, str]]:
    """The models and datasets of a run that have scores of detectors."""
    cells = [(model.name, dataset.name) for model in store.study.models for dataset in store.study.datasets]
    return [cell for cell in cells if _parts(store.results(*cell)) and store.results(*cell).complete(WIDENING)]


def _rows(cell: Cell, kind: Kind[Score] = SCORES) -> dict[str, list[Score]]:
    """By detector, the scores of greedy answers, or of several answers to a question."""
    return {name: list(cell.table(part)) for name, part in _parts(cell, kind).items()}


def _logits(rows: dict[str, list[Score]]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array([row.logits for row in scores]).T for name, scores in rows.items()}


def read_scores(store: Store, model: str, dataset: str) -> Scored:
    """Samples (without their states) and scores of a cell, (repeat, sample) by detector."""
    cell = store.results(model, dataset)
    by_name = _rows(cell)
    first = next(iter(by_name.values()))
    traces = {row.id: row for row in cell.table(TRACES)}
    ids = [row.id for row in first]
    inputs = Inputs(ids, [traces[name].question for name in ids], [traces[name].answer for name in ids])
    samples = Labelled(
        inputs,
        np.array([row.right for row in first]),
        np.array([row.cluster for row in first]),
        np.array([row.probability for row in first]),
    )
    return samples, _logits(by_name)


def read_several_scores(store: Store, model: str, dataset: str, samples: Inputs) -> SeveralScores | None:
    """What detectors say of several answers to some of the questions; None where there are none."""
    cell = store.results(model, dataset)
    by_name = _rows(cell, SEVERAL_SCORES)
    if not by_name or not cell.complete(SEVERAL):
        return None
    place = {name: i for i, name in enumerate(samples.ids)}
    answers = {(row.id, row.number): row for row in cell.table(SEVERAL)}
    first = next(iter(by_name.values()))
    return SeveralScores(
        np.array([place[row.id] for row in first], dtype=np.int64),
        np.array([row.cluster for row in first], dtype=np.int64),
        np.array([row.right for row in first]),
        known_numbers([answers[row.id, row.number].logprobs for row in first]),
        _logits(by_name),
    )


def measured(store: Store, model: str, dataset: str) -> CellMeasures:
    """The measures of a cell, from its scores."""
    cell = store.results(model, dataset)
    samples, scores = read_scores(store, model, dataset)
    relations = {row.id: row.relation for row in cell.table(TRACES)}
    entries = catalogue(store.study.traces.sites[0])
    seed = zlib.crc32(f"{model}/{dataset}".encode())  # cells are drawn apart: their mean is of independent ones
    names = [relations[name] for name in samples.inputs.ids]
    several = read_several_scores(store, model, dataset, samples.inputs)
    (factors,) = cell.table(WIDENING)
    widened = Widening(factors.auroc, factors.difference)
    return measure(model, dataset, samples, scores, entries, names, seed=seed, several=several, widened=widened)


def comparison_inputs(store: Store) -> dict[str, Any]:
    """What a comparison is made of: by cell and table, the SHA-256 of the file of scores."""
    digests: dict[str, dict[str, str]] = {}
    for cell in (store.results(*names) for names in scored_cells(store)):
        kinds: list[Kind[Any]] = [WIDENING, *_parts(cell).values(), *_parts(cell, SEVERAL_SCORES).values()]
        paths = [cell.table(kind).path(0) for kind in kinds]
        part = cell.folder.relative_to(store.root).as_posix()
        digests[part] = {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    return {"scores": digests}


def read_comparison(store: Store) -> list[Comparison]:
    """The comparison of detectors that `detect eval` made of the scores that the run has; empty where there is none."""
    together = store.together()
    entry = together.entry(COMPARISON)
    current = entry is not None and entry["inputs"] == comparison_inputs(store) and together.complete(COMPARISON)
    return list(together.table(COMPARISON)) if current else []
