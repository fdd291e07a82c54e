"""Intervals by resampling: one set of weights for all numbers of a cell, so every difference is paired.

A resample draws clusters of samples with replacement, all samples of a cluster together, and repeats of the folds with
replacement. It is never built: it is a row of whole-number weights, and a mean over the resampled data is a matrix
product. Row 0 is the data as they are (all weights 1), so the value and its interval come from the same code.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


def wilson(count: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95 % Wilson interval of a share; sound for small counts, where count / total ± z·σ is not."""
    if total == 0:
        return 0.0, 1.0
    share = count / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def share(count: int, total: int) -> str:
    """`84 of 1,000, 8.4 % (6.8 to 10.3)`."""
    low, high = wilson(count, total)
    percent = 100 * count / total if total else 0.0
    return f"{count:,} of {total:,}, {percent:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


FloatArray = NDArray[np.floating[Any]]
LEVEL = 0.95
WIDE = 64  # resamples from which on a sum row by row is faster than numpy's own


@dataclass(frozen=True)
class Resamples:
    """How often each sample and each repeat counts; row 0 is the data as they are."""

    samples: FloatArray
    """(1 + resample, sample) float32, whole numbers"""
    repeats: FloatArray
    """(1 + resample, repeat) float32, whole numbers; each row sums to the number of repeats"""

    def __len__(self) -> int:
        return len(self.samples)


def resample(
    clusters: NDArray[np.integer[Any]], repeats: int, resamples: int, seed: int, names: Sequence[str] | None = None
) -> Resamples:
    """Draw the weights. Cells with the same clusters and seed get the same ones, so they are paired as well.

    `names` (sample) pairs cells that share only some of their samples: a cluster, called by the first name in it,
    counts as often in each of them. Weights are then drawn one by one (Poisson), and do not add up to a fixed number.
    """
    _, cluster = np.unique(clusters, return_inverse=True)
    count = int(cluster.max()) + 1
    rng = np.random.default_rng(seed)
    if names is None:
        of_clusters = rng.multinomial(count, np.full(count, 1 / count), size=resamples)
    else:
        first: dict[int, str] = {}
        for number, name in zip(cluster.tolist(), names, strict=True):
            first[number] = min(name, first.get(number, name))
        of_clusters = np.stack([_counts(first[number], resamples, seed) for number in range(count)], axis=1)
    of_repeats = rng.multinomial(repeats, np.full(repeats, 1 / repeats), size=resamples)
    samples = np.ones((1 + resamples, len(cluster)), np.float32)
    samples[1:] = of_clusters[:, cluster]
    return Resamples(samples, np.vstack([np.ones(repeats), of_repeats]).astype(np.float32))


def _counts(name: str, resamples: int, seed: int) -> NDArray[np.int64]:
    """(resample): how often a cluster of this name counts."""
    key = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(key, "big")).poisson(1.0, size=resamples)


