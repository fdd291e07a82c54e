"""Who tests a probe, who trains it, and in which half: clusters of questions are dealt, never split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchorscope.errors import ProbeError
from anchorscope.probes.logistic import BoolArray, FloatArray
from anchorscope.study import ProbeSpec
from anchorscope.study.terms import FEWEST_RIGHT
from anchorscope.traces.record import Trace

IntArray = NDArray[np.int64]

PARTS = ("whole", "first_half", "second_half")


@dataclass(frozen=True)
class Folds:
    """Which samples test a probe, and which half they belong to when they train one."""

    fold: NDArray[np.int8]
    """(repeat, sample): in which fold the sample is tested"""
    half: NDArray[np.int8]
    """(repeat, sample): 1 or 2"""

    @property
    def repeats(self) -> int:
        return len(self.fold)

    @property
    def count(self) -> int:
        """Folds per repeat."""
        return int(self.fold.max()) + 1

    def training(self, repeat: int, fold: int, part: int) -> BoolArray:
        """(sample): which samples the probe of this fold and part is fitted on."""
        mask: BoolArray = self.fold[repeat] != fold
        return mask if part == 0 else mask & (self.half[repeat] == part)


def make_folds(
    labels: ArrayLike, clusters: ArrayLike, repeats: int = 5, folds: int = 5, seed: int = 0, halves: bool = True
) -> Folds:
    """Deal the samples to folds and halves, anew in each repeat; a cluster is never split over either.

    Without `halves` samples may be too few for them: probes are then fitted on whole training sets alone.
    """
    right, cluster = checked_labels(labels, clusters)
    if repeats < 1 or not 2 <= folds <= 127:
        raise ProbeError(f"cannot make {repeats} repeats of {folds} folds", "Use at least 1 repeat and 2 to 127 folds.")
    counts = _class_counts(right, cluster)
    fold = np.empty((repeats, len(counts)), np.int8)
    half = np.empty_like(fold)
    for repeat in range(repeats):
        rng = np.random.default_rng([seed, repeat])
        fold[repeat] = _deal(counts, folds, rng)
        # halves are dealt within each fold, so that they stay even whichever fold is left out
        so_far = np.zeros((2, 2))
        for number in range(folds):
            of_fold = np.flatnonzero(fold[repeat] == number)
            dealt = _deal(counts[of_fold], 2, rng, so_far)
            half[repeat, of_fold] = dealt + 1
            so_far += [counts[of_fold[dealt == side]].sum(axis=0) for side in range(2)]
    by_sample = Folds(fold[:, cluster], half[:, cluster])
    _check_parts(Folds(fold, half), counts, (1, 2) if halves else (0,))
    return by_sample


def folds_of(rows: Sequence[Trace], spec: ProbeSpec, seed: int) -> tuple[BoolArray, IntArray, Folds]:
    """The labels, the clusters and the folds of traced samples, as their study deals them."""
    labels, clusters = np.array([row.correct for row in rows]), np.array([row.cluster for row in rows])
    right, wrong = int(labels.sum()), int((~labels.astype(bool)).sum())
    if not right or not wrong:
        lacking = f"0 of {len(rows):,} answers {'wrong' if right else 'right'}"
        raise ProbeError(
            f"{lacking}; probes need {FEWEST_RIGHT}", "Set a larger `sample` in the study, or choose easier questions."
        )
    return labels, clusters, make_folds(labels, clusters, spec.repeats, spec.folds, seed)


def _check_parts(by_cluster: Folds, counts: IntArray, parts: Sequence[int]) -> None:
    """Each part must hold both classes even when an inner fold is left out: at least two clusters of each."""
    for repeat in range(by_cluster.repeats):
        for fold in range(by_cluster.count):
            for part in parts:
                fewest = int((counts[by_cluster.training(repeat, fold, part)] > 0).sum(axis=0).min())
                if fewest < 2:
                    wrong, right = (int(number) for number in (counts > 0).sum(axis=0))
                    raise ProbeError(
                        f"too few questions to {'halve' if part else 'make'} the training sets: {right} have a right "
                        f"answer and {wrong} a wrong one, so some {'half' if part else 'set'} would hold only "
                        f"{fewest}",
                        "Set a larger `sample` in the study (at least ten right and ten wrong answers, better a "
                        "hundred), or use fewer folds.",
                    )


def _deal(counts: IntArray, bins: int, rng: np.random.Generator, before: FloatArray | None = None) -> NDArray[np.intp]:
    """(cluster): a bin for each cluster, so that every bin gets its share of both classes.

    `counts` is (cluster, class). Large clusters go first, equal ones in random order, each to the bin where it adds
    least to the sum over bins and classes of (share of the class)². Ties go by `before`, what the bins (bin, class)
    already hold from elsewhere, and then at random. So without `before` every cluster is as likely in one bin as in
    any other. Where there are fewer clusters than bins, the last bins stay empty.
    """
    order = rng.permutation(len(counts))
    lots = rng.random(len(counts)).tolist()
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    scaled = (counts / np.maximum(counts.sum(axis=0), 1) ** 2.0).tolist()
    held = ((before if before is not None else np.zeros((bins, 2))) * 1e-6).tolist()  # less than any sample weighs
    sizes, dealt = counts.tolist(), np.empty(len(counts), np.intp)
    for cluster in order.tolist():
        wrong, right = scaled[cluster]
        costs = [load[0] * wrong + load[1] * right for load in held]
        least = min(costs)
        tied = [number for number, cost in enumerate(costs) if cost == least]
        chosen = tied[int(lots[cluster] * len(tied))]
        held[chosen][0] += sizes[cluster][0]
        held[chosen][1] += sizes[cluster][1]
        dealt[cluster] = chosen
    return dealt if before is not None else np.unique(dealt, return_inverse=True)[1]


def inner_folds(right: BoolArray, cluster: IntArray, inner: int, key: list[int]) -> NDArray[np.intp]:
    """(sample): inner folds of one part's training samples; no cluster is split."""
    groups = np.unique(cluster, return_inverse=True)[1]
    inner_fold = deal(right, groups, inner, key)[groups]
    for rows in left_out(inner_fold):
        if not 0 < right[rows].sum() < rows.sum():
            raise ProbeError("an inner fold leaves only one class to fit on", "Set a larger `sample` in the study.")
    return inner_fold


