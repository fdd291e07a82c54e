"""AUROC of what needs no hidden state of the answer, and AUROC within relations: beside every AUROC of a probe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples, average
from anchorscope.pathways.record import Key
from anchorscope.pathways.statistics import Series
from anchorscope.probes.recorded import Recorded


def baselines(recorded: Recorded, drawn: Resamples) -> Iterator[Series]:
    """AUROC of the question-only probe, of the text-only classifier, and within relations."""
    readouts = recorded.readouts
    auroc = Auroc(readouts.labels, drawn.samples)
    votes = drawn.repeats.T[:, :, None]  # (repeat, 1 + resample, 1)
    n = np.full(readouts.layers, float(len(readouts.labels)))
    yield Series(Key("auroc_question_only", "clean"), _mean_area(auroc, recorded.question_only, votes), n)
    texts = _mean_area(auroc, recorded.text_only[:, :, None], votes)
    yield Series(Key("auroc_text_only", "clean"), texts, n[:1], by_layer=False)
    relations = np.array([row.relation or "" for row in recorded.rows])
    if len(set(relations)) > 1:
        for name, scores in (
            ("auroc_within_relation", readouts.logits[0, :, 0]),
            ("auroc_question_only_within_relation", recorded.question_only),
        ):
            within = within_strata(readouts.labels, scores, relations, drawn.samples, drawn.repeats)
            yield Series(Key(name, "clean"), within, n)


def refits(recorded: Recorded, drawn: Resamples) -> Iterator[Series]:
    """AUROC of probes fitted on a condition's own states, and how far it is from the clean one's: what is gone.

    What clean probes lose beyond it is there, and misread.
    """
    readouts = recorded.readouts
    auroc, votes = Auroc(readouts.labels, drawn.samples), drawn.repeats.T[:, :, None]
    n = np.full(readouts.layers, float(len(readouts.labels)))
    clean = Series(Key("auroc", "clean"), _mean_area(auroc, readouts.logits[0, :, 0], votes), n)
    for condition, logits in recorded.refit.items():
        one = Series(Key("auroc_refit", condition), _mean_area(auroc, logits, votes), n)
        yield one
        yield one.minus(clean, statistic="delta_auroc_refit")


def _mean_area(auroc: Auroc, logits: FloatArray, votes: FloatArray) -> FloatArray:
    """(1 + resample, layer), from (repeat, sample, layer)."""
    return average(np.stack([auroc(scores) for scores in logits]), votes)


def masses(recorded: Recorded, drawn: Resamples, effects: dict[str, Series]) -> Iterator[Series]:
    """The attention a cut removes in a layer, and ΔAUROC by what it removes in all layers up to the one read."""
    place = {row.id: i for i, row in enumerate(recorded.rows)}
    for condition, by_sample in recorded.mass.items():
        weights = drawn.samples[:, [place[name] for name in by_sample]]
        values = np.stack(list(by_sample.values()))  # (sample, layer)
        with np.errstate(invalid="ignore"):  # a resample may have none of these samples
            mean = weights @ values / weights.sum(axis=1, keepdims=True)
        n = np.full(values.shape[1], float(len(values)))
        yield Series(Key("mass", condition), mean, n)
        if condition in effects:
            effect = effects[condition]
            quotient = effect.replicates / np.cumsum(mean, axis=1)
            yield Series(Key("delta_auroc_per_mass", condition), quotient, np.minimum(effect.size, n))


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


def within_auroc(labels: ArrayLike, scores: ArrayLike, strata: ArrayLike) -> float | None:
    """The share of (right, wrong) pairs of the same stratum that are ranked right, ties one half; None without pairs.

    With the relation as stratum, knowing which relations a model is good at earns nothing.
    """
    from scipy.stats import rankdata  # two seconds that drawing charts need not wait for

    right, score, stratum = np.asarray(labels).astype(bool), np.asarray(scores), np.asarray(strata)
    if not right.shape == score.shape == stratum.shape:
        raise ProbeError(f"labels {right.shape}, scores {score.shape} and strata {stratum.shape} differ in shape")
    won, pairs = 0.0, 0
    for value in np.unique(stratum):
        rows = stratum == value
        correct = int(right[rows].sum())
        ranks = rankdata(score[rows])
        won += float(ranks[right[rows]].sum()) - correct * (correct + 1) / 2  # Mann and Whitney's U
        pairs += correct * (int(rows.sum()) - correct)
    return won / pairs if pairs else None
