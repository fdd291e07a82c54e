"""AUROC of what needs no hidden state of the answer, and AUROC within relations: beside every AUROC of a probe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Auroc, FloatArray, average, resample
from anchorscope.pathways.record import Key
from anchorscope.pathways.statistics import Series
from anchorscope.probes.recorded import Recorded


def baselines(recorded: Recorded, resamples: int, seed: int) -> Iterator[Series]:
    """AUROC of the question-only probe, of the text-only classifier, and within relations."""
    readouts = recorded.readouts
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    auroc = Auroc(readouts.labels, drawn.samples)
    votes = drawn.repeats.T[:, :, None]  # (repeat, 1 + resample, 1)
    n = np.full(readouts.layers, float(len(readouts.labels)))
    questions = average(np.stack([auroc(each) for each in recorded.question_only]), votes)
    yield Series(Key("auroc_question_only", "clean"), questions, n)
    texts = average(np.stack([auroc(each[:, None]) for each in recorded.text_only]), votes)
    yield Series(Key("auroc_text_only", "clean"), texts, n[:1], by_layer=False)
    relations = np.array([row.relation or "" for row in recorded.rows])
    if len(set(relations)) > 1:
        for name, scores in (
            ("auroc_within_relation", readouts.logits[0, :, 0]),
            ("auroc_question_only_within_relation", recorded.question_only),
        ):
            within = _within(readouts.labels, scores, relations, drawn.samples, drawn.repeats)
            yield Series(Key(name, "clean"), within, n)


def _within(
    labels: NDArray[np.bool_], scores: FloatArray, relations: NDArray[Any], weights: FloatArray, repeats: FloatArray
) -> FloatArray:
    """Within-relation AUROC in every resample: (1 + resample, layer). `scores` is (repeat, sample, layer)."""
    areas = np.zeros((len(scores), len(weights), scores.shape[2]))
    pairs = np.zeros(len(weights))
    for relation in np.unique(relations):
        rows = relations == relation
        right, wrong = rows & labels, rows & ~labels
        if right.any() and wrong.any():
            count = weights[:, right].sum(axis=1, dtype=np.float64) * weights[:, wrong].sum(axis=1, dtype=np.float64)
            auroc = Auroc(labels[rows], weights[:, rows])
            for repeat in range(len(scores)):
                area = auroc(scores[repeat][rows])
                areas[repeat] += np.where(count[:, None] > 0, area * count[:, None], 0)
            pairs += count
    areas /= np.where(pairs > 0, pairs, np.nan)[None, :, None]
    return average(areas, repeats.T[:, :, None])


def within_auroc(labels: ArrayLike, scores: ArrayLike, strata: ArrayLike) -> float | None:
    """The share of (right, wrong) pairs of the same stratum that are ranked right, ties one half; None without pairs.

    With the relation as stratum, knowing which relations a model is good at earns nothing.
    """
    right, score, stratum = np.asarray(labels).astype(bool), np.asarray(scores), np.asarray(strata)
    if not right.shape == score.shape == stratum.shape:
        raise ProbeError(f"labels {right.shape}, scores {score.shape} and strata {stratum.shape} differ in shape")
    won, pairs = 0.0, 0
    for each in np.unique(stratum):
        rows = stratum == each
        correct = int(right[rows].sum())
        ranks = rankdata(score[rows])
        won += float(ranks[right[rows]].sum()) - correct * (correct + 1) / 2  # Mann and Whitney's U
        pairs += correct * (int(rows.sum()) - correct)
    return won / pairs if pairs else None
