"""What each condition does to every read-out: as it is, without the common drift, or taken from another sample.

`permuted` adds to a clean read-out what the knockout does to another sample's, of another cluster: any shift flips
those near the boundary, and this is how far that goes. It needs no pass of the model. Both samples are read out of
fold, each by its own probe; where they are of one fold, it is the read-out of clean_i + (knockout_j − clean_j).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts


BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.integer[Any]]

FRACTIONS = {"quarter": 0.25, "half": 0.5, "three_quarters": 0.75, "last": 1.0}
ANCHORS = ("best", *FRACTIONS)
WHOLE = 0
DONOR_DRAWS = 5  # draws of donors that a permutation null is the mean of


@dataclass(frozen=True)
class Shift:
    """One condition against the clean pass, with or without drift correction."""

    flipped: BoolArray
    """(repeat, part, sample, layer): the predicted class is not that of the clean pass"""
    delta: FloatArray
    """(repeat, part, sample, layer): change of P(correct), in percentage points"""
    moved: FloatArray
    """(repeat, sample, layer): logits of the whole probes under the condition"""


@dataclass(frozen=True)
class Resampled:
    """The read-outs of one model, set and read point, ready to be split in every resample."""

    labels: BoolArray
    """(sample,)"""
    inverse: FloatArray
    """(sample,): 1 / sampling probability"""
    clean: FloatArray
    """(repeat, part, sample, layer): logits"""
    probability: FloatArray
    """(repeat, part, sample, layer): P of "correct" on the clean pass"""
    resamples: Resamples
    """How often each sample and each repeat counts."""
    anchors: dict[str, IntArray]
    """(resample,): layer at which the whole probes label"""
    half_anchors: dict[str, IntArray]
    """(resample, repeat, half): layer at which that half's probes label"""

    @cached_property
    def sides(self) -> tuple[tuple[BoolArray, FloatArray], ...]:
        """Who is right and who is wrong, each with their weights (sample, resample)."""
        return tuple((side, self.across[side]) for side in (self.labels, ~self.labels))

    @cached_property
    def across(self) -> FloatArray:
        """(sample, resample): the weights, a sample's side by side."""
        return np.ascontiguousarray(self.resamples.samples.T)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return int(self.clean.shape[-1])


def resampled(readouts: Readouts, resamples: Resamples, auroc: Auroc) -> Resampled:
    """Choose the anchor layers, anew in every resample of the samples: the interval then covers that choice too."""
    clean = readouts.logits[0].astype(np.float32)
    repeats, _, _, layers = clean.shape
    by_part = [[auroc(clean[repeat, part]) for part in range(3)] for repeat in range(repeats)]
    area = np.nan_to_num(np.asarray(by_part), nan=-1.0)  # (repeat, part, resample, layer)
    anchors: dict[str, IntArray] = {"best": area[:, WHOLE].mean(axis=0).argmax(axis=-1)}
    half_anchors: dict[str, IntArray] = {"best": np.moveaxis(area[:, 1:].argmax(axis=-1), -1, 0)}
    for name, fraction in FRACTIONS.items():
        layer = round((layers - 1) * fraction)
        anchors[name] = np.full(len(resamples), layer)
        half_anchors[name] = np.full((len(resamples), repeats, 2), layer)
    inverse = (1 / readouts.probability).astype(np.float32)
    labels = readouts.labels.astype(bool)
    return Resampled(labels, inverse, clean, expit(clean), resamples, anchors, half_anchors)


def shift_of(
    readouts: Readouts, base: Resampled, condition: str, correction: str, donors: IntArray | None = None
) -> Shift:
    """What a condition does to every read-out; with `donors` (sample), what it does to another sample's.

    The correction `drift` subtracts the mean over the training samples from it.
    """
    index = readouts.conditions.index(condition)
    change = readouts.logits[index].astype(np.float32) - base.clean
    if correction == "drift":
        change = change - readouts.drift[index].astype(np.float32)
    if donors is not None:
        change = change[:, :, donors]
    logits = base.clean + change
    flipped = (logits > 0) != (base.clean > 0)
    return Shift(flipped, 100 * (expit(logits) - base.probability), logits[:, WHOLE])


def make_donors(clusters: IntArray, seed: int, draws: int = DONOR_DRAWS) -> IntArray:
    """(draw, sample): for each sample another one, of another cluster; each sample is the donor of one.

    Clusters stand in random order in a circle, and a donor is at least as many places on as the largest has samples.
    """
    _, cluster = np.unique(clusters, return_inverse=True)
    largest, count = int(np.bincount(cluster).max()), len(cluster)
    if 2 * largest > count:
        raise ProbeError(
            "more than half of the samples are in one cluster, so some have no donor from another cluster",
            "Set a larger `sample` in the study.",
        )
    donors = np.empty((draws, count), np.int64)
    for draw in range(draws):
        rng = np.random.default_rng([seed, draw, 0xD0])
        order = np.lexsort((rng.permutation(count), rng.permutation(cluster.max() + 1)[cluster]))
        donors[draw, order] = np.roll(order, -int(rng.integers(largest, count - largest + 1)))
    return donors
