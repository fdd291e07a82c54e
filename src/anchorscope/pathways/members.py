"""Which samples stand behind a number: who is sorted into Q at which layer, by which rule.

For tables by sample and for pages on which a number opens its samples. Groups by the whole probes are those of the
`pathways` table to the sample. With halves every draw sorts anew and the table averages over draws: here a sample is in
the group that most draws put it in, so counts come near to the table's and are not the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.pathways.effects import check
from anchorscope.pathways.intervals import Auroc, FloatArray, resample
from anchorscope.pathways.shifts import WHOLE, BoolArray, Resampled, resampled, shift_of

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts


@dataclass(frozen=True)
class Flips:
    """Who is flipped by one condition, read with one correction."""

    layer: BoolArray
    """(sample, layer): by the whole probes at that layer, at least half of the repeats"""
    half: BoolArray
    """(sample, layer): by half probes at that layer, at least half of the draws"""
    anchor_half: BoolArray
    """(sample,): by half probes, each draw at its own best layer, at least half of the draws"""


@dataclass(frozen=True)
class Members:
    """The samples of one model, set and read point, sorted."""

    anchor_layer: int
    """Where the whole probes rank best: the split `anchor` labels there."""
    probability: FloatArray
    """(sample, layer): P of "correct" on the clean pass, mean over repeats; predicted correct from 0.5 on"""
    flips: dict[tuple[str, str], Flips]
    """By condition and correction."""


def members(readouts: Readouts, asked: Sequence[tuple[str, str]]) -> Members:
    """Sort the samples, under each condition and correction that is asked for and was read."""
    check(readouts)
    one = resample(readouts.clusters, readouts.repeats, resamples=0, seed=0)
    base = resampled(readouts, one, Auroc(readouts.labels.astype(bool), one.samples))
    flips = {
        (condition, correction): _flips(readouts, base, condition, correction)
        for condition, correction in asked
        if condition in readouts.conditions
    }
    return Members(int(base.anchors["best"][0]), base.probability[:, WHOLE].mean(axis=0), flips)


def _flips(readouts: Readouts, base: Resampled, condition: str, correction: str) -> Flips:
    flipped = shift_of(readouts, base, condition, correction).flipped  # (repeat, part, sample, layer)
    halves = flipped[:, 1:]
    layers = base.half_anchors["best"][0]  # (repeat, half)
    own = np.take_along_axis(halves, layers[:, :, None, None], axis=3)[..., 0]  # (repeat, half, sample)
    return Flips(flipped[:, WHOLE].mean(axis=0) >= 0.5, halves.mean(axis=(0, 1)) >= 0.5, own.mean(axis=(0, 1)) >= 0.5)
