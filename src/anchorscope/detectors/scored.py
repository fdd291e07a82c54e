"""What the detectors of a run said, read back from its `scores` tables, and measured. Needs no model and no states."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from anchorscope.detectors.catalogue import catalogue
from anchorscope.detectors.compare import CellMeasures, measure
from anchorscope.detectors.crossfit import Labelled
from anchorscope.detectors.inputs import Inputs
from anchorscope.detectors.record import SCORES, SEVERAL, Score
from anchorscope.detectors.several import SeveralScores, known_numbers
from anchorscope.detectors.widening import Widening
from anchorscope.store import Store
from anchorscope.traces.record import TRACES


def read_scores(store: Store, model: str, dataset: str) -> Scored:
    """Samples (without their states) and scores of a cell, (repeat, sample) by detector."""
    by_name: dict[str, list[Score]] = {}
    for row in store.results(model, dataset).table(SCORES):
        if row.number < 0:
            by_name.setdefault(row.detector, []).append(row)
    first = next(iter(by_name.values()))
    traces = {row.id: row for row in store.results(model, dataset).table(TRACES)}
    ids = [row.id for row in first]
    inputs = Inputs(ids, [traces[name].question for name in ids], [traces[name].answer for name in ids])
    samples = Labelled(
        inputs,
        np.array([row.right for row in first]),
        np.array([row.cluster for row in first]),
        np.array([row.probability for row in first]),
    )
    return samples, {name: np.array([row.logits for row in rows]).T for name, rows in by_name.items()}


Scored = tuple[Labelled, dict[str, NDArray[np.float64]]]
"""Samples without their states, and what each detector says of them, (repeat, sample)."""


def read_several_scores(store: Store, model: str, dataset: str, asked: Inputs) -> SeveralScores | None:
    """What detectors say of several answers to some of the questions; None where there are none."""
    cell = store.results(model, dataset)
    by_name: dict[str, list[Score]] = {}
    for row in cell.table(SCORES):
        if row.number >= 0:
            by_name.setdefault(row.detector, []).append(row)
    if not by_name or not cell.complete(SEVERAL):
        return None
    place = {name: i for i, name in enumerate(asked.ids)}
    answers = {(row.id, row.number): row for row in cell.table(SEVERAL)}
    first = next(iter(by_name.values()))
    return SeveralScores(
        np.array([place[row.id] for row in first], dtype=np.int64),
        np.array([row.cluster for row in first], dtype=np.int64),
        np.array([row.right for row in first]),
        known_numbers([answers[row.id, row.number].logprobs for row in first]),
        {name: np.array([row.logits for row in rows]).T for name, rows in by_name.items()},
    )


def measured(store: Store, model: str, dataset: str, scored: Scored | None = None) -> CellMeasures:
    """The measures of a cell, from its scores; `scored`: as they were read."""
    samples, scores = scored or read_scores(store, model, dataset)
    relations = {row.id: row.relation for row in store.results(model, dataset).table(TRACES)}
    entries = catalogue(store.study.traces.sites[0])
    seed = zlib.crc32(f"{model}/{dataset}".encode())  # cells are drawn apart: their mean is of independent ones
    names = [relations[name] for name in samples.inputs.ids]
    several = read_several_scores(store, model, dataset, samples.inputs)
    first: Score = next(iter(store.results(model, dataset).table(SCORES)))
    widened = Widening(first.widened, first.widened_difference)
    return measure(model, dataset, samples, scores, entries, names, seed=seed, several=several, widened=widened)
