"""AUROC of what needs no hidden state of the answer, and AUROC within relations: beside every AUROC of a probe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples, average
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.probes.recorded import Recorded


def baselines(recorded: Recorded, drawn: Resamples, keys: Collection[Key]) -> Iterator[Series]:
    """AUROC of the question-only probe, of the text-only classifier, within relations, and of refitted probes.

    A refit is fitted on a condition's own states: what it loses is gone, and what clean probes lose beyond it is there,
    and misread.
    """
    readouts = recorded.readouts
    kernel = Auroc(readouts.labels, drawn.samples)
    votes = drawn.repeats.T[:, :, None]  # (repeat, 1 + resample, 1)
    n = np.full(readouts.layers, float(len(readouts.labels)))
    whole = Series(Key("auroc"), _mean_area(kernel, readouts.logits[0, :, 0], votes), n)
    for key in keys:
        if key.statistic == "auroc_question_only":
            yield Series(key, _mean_area(kernel, recorded.question_only, votes), n)
        elif key.statistic == "auroc_text_only":
            yield Series(key, _mean_area(kernel, recorded.text_only[:, :, None], votes), n[:1], by_layer=False)
        elif key.statistic == "auroc_within_relation":
            relations = np.array([row.relation or "" for row in recorded.rows])
            if len(set(relations)) > 1:
                scores = readouts.logits[0, :, 0]
                yield Series(key, within_strata(readouts.labels, scores, relations, drawn.samples, drawn.repeats), n)
        elif key.statistic in ("auroc_refit", "delta_auroc_refit") and key.condition in recorded.refit:
            refit = Series(key, _mean_area(kernel, recorded.refit[key.condition], votes), n)
            yield refit if key.statistic == "auroc_refit" else refit.minus(whole, key)


BASELINES = ("auroc_question_only", "auroc_text_only", "auroc_within_relation", "auroc_refit", "delta_auroc_refit")
MASSES = ("mass", "delta_auroc_per_mass")


def _mean_area(auroc: Auroc, logits: FloatArray, votes: FloatArray) -> FloatArray:
    """(1 + resample, layer), from (repeat, sample, layer)."""
    return average(np.stack([auroc(scores) for scores in logits]), votes)


def masses(
    recorded: Recorded, drawn: Resamples, losses: Mapping[str, Series], keys: Collection[Key]
) -> Iterator[Series]:
    """The attention a cut removes in a layer, and ΔAUROC by what it removes in all layers up to the one read.

    `losses`: ΔAUROC, by condition.
    """
    place = {row.id: i for i, row in enumerate(recorded.rows)}
    for key in keys:
        by_sample = recorded.mass.get(key.condition)
        if key.statistic not in MASSES or by_sample is None:
            continue
        weights = drawn.samples[:, [place[name] for name in by_sample]]
        values = np.stack(list(by_sample.values()))  # (sample, layer)
        with np.errstate(invalid="ignore"):  # a resample may have none of these samples
            mean = weights @ values / weights.sum(axis=1, keepdims=True)
        n = np.full(values.shape[1], float(len(values)))
        if key.statistic == "mass":
            yield Series(key, mean, n)
        elif key.condition in losses:
            loss = losses[key.condition]
            yield Series(key, loss.replicates / np.cumsum(mean, axis=1), np.minimum(loss.size, n))


def within_strata(
    labels: NDArray[np.bool_], scores: FloatArray, relations: NDArray[Any], weights: FloatArray, repeats: FloatArray
) -> FloatArray:
    """AUROC within any strata in every resample: (1 + resample, layer). `scores` is (repeat, sample, layer)."""
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
