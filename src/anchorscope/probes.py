"""One linear probe per layer: out of fold, calibrated, and once more on each half of the training questions.

A probe is a balanced logistic regression on activations standardised with clean training statistics, divided by a
temperature. No question that a probe was fitted, standardised or calibrated on is ever read out by it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from anchorscope.errors import ProbeError
from anchorscope.logistic import BoolArray, FloatArray, balanced_log_loss, fit_temperature, solve
from anchorscope.table import write_whole

IntArray = NDArray[np.int64]

PARTS = ("whole", "first_half", "second_half")
GRID = tuple(float(c) for c in np.logspace(-4, 0, 7))
INNER = 3
CONSTANT = 1e-6  # spread relative to the mean below which a feature only carries float32's rounding


@dataclass(frozen=True)
class Folds:
    """Which samples test a probe, and which half they belong to when they train one."""

    fold: NDArray[np.int8]  # (repeat, sample): in which fold the sample is tested
    half: NDArray[np.int8]  # (repeat, sample): 1 or 2

    @property
    def repeats(self) -> int:
        """How often folds and halves were drawn."""
        return len(self.fold)

    @property
    def count(self) -> int:
        """Folds per repeat."""
        return int(self.fold.max()) + 1

    def training(self, repeat: int, fold: int, part: int) -> BoolArray:
        """(sample): which samples the probe of this fold and part is fitted on."""
        mask: BoolArray = self.fold[repeat] != fold
        return mask if part == 0 else mask & (self.half[repeat] == part)


@dataclass(frozen=True)
class Strength:
    """The regularisation all layers share, and the curve it was chosen by."""

    value: float  # scikit-learn's C
    grid: tuple[float, ...]
    layers: tuple[int, ...]
    log_loss: FloatArray  # (layer, grid): inner, prior 0.5, without a temperature; its mean over layers decides
    calibrated: FloatArray  # (layer, grid): the same after a temperature, for the record

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


@dataclass(frozen=True)
class LayerProbes:
    """The probes of one layer. Standardisation and temperature are folded in: a read-out is x @ weight + bias."""

    weight: NDArray[np.float32]  # (repeat, fold, part, width)
    bias: NDArray[np.float64]  # (repeat, fold, part)
    temperature: NDArray[np.float64]  # (repeat, fold, part): what was divided by, for the record


def make_folds(labels: ArrayLike, clusters: ArrayLike, repeats: int = 5, folds: int = 5, seed: int = 0) -> Folds:
    """Deal the samples to folds and halves, anew in each repeat; a cluster is never split over either."""
    right, cluster = _checked(labels, clusters)
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
        for each in range(folds):
            of_fold = np.flatnonzero(fold[repeat] == each)
            dealt = _deal(counts[of_fold], 2, rng, so_far)
            half[repeat, of_fold] = dealt + 1
            so_far += [counts[of_fold[dealt == side]].sum(axis=0) for side in range(2)]
    made = Folds(fold[:, cluster], half[:, cluster])
    _check_halves(Folds(fold, half), counts)
    return made


def _check_halves(by_cluster: Folds, counts: IntArray) -> None:
    """Each half must hold both classes even when an inner fold is left out: at least two clusters of each."""
    for repeat in range(by_cluster.repeats):
        for fold in range(by_cluster.count):
            for part in (1, 2):
                fewest = int((counts[by_cluster.training(repeat, fold, part)] > 0).sum(axis=0).min())
                if fewest < 2:
                    wrong, right = (int(number) for number in (counts > 0).sum(axis=0))
                    raise ProbeError(
                        f"too few questions to halve the training sets: {right} with a correct answer, {wrong} with a "
                        f"wrong one, of which some half would hold {fewest}",
                        "Sample more questions (at least ten of either kind, better a hundred), or use fewer folds.",
                    )


def _deal(counts: IntArray, bins: int, rng: np.random.Generator, before: FloatArray | None = None) -> NDArray[np.intp]:
    """(cluster): a bin for each cluster, so that every bin gets its share of both classes.

    `counts` is (cluster, class). Large clusters go first, equal ones in random order, each to the bin where it adds
    least to the sum over bins and classes of (share of the class)². Ties go by `before`, what the bins (bin, class)
    already hold from elsewhere.
    """
    order = rng.permutation(len(counts))
    order = order[np.argsort(-counts[order].sum(axis=1), kind="stable")]
    scaled = (counts / np.maximum(counts.sum(axis=0), 1) ** 2.0).tolist()
    held = ((before if before is not None else np.zeros((bins, 2))) * 1e-6).tolist()  # less than any sample weighs
    sizes, dealt = counts.tolist(), np.empty(len(counts), np.intp)
    for cluster in order.tolist():
        wrong, right = scaled[cluster]
        costs = [load[0] * wrong + load[1] * right for load in held]
        chosen = costs.index(min(costs))
        held[chosen][0] += sizes[cluster][0]
        held[chosen][1] += sizes[cluster][1]
        dealt[cluster] = chosen
    return dealt


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
    right, cluster = _checked(labels, clusters)
    tried = tuple(sorted({float(c) for c in grid}))
    if not tried or tried[0] <= 0 or not layers:
        raise ProbeError("no layers, or no C above 0, to choose from", "Give at least one of each.")

    def losses(layer: int) -> FloatArray:  # (raw or calibrated, grid)
        clean = _checked_activations(read(layer), len(right), f"layer {layer}")
        found = np.zeros((2, len(tried)))
        for fold in range(folds.count):
            train = np.flatnonzero(folds.training(0, fold, 0))
            y, inner = right[train], _inner_folds(right[train], cluster[train], INNER, [seed, 0, fold, 0])
            states = _standardise(clean[train])[0]
            # all strengths at once: a step is then one product of matrices, not many of a matrix and a vector
            fitted = _left_out(inner)
            strengths = np.repeat(tried, len(fitted))
            solved = solve(states @ states.T, y, np.tile(fitted, (len(tried), 1)), strengths)[2]
            for place, each in enumerate(np.split(solved, len(tried))):
                logits = _inner_logits(each, inner)
                temperature = fit_temperature(logits, y)
                found[:, place] += balanced_log_loss(logits, y), balanced_log_loss(logits / temperature, y)
        return found / folds.count

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
) -> LayerProbes:
    """Fit the probes of one layer on clean activations (sample, width), for every repeat, fold and part.

    The temperature comes from inner folds of the part's own training samples. Their fits share the part's
    standardisation, which sees no label, and its C.
    """
    right, cluster = _checked(labels, clusters)
    clean = _checked_activations(clean, folds.fold.shape[1], "clean activations")
    shape = (folds.repeats, folds.count, len(PARTS))
    weight = np.empty((*shape, clean.shape[1]), np.float32)
    bias, temperature = np.empty(shape), np.empty(shape)
    for place in np.ndindex(*shape):
        train = np.flatnonzero(folds.training(*place))
        y, inner_fold = right[train], _inner_folds(right[train], cluster[train], inner, [seed, *place])
        states, mean, scale = _standardise(clean[train])
        fitted = np.concatenate([np.ones((1, len(train)), bool), _left_out(inner_fold)])
        duals, intercepts, logits = solve(states @ states.T, y, fitted, float(strength))
        temperature[place] = fit_temperature(_inner_logits(logits[1:], inner_fold), y)
        weight[place] = (duals[0] @ states) * scale / temperature[place]
        # from the weights as stored, so that their rounding is not multiplied by a large mean
        bias[place] = intercepts[0] / temperature[place] - mean @ weight[place].astype(np.float64)
    return LayerProbes(weight, bias, temperature)


def save_probes(stem: Path, layers: Sequence[LayerProbes], record: dict[str, Any]) -> None:
    """Write `<stem>.safetensors`, and then `<stem>.json` with the record: where that is, both are whole."""
    about = _with_suffix(stem, ".json")
    about.unlink(missing_ok=True)
    names = ("weight", "bias", "temperature")
    tensors = {name: np.stack([getattr(layer, name) for layer in layers]) for name in names}  # (layer, …)
    content = save(tensors)
    write_whole(_with_suffix(stem, ".safetensors"), lambda stream: _write(stream, content))
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_whole(about, lambda stream: _write(stream, text.encode("utf-8")))


def load_probes(stem: Path) -> tuple[list[LayerProbes], dict[str, Any]]:
    """The probes of all layers and their record, as `save_probes` wrote them."""
    try:
        record: dict[str, Any] = json.loads(_with_suffix(stem, ".json").read_text(encoding="utf-8"))
        found = load_file(_with_suffix(stem, ".safetensors"))
        weight, bias, temperature = found["weight"], found["bias"], found["temperature"]
        if weight.ndim != 5 or not weight.shape[:4] == bias.shape == temperature.shape:
            raise ValueError("the shapes do not fit together")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise ProbeError(f"{stem}: no probes that can be read ({error})", "Fit them again.") from None
    return [LayerProbes(*each) for each in zip(weight, bias, temperature, strict=True)], record


def _with_suffix(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)  # with_suffix would take the end of a name such as "qwen3-0.6b" off


def _write(stream: Any, content: bytes) -> None:
    stream.write(content)


def _standardise(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
    """Standardised x, the mean, and the inverse of the spread: 0 for a constant feature, which thus gets no weight."""
    mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    spread = np.sqrt(np.mean(centred * centred, axis=0, dtype=np.float64))
    varies = spread > CONSTANT * np.abs(mean)
    inverse = np.where(varies, 1 / np.where(varies, spread, 1), 0)
    centred *= inverse.astype(np.float32)
    return centred, mean.astype(np.float64), inverse


def _inner_folds(right: BoolArray, cluster: IntArray, inner: int, key: list[int]) -> NDArray[np.intp]:
    """(sample): inner folds of one part's training samples; no cluster is split."""
    groups = np.unique(cluster, return_inverse=True)[1]
    inner_fold = _deal(_class_counts(right, groups), inner, np.random.default_rng(key))[groups]
    for rows in _left_out(inner_fold):
        if not 0 < right[rows].sum() < rows.sum():
            raise ProbeError("an inner fold leaves only one class to fit on", "Sample more questions.")
    return inner_fold