def deal(right: BoolArray, cluster: IntArray, bins: int, key: list[int]) -> NDArray[np.intp]:
    """(cluster): a bin for each cluster, so that every bin gets its share of both classes."""
    return _deal(_class_counts(right, cluster), bins, np.random.default_rng(key))


def left_out(inner_fold: NDArray[np.intp]) -> BoolArray:
    """(inner, sample): what is fitted on when each inner fold is left out."""
    return inner_fold != np.arange(inner_fold.max() + 1)[:, None]


def _class_counts(right: BoolArray, cluster: IntArray) -> IntArray:
    """(cluster, class): how many samples of either class a cluster has."""
    total = np.bincount(cluster)
    correct = np.bincount(cluster[right], minlength=len(total))
    return np.stack([total - correct, correct], axis=1)


def checked_labels(labels: ArrayLike, clusters: ArrayLike) -> tuple[BoolArray, IntArray]:
    """Labels as booleans, clusters numbered from 0."""
    label, cluster = np.asarray(labels), np.asarray(clusters)
    if label.ndim != 1 or label.shape != cluster.shape:
        raise ProbeError(f"labels {label.shape} and clusters {cluster.shape} must be one per sample")
    right = label.astype(bool)
    if (right != label).any() or not 0 < right.sum() < len(right):
        raise ProbeError("labels must be 0 or 1, and both must occur", "Give right and wrong answers.")
    return right, np.unique(cluster, return_inverse=True)[1].astype(np.int64)
