"""One linear probe per layer: out of fold, calibrated, and once more on each half of the training questions.

A probe is a balanced logistic regression on activations standardised with clean training statistics, divided by a
temperature. No question that a probe was fitted, standardised or calibrated on is ever read out by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import PARTS, Folds, checked_labels, inner_folds, left_out
from anchorscope.probes.logistic import FloatArray, balanced_log_loss, fit_temperature, solve
from anchorscope.probes.probe import LayerProbes

GRID = tuple(float(c) for c in np.logspace(-4, 0, 7))
INNER = 3
CONSTANT = 1e-6  # spread relative to the mean below which a feature only carries float32's rounding


@dataclass(frozen=True)
class Strength:
    """The regularisation all layers share, and the curve it was chosen by."""

    value: float
    """scikit-learn's C"""
    grid: tuple[float, ...]
    """What was tried, ascending."""
    layers: tuple[int, ...]
    """On which layers."""
    log_loss: FloatArray
    """(layer, grid): inner, prior 0.5, without a temperature; its mean over layers decides"""
    calibrated: FloatArray
    """(layer, grid): the same after a temperature, for the record"""

    def __float__(self) -> float:
        return self.value

    @property
    def edge(self) -> str:
        """`lowest` or `highest` when the best C is the last one tried on that side, else empty."""
        place = self.grid.index(self.value)
        return "lowest" if place == 0 else "highest" if place == len(self.grid) - 1 else ""

    def record(self) -> dict[str, Any]:
        """What was tried and found, for the manifest."""
        curves = {"log_loss": self.log_loss.mean(axis=0), "calibrated": self.calibrated.mean(axis=0)}
        pooled = {name: [round(float(loss), 6) for loss in curve] for name, curve in curves.items()}
        return {"C": self.value, "edge": self.edge, "grid": list(self.grid), "layers": list(self.layers), **pooled}


def choose_strength(
    layers: Sequence[int],
    read: Callable[[int], FloatArray],
    labels: ArrayLike,
    clusters: ArrayLike,
    folds: Folds,
    grid: Sequence[float] = GRID,
    jobs: int = 1,
    seed: int = 0,
) -> Strength:
    """One C for all layers: the least inner log-loss within the outer training sets of repeat 0, mean over layers.

    `read(layer)` gives clean activations (sample, width). `jobs` layers are worked on at a time, in threads.
    Every sample trains in some fold, so this one number has seen all labels, as nothing else in a read-out has.
    """
    right, cluster = checked_labels(labels, clusters)
    tried = tuple(sorted({float(c) for c in grid}))
    if not tried or tried[0] <= 0 or not layers:
        raise ProbeError("no layers, or no C above 0, to choose from", "Give at least one of each.")

    def losses(layer: int) -> FloatArray:  # (raw or calibrated, grid)
        clean = _checked_activations(read(layer), len(right), f"layer {layer}")
        sums = np.zeros((2, len(tried)))
        for fold in range(folds.count):
            train = np.flatnonzero(folds.training(0, fold, 0))
            y, inner = right[train], inner_folds(right[train], cluster[train], INNER, [seed, 0, fold, 0])
            states = standardise(clean[train])[0]
            # all strengths at once: a step is then one product of matrices, not many of a matrix and a vector
            fitted = left_out(inner)
            strengths = np.repeat(tried, len(fitted))
            solved = solve(states @ states.T, y, np.tile(fitted, (len(tried), 1)), strengths)[2]
            for place, each in enumerate(np.split(solved, len(tried))):
                logits = _inner_logits(each, inner)
                temperature = fit_temperature(logits, y)
                sums[:, place] += balanced_log_loss(logits, y), balanced_log_loss(logits / temperature, y)
        return sums / folds.count

    with ThreadPoolExecutor(max(1, jobs)) as pool:
        curves = np.array(list(pool.map(losses, layers)))  # (layer, raw or calibrated, grid)
    best = tried[int(curves[:, 0].mean(axis=0).argmin())]
    return Strength(best, tried, tuple(layers), curves[:, 0], curves[:, 1])


def fit_layer(
    clean: FloatArray,
    labels: ArrayLike,
    clusters: ArrayLike,
    folds: Folds,
    strength: SupportsFloat,
    inner: int = INNER,
    seed: int = 0,
    parts: int = len(PARTS),
) -> LayerProbes:
    """Fit the probes of one layer on clean activations (sample, width), for every repeat, fold and part.

    `parts`: how many of PARTS; 1 fits on whole training sets alone.

    The temperature comes from inner folds of the part's own training samples. Their fits share the part's
    standardisation, which sees no label, and its C.
    """
    right, cluster = checked_labels(labels, clusters)
    clean = _checked_activations(clean, folds.fold.shape[1], "clean activations")
    shape = (folds.repeats, folds.count, parts)
    weight = np.empty((*shape, clean.shape[1]), np.float32)
    bias, temperature = np.empty(shape), np.empty(shape)
    for place in np.ndindex(*shape):
        train = np.flatnonzero(folds.training(*place))
        y, inner_fold = right[train], inner_folds(right[train], cluster[train], inner, [seed, *place])
        states, mean, scale = standardise(clean[train])
        fitted = np.concatenate([np.ones((1, len(train)), bool), left_out(inner_fold)])
        duals, intercepts, logits = solve(states @ states.T, y, fitted, float(strength))
        temperature[place] = fit_temperature(_inner_logits(logits[1:], inner_fold), y)
        weight[place] = (duals[0] @ states) * scale / temperature[place]
        # from the weights as stored, so that their rounding is not multiplied by a large mean
        bias[place] = intercepts[0] / temperature[place] - mean @ weight[place].astype(np.float64)
    return LayerProbes(weight, bias, temperature)


def standardise(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
    """Standardised x, the mean, and the inverse of the spread: 0 for a constant feature, which thus gets no weight."""
    mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    spread = np.sqrt(np.mean(centred * centred, axis=0, dtype=np.float64))
    varies = spread > CONSTANT * np.abs(mean)
    inverse = np.where(varies, 1 / np.where(varies, spread, 1), 0)
    centred *= inverse.astype(np.float32)
    return centred, mean.astype(np.float64), inverse


def _inner_logits(logits: FloatArray, inner_fold: NDArray[np.intp]) -> FloatArray:
    """(sample): each sample's logit by the inner fit that left it out, from (inner, sample)."""
    return logits[inner_fold, np.arange(len(inner_fold))].astype(np.float64)


def _checked_activations(x: FloatArray, samples: int, what: str) -> NDArray[np.float32]:
    if x.ndim != 2 or len(x) != samples:
        raise ProbeError(f"{what}: shape {x.shape}, but there are {samples} samples")
    if not np.isfinite(x).all():
        raise ProbeError(f"{what}: not all numbers are finite", "Run the model in bfloat16 or float32, not float16.")
    return x.astype(np.float32, copy=False)
