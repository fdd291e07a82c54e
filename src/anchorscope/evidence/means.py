"""Means and bins that several experiments use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anchorscope.pathways.intervals import FloatArray

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def weighted_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """(1 + resample, …): the mean over samples, axis 0 of `values`; weights (1 + resample, sample)."""
    flat = values.reshape(len(values), -1)
    total = weights @ flat
    number = weights.sum(axis=1, keepdims=True)
    return (total / np.where(number > 0, number, np.nan)).reshape(len(weights), *values.shape[1:])


def bins_of(values: FloatArray, count: int) -> IntArray:
    """(sample): by quantiles of some values, from 0 on."""
    edges = np.quantile(values, np.linspace(0, 1, count + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int64)