def _left_out(inner_fold: NDArray[np.intp]) -> BoolArray:
    """(inner, sample): what is fitted on when each inner fold is left out."""
    left: BoolArray = inner_fold != np.arange(inner_fold.max() + 1)[:, None]
    return left


def _inner_logits(logits: FloatArray, inner_fold: NDArray[np.intp]) -> FloatArray:
    """(sample): each sample's logit by the inner fit that left it out, from (inner, sample)."""
    return logits[inner_fold, np.arange(len(inner_fold))].astype(np.float64)


def _class_counts(right: BoolArray, cluster: IntArray) -> IntArray:
    """(cluster, class): how many samples of either class a cluster has."""
    total = np.bincount(cluster)
    correct = np.bincount(cluster[right], minlength=len(total))
    return np.stack([total - correct, correct], axis=1)


def _checked(labels: ArrayLike, clusters: ArrayLike) -> tuple[BoolArray, IntArray]:
    """Labels as booleans, clusters numbered from 0."""
    label, cluster = np.asarray(labels), np.asarray(clusters)
    if label.ndim != 1 or label.shape != cluster.shape:
        raise ProbeError(f"labels {label.shape} and clusters {cluster.shape} must be one per sample")
    right = label.astype(bool)
    if (right != label).any() or not 0 < right.sum() < len(right):
        raise ProbeError("labels must be 0 or 1, and both must occur", "Sample correct and wrong answers.")
    return right, np.unique(cluster, return_inverse=True)[1].astype(np.int64)


def _checked_activations(x: FloatArray, samples: int, what: str) -> NDArray[np.float32]:
    if x.ndim != 2 or len(x) != samples:
        raise ProbeError(f"{what}: shape {x.shape}, but there are {samples} samples")
    if not np.isfinite(x).all():
        raise ProbeError(f"{what}: not all numbers are finite", "Run the model in bfloat16 or float32, not float16.")
    return x.astype(np.float32, copy=False)