def interval(replicates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The 95 % percentile interval over axis 0, undefined replicates (nan) left out; nan where none is defined."""
    if len(replicates) == 0:
        empty = np.full(replicates.shape[1:], np.nan)
        return empty, empty
    ordered = np.sort(np.ascontiguousarray(np.moveaxis(replicates, 0, -1)), axis=-1)  # nan sorts last
    last = np.maximum(np.isfinite(ordered).sum(axis=-1) - 1, 0)
    low, high = (_quantile(ordered, last, q) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    return low, high


def centred(replicates: FloatArray, widened: float | FloatArray = 1.0) -> FloatArray:
    """Replicates (1 + resample, layer) moved so that their mean is the value in row 0, and spread out from it.

    Where a choice is made anew in every resample, such as the best layer, replicates lie to one side of the value.
    """
    with np.errstate(invalid="ignore"):
        defined = np.isfinite(replicates[1:])
        # in float64: else the last digits would depend on what stands beside it
        total = np.where(defined, replicates[1:], 0).sum(axis=0, dtype=np.float64)
        mean = (total / np.maximum(defined.sum(axis=0), 1)).astype(replicates.dtype)
        moved: FloatArray = replicates[0] + widened * (replicates[1:] - mean)
    return moved


def band(replicates: FloatArray, value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The 95 % band over layers: value ± c · spread, c such that 95 % of the resamples lie within it at every layer.

    `replicates` (resample, …, layer) are centred on `value` (…, layer): of several lines at once, each with its own c.
    nan at layers that have none.
    """
    defined = np.isfinite(value) & np.isfinite(replicates).all(axis=0)
    if not len(replicates) or not defined.any():
        nothing = np.full(value.shape, np.nan)
        return nothing, nothing.copy()
    with np.errstate(invalid="ignore"):
        spread = np.maximum(replicates.std(axis=0, ddof=1) if len(replicates) > 1 else np.zeros(value.shape), 1e-12)
        farthest = np.where(defined, np.abs((replicates - value) / spread), 0).max(axis=-1)
        reach = np.quantile(farthest, LEVEL, axis=0)[..., None] * spread
        return np.where(defined, value - reach, np.nan), np.where(defined, value + reach, np.nan)


def _quantile(ordered: FloatArray, last: NDArray[np.intp], q: float) -> FloatArray:
    at = q * last
    below = np.floor(at).astype(np.intp)
    above = np.minimum(below + 1, last)
    first, second = (np.take_along_axis(ordered, index[..., None], -1)[..., 0] for index in (below, above))
    value: FloatArray = first + (second - first) * (at - below)
    return value


def average(values: FloatArray, weights: FloatArray) -> FloatArray:
    """The weighted mean over axis 0, leaving out undefined values (nan) together with their weight."""
    defined = np.isfinite(values)
    total = np.sum(np.where(defined, values, 0) * weights, axis=0)
    weight = np.sum(defined * weights, axis=0)
    mean: FloatArray = np.divide(total, weight, out=np.full(total.shape, np.nan, total.dtype), where=weight > 0)
    return mean


class Auroc:
    """The area under the ROC curve in every resample; ties count one half, exactly."""

    def __init__(self, labels: NDArray[np.bool_], weights: FloatArray) -> None:
        # the fewer of right and wrong answers are put in order, the others are placed among them
        self._right_few = bool(2 * labels.sum() <= len(labels))
        self._few = labels if self._right_few else ~labels
        self._placed = np.ascontiguousarray(weights.T[self._few])  # (few, resample)
        self._many = np.ascontiguousarray(weights.T[~self._few])  # (many, resample)
        self._pairs = self._placed.sum(axis=0, dtype=np.float64) * self._many.sum(axis=0, dtype=np.float64)

    def __call__(self, scores: FloatArray) -> FloatArray:
        """`scores` (sample, layer) -> (resample, layer); nan where a resample lacks a class."""
        columns = [self._one(column) for column in np.ascontiguousarray(scores.T)]
        return np.stack(columns, axis=1)

    def _one(self, scores: FloatArray) -> FloatArray:
        few = scores[self._few]
        order = np.argsort(few, kind="stable")
        # Row i: the weight of the i lowest of the few. Sums of whole numbers: exact in float32 below 2**24.
        below = np.zeros((len(few) + 1, self._placed.shape[1]), np.float32)
        if self._placed.shape[1] < WIDE:
            np.cumsum(self._placed[order], axis=0, out=below[1:])
        else:
            for row, index in enumerate(order):  # eight times as fast as np.cumsum over the first axis
                np.add(below[row], self._placed[index], out=below[row + 1])
        ordered, many = few[order], scores[~self._few]
        lower, upper = (np.searchsorted(ordered, many, side) for side in ("left", "right"))
        beaten = np.einsum("ij,ij->j", self._many, below[lower])  # pairs in which the one of the few is lower
        or_tied = beaten if np.array_equal(lower, upper) else np.einsum("ij,ij->j", self._many, below[upper])
        pairs = np.where(self._pairs > 0, self._pairs, np.nan)
        twice = beaten.astype(np.float64) + or_tied
        area: FloatArray = (2 * pairs - twice if self._right_few else twice) / (2 * pairs)
        return area


def mean_auroc(
    labels: NDArray[np.bool_],
    scores: FloatArray,
    drawn: Resamples,
    rows: NDArray[np.integer[Any]] | None = None,
    kernel: Auroc | None = None,
) -> FloatArray:
    """(1 + resample, layer): AUROC, mean over the repeats of a resample.

    `scores` (repeat, sample, layer) are higher where the label is likelier true. `rows`: of these samples only.
    `kernel`: an `Auroc` of the same labels and resamples, where there is one.
    """
    weights = drawn.samples
    if rows is not None:
        labels, scores, weights = labels[rows], scores[:, rows], weights[:, rows]
    auroc = kernel or Auroc(labels, weights)
    return average(np.stack([auroc(repeat) for repeat in scores]), drawn.repeats.T[:, :, None])


class Estimate(NamedTuple):
    """A number and its 95 % interval; nan where it is undefined. Arrays where there are several numbers."""

    value: Any
    """Of the data as they are."""
    low: Any
    """The lower end of the interval."""
    high: Any
    """The upper end."""


def estimate(replicates: FloatArray, widened: float = 1.0) -> Estimate:
    """From (1 + resample,): the value of row 0, and the percentile interval of the others, centred on it and widened.

    Resamples in which the number is undefined are left out. Being centred, an end can lie just beyond 0 or 1.
    """
    low, high = interval(centred(replicates[:, None], widened))
    return Estimate(float(replicates[0]), float(low[0]), float(high[0]))
