"""Probes applied to conditions: each sample by probes that never saw it.

A sample that probes were fitted on is read out by the probe of the fold in which it is tested; a new one by the mean
over folds. Every condition is read with the same probes, standardised with clean training statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import PARTS, Folds
from anchorscope.probes.logistic import BoolArray, FloatArray
from anchorscope.probes.probe import LayerProbes

ROWS = 1024  # that are read in float64 at a time


@dataclass(frozen=True)
class Readouts:
    """The read-outs of one model, set, site and position: all that pathways are computed from."""

    labels: BoolArray
    """(sample): the answer is correct"""
    clusters: NDArray[np.int64]
    """(sample): question cluster, the unit of the bootstrap"""
    probability: NDArray[np.float64]
    """(sample): sampling probability of the row; wrong answers are subsampled"""
    conditions: tuple[str, ...]
    """The first is `clean`"""
    logits: NDArray[np.float32]
    """(condition, repeat, part, sample, layer): calibrated, out of fold"""
    drift: NDArray[np.float32]
    """(condition, repeat, part, sample, layer): what drift correction subtracts"""
    fold: NDArray[np.integer[Any]] | None = None
    """(repeat, sample): the fold in which it is tested; None: each sample has one of its own"""

    def __post_init__(self) -> None:
        samples = len(self.labels)
        for name in ("labels", "clusters", "probability"):
            shape = getattr(self, name).shape
            if shape != (samples,):
                raise ProbeError(f"readouts: {name} has shape {shape} instead of ({samples},)")
        if self.labels.dtype != np.bool_:
            raise ProbeError(f"readouts: labels are {self.labels.dtype} instead of bool")
        if not self.conditions or self.conditions[0] != "clean" or len(set(self.conditions)) < len(self.conditions):
            raise ProbeError(f"readouts: conditions {self.conditions} must be distinct and begin with clean")
        for name in ("logits", "drift"):
            _check_shape(name, getattr(self, name), len(self.conditions), samples)
        if self.logits.shape != self.drift.shape:
            raise ProbeError(f"readouts: logits {self.logits.shape} and drift {self.drift.shape} differ in shape")
        if self.fold is not None and self.fold.shape != (self.repeats, samples):
            raise ProbeError(f"readouts: fold has shape {self.fold.shape} instead of ({self.repeats}, {samples})")
        if self.drift[0].any():
            raise ProbeError("readouts: the clean condition cannot drift from itself")
        if not ((self.probability > 0) & (self.probability <= 1)).all():
            raise ProbeError("readouts: a sampling probability is not above 0 and at most 1")

    @property
    def folds(self) -> NDArray[np.integer[Any]]:
        """(repeat, sample): the fold in which it is tested."""
        if self.fold is not None:
            return self.fold
        return np.broadcast_to(np.arange(len(self.labels)), (self.repeats, len(self.labels)))

    @property
    def repeats(self) -> int:
        return int(self.logits.shape[1])

    @property
    def layers(self) -> int:
        return int(self.logits.shape[-1])


def _check_shape(name: str, values: FloatArray, conditions: int, samples: int) -> None:
    wanted = (conditions, "repeat", len(PARTS), samples, "layer")
    if values.ndim != 5 or any(isinstance(w, int) and w != got for w, got in zip(wanted, values.shape, strict=True)):
        raise ProbeError(f"readouts: {name} has shape {values.shape} instead of ({', '.join(map(str, wanted))})")
    if not np.isfinite(values).all():
        raise ProbeError(f"readouts: {name} are not all finite")


def read_out(probes: LayerProbes, x: FloatArray, folds: Folds) -> NDArray[np.float64]:
    """(repeat, part, sample): each sample of x (sample, width) by the probe of the fold in which it is tested."""
    _check_width(probes, x)
    _check_folds(probes, x, folds)
    out = np.empty((folds.repeats, probes.weight.shape[2], len(x)))
    for repeat in range(folds.repeats):
        for fold in range(folds.count):
            tested = folds.fold[repeat] == fold
            weight = probes.weight[repeat, fold].astype(np.float64)  # (part, width)
            out[repeat][:, tested] = weight @ x[tested].T.astype(np.float64) + probes.bias[repeat, fold][:, None]
    return out


def read_out_some(probes: LayerProbes, x: FloatArray, folds: Folds, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """(repeat, part, sample, state): as `read_out`, of some samples with several states, x (sample, state, width)."""
    _check_width(probes, x.reshape(-1, x.shape[-1]))
    fold = folds.fold[:, samples]  # (repeat, sample)
    repeat = np.arange(folds.repeats)[:, None]
    weight = probes.weight[repeat, fold].astype(np.float64)  # (repeat, sample, part, width)
    read = weight @ x.transpose(0, 2, 1).astype(np.float64) + probes.bias[repeat, fold][..., None]
    return np.ascontiguousarray(read.transpose(0, 2, 1, 3))


def read_out_new(probes: LayerProbes, x: FloatArray) -> NDArray[np.float64]:
    """(repeat, part, sample): samples (sample, width) that no probe was fitted on, by the mean logit over folds."""
    _check_width(probes, x)
    weight = probes.weight.mean(axis=1, dtype=np.float64)  # (repeat, part, width)
    return weight @ x.T.astype(np.float64) + probes.bias.mean(axis=1)[..., None]


def drift(probes: LayerProbes, clean: FloatArray, other: FloatArray, folds: Folds) -> NDArray[np.float64]:
    """(repeat, fold, part): the read-out of the mean of (other − clean) over the samples each probe was fitted on.

    Both are (sample, width). Subtracted from the read-outs of `other`, it removes what the condition does to all
    samples alike; no sample takes part in its own correction.
    """
    _check_width(probes, clean)
    _check_folds(probes, clean, folds)
    if clean.shape != other.shape:
        raise ProbeError(f"clean activations {clean.shape} and those of the condition {other.shape} differ in shape")
    weight = probes.weight.reshape(-1, clean.shape[1]).astype(np.float64)  # (repeat × fold × part, width)
    read = np.empty((len(weight), len(clean)))
    for first in range(0, len(clean), ROWS):
        rows = slice(first, first + ROWS)
        read[:, rows] = weight @ (other[rows].astype(np.float64) - clean[rows]).T
    places = np.ndindex(*probes.bias.shape)
    means = [values[folds.training(*place)].mean() for place, values in zip(places, read, strict=True)]
    return np.reshape(means, probes.bias.shape)


def by_sample(values: FloatArray, folds: Folds) -> FloatArray:
    """(repeat, part, sample): to each sample its probe's value, from (repeat, fold, part)."""
    return np.stack([values[repeat][folds.fold[repeat]].T for repeat in range(folds.repeats)])


def _check_width(probes: LayerProbes, x: FloatArray) -> None:
    width = probes.weight.shape[-1]
    if x.ndim != 2 or x.shape[1] != width:
        raise ProbeError(f"activations of shape {x.shape} for probes of width {width}")


def _check_folds(probes: LayerProbes, x: FloatArray, folds: Folds) -> None:
    if folds.fold.shape != (len(probes.weight), len(x)) or folds.count != probes.weight.shape[1]:
        raise ProbeError(
            f"folds of shape {folds.fold.shape} do not belong to these probes and {len(x)} samples",
            "Use the folds the probes were fitted with.",
        )
