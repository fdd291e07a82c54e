"""One linear probe per layer: out of fold, calibrated, and once more on each half of the training questions.

A probe is a balanced logistic regression on activations standardised with clean training statistics, divided by a
temperature. No question that a probe was fitted, standardised or calibrated on is ever read out by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsFloat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anchorscope.errors import ProbeError
from anchorscope.probes.folds import PARTS, Folds, IntArray, checked_labels, inner_folds, left_out
from anchorscope.probes.logistic import BoolArray, FloatArray, balanced_log_loss, fit_temperature, fit_temperatures
from anchorscope.probes.probe import LayerProbes
from anchorscope.progress import Advance, uncounted

if TYPE_CHECKING:
    from anchorscope.probes.solver import Shared, Solved

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
    advance: Advance = uncounted,
) -> Strength:
    """One C for all layers: the least inner log-loss within the outer training sets of repeat 0, mean over layers.

    `read(layer)` gives clean activations (sample, width). `jobs` layers are worked on at a time, in threads.
    Every sample trains in some fold, so this one number has seen all labels, as nothing else in a read-out has.
    """
    right, cluster = checked_labels(labels, clusters)
    tried = tuple(sorted({float(c) for c in grid}))
    if not tried or tried[0] <= 0 or not layers:
        raise ProbeError("there are no layers, or no C above 0, to choose from", "Give at least one of each.")

    sets = [_TrainingSet.of((0, fold, 0), right, cluster, folds, INNER, seed) for fold in range(folds.count)]

    def losses(layer: int) -> FloatArray:  # (raw or calibrated, grid)
        clean = _checked_activations(read(layer), len(right), f"layer {layer}")
        problems = [
            (place, rows, c)
            for c in tried
            for place, training_set in enumerate(sets)
            for rows in training_set.inner_fits()
        ]
        solved = _solved(_shared(clean), right, sets, problems).logits.reshape(len(tried), -1, len(right))
        of_set = np.array([place for place, _, _ in problems[: solved.shape[1]]])
        sums = np.zeros((2, len(tried)))
        for place, training_set in enumerate(sets):
            logits = np.stack([training_set.inner_logits(one) for one in solved[:, of_set == place]])  # (grid, sample)
            y = right[training_set.rows]
            cooled = logits / fit_temperatures(logits, y)[:, None]
            for kind, readings in enumerate((logits, cooled)):
                sums[kind] += [balanced_log_loss(one, y) for one in readings]
        advance(1)
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
    places = list(np.ndindex(*shape))
    sets = [_TrainingSet.of(place, right, cluster, folds, inner, seed) for place in places]
    c = float(strength)
    shared = _shared(clean)
    solved = _solved(shared, right, sets, [(i, training_set.mask(), c) for i, training_set in enumerate(sets)])
    # inner fits begin where the whole one ended
    inner_fits = [(i, rows, c) for i, training_set in enumerate(sets) for rows in training_set.inner_fits()]
    of_set = np.array([i for i, _, _ in inner_fits])  # a set of few clusters may have fewer inner folds than others
    within = _solved(shared, right, sets, inner_fits, (solved.weight[of_set], solved.bias[of_set])).logits
    for i, (place, training_set) in enumerate(zip(places, sets, strict=True)):
        own = within[of_set == i]
        temperature[place] = fit_temperature(training_set.inner_logits(own), right[training_set.rows])
        weight[place] = solved.weight[i] / temperature[place]
        # from the weights as stored, so that their rounding is not multiplied by a large mean
        bias[place] = solved.bias[i] / temperature[place] - solved.middle @ weight[place].astype(np.float64)
    return LayerProbes(weight, bias, temperature)


class _TrainingSet(NamedTuple):
    """What the probes of one repeat, fold and part are fitted on."""

    rows: NDArray[np.intp]
    inner: NDArray[np.intp]
    """(its sample): the inner fold"""
    samples: int
    """Of all sets together."""

    @classmethod
    def of(
        cls, place: tuple[int, ...], right: BoolArray, cluster: IntArray, folds: Folds, inner: int, seed: int
    ) -> _TrainingSet:
        repeat, fold, part = place
        rows = np.flatnonzero(folds.training(repeat, fold, part))
        return cls(rows, inner_folds(right[rows], cluster[rows], inner, [seed, *place]), len(right))

    def mask(self, among: BoolArray | None = None) -> BoolArray:
        """(sample): who is in it; or in it and `among` its own samples."""
        mask = np.zeros(self.samples, bool)
        mask[self.rows if among is None else self.rows[among]] = True
        return mask

    def inner_fits(self) -> list[BoolArray]:
        """(sample) each: what is fitted on when each inner fold is left out."""
        return [self.mask(rows) for rows in left_out(self.inner)]

    def inner_logits(self, logits: FloatArray) -> FloatArray:
        """(its sample): the logit by the inner fit that left it out, from (inner, sample)."""
        return logits[self.inner, self.rows].astype(np.float64)


def _shared(clean: NDArray[np.float32]) -> Shared:
    from anchorscope.probes.solver import Shared  # with torch: not needed where read-outs are only read

    return Shared(clean)


def _solved(
    shared: Shared,
    right: BoolArray,
    sets: Sequence[_TrainingSet],
    problems: Sequence[tuple[int, BoolArray, float]],
    near: Sequence[NDArray[np.float64]] | None = None,
) -> Solved:
    """Problems as (training set, who is fitted on, C), solved together; `near`: weights, intercepts to begin with."""
    from anchorscope.probes.solver import Fits, Near

    of_set, fitted, c = zip(*problems, strict=True)
    training = np.stack([training_set.mask() for training_set in sets])
    fits = Fits(training, np.array(of_set), np.stack(fitted), np.array(c))
    return shared.solve(right, fits, None if near is None else Near(*near))


def standardise(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], FloatArray, FloatArray]:
    """Standardised x, the mean, and the inverse of the spread: 0 for a constant feature, which thus gets no weight."""
    mean = x.mean(axis=0, dtype=np.float64).astype(np.float32)
    centred = x - mean
    spread = np.sqrt(np.mean(centred * centred, axis=0, dtype=np.float64))
    varies = spread > CONSTANT * np.abs(mean)
    inverse = np.where(varies, 1 / np.where(varies, spread, 1), 0)
    centred *= inverse.astype(np.float32)
    return centred, mean.astype(np.float64), inverse


def _checked_activations(x: FloatArray, samples: int, what: str) -> NDArray[np.float32]:
    if x.ndim != 2 or len(x) != samples:
        raise ProbeError(f"{what}: shape {x.shape}, but there are {samples} samples")
    if not np.isfinite(x).all():
        raise ProbeError(
            f"{what}: not all numbers are finite", "Load the model with dtype: bfloat16 or float32, not float16."
        )
    return x.astype(np.float32, copy=False)
