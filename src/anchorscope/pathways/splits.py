"""Which samples are Q-Anchored and which A-Anchored, and what the knockout does to each group, in every resample.

A sample is Q-Anchored where a condition flips the class that a probe predicts, A-Anchored where it does not. Samples
are split at each layer (`layer`) or once, at an anchor layer (`anchor`), by the whole probes, whose repeats vote, or
with halves (`layer_half`, `anchor_half`), where one half's probes label and the other half's probes measure. With
halves each repeat and direction is a draw of its own, and group means are taken per draw and then averaged: a vote over
draws would bring the measuring half's noise back into the labels, because training sets of repeats overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from anchorscope.pathways.intervals import FloatArray, average
from anchorscope.pathways.record import Group
from anchorscope.pathways.shifts import WHOLE, BoolArray, IntArray, Resampled, Shift

STRATA = ("all", "predicted_correct", "predicted_wrong", "label_correct", "label_wrong")
GROUPS: tuple[Group, ...] = ("Q", "A", "all")
HALVES = (1, 2)


@dataclass(frozen=True)
class Labelling:
    """The labels of one draw in some resamples. The last axis of labels is the layer, or 1 for an anchor layer."""

    rows: IntArray
    """The resamples"""
    flipped: BoolArray
    """(sample, layer or 1)"""
    predicted: BoolArray
    """(sample, layer or 1)"""
    delta: FloatArray
    """(sample, layer), towards the class predicted on the clean pass"""

    def members(self, strata: tuple[str, ...], labels: BoolArray) -> FloatArray:
        """Who is in which stratum and group, at an anchor layer: (stratum, group, sample) of 0 and 1."""
        flipped, predicted = self.flipped[:, 0], self.predicted[:, 0]
        every = np.ones_like(flipped)
        masks = dict(zip(STRATA, (every, predicted, ~predicted, labels, ~labels), strict=True))
        groups = flipped, ~flipped, every
        return np.array([[masks[name] & group for group in groups] for name in strata], np.float32)


def _signs(predicted: BoolArray) -> FloatArray:
    """+1 or -1: P of the predicted class rises as P of "correct" does, or falls."""
    return np.where(predicted, np.float32(1), np.float32(-1))


def _at(anchor: int | None) -> slice:
    return slice(None) if anchor is None else slice(anchor, anchor + 1)


def _by_anchor(anchors: IntArray | None, resamples: int) -> Iterator[tuple[int | None, IntArray]]:
    """Each anchor layer in use with the resamples that use it; None for a split at each layer."""
    if anchors is None:
        yield None, np.arange(resamples)
        return
    for layer in np.unique(anchors):
        yield int(layer), np.flatnonzero(anchors == layer)


def whole_labellings(base: Resampled, shift: Shift, anchors: IntArray | None, repeat: int) -> Iterator[Labelling]:
    """Labels by the whole probes, on which all repeats vote; effects by those of one repeat, towards its own ŷ.

    The vote is held over all repeats in every resample. A resample's own repeats, fewer of them distinct, would vote
    more noisily than the data do, and select more: one value in four would lie outside its own interval.
    """
    for anchor, rows in _by_anchor(anchors, len(base.resamples)):
        at = _at(anchor)
        flipped = 2 * shift.flipped[:, WHOLE, :, at].sum(axis=0) >= len(base.clean)
        predicted = base.probability[:, WHOLE, :, at].mean(axis=0) >= 0.5
        delta = _signs(base.clean[repeat, WHOLE][:, at] > 0) * shift.delta[repeat, WHOLE]
        yield Labelling(rows, flipped, predicted, delta)


def half_labellings(
    base: Resampled, shift: Shift, anchors: IntArray | None, repeat: int, half: int
) -> Iterator[Labelling]:
    """One draw: labels by the probes of one half, effects by the probes of the other."""
    other = sum(HALVES) - half
    by_resample = None if anchors is None else anchors[:, repeat, half - 1]
    for anchor, rows in _by_anchor(by_resample, len(base.resamples)):
        predicted = base.clean[repeat, half][:, _at(anchor)] > 0
        delta = _signs(predicted) * shift.delta[repeat, other]
        yield Labelling(rows, shift.flipped[repeat, half][:, _at(anchor)], predicted, delta)


@dataclass(frozen=True)
class Split:
    """The groups of one split, in every resample. Last axis: the layer, or 1 for shares at an anchor."""

    mean: FloatArray
    """(stratum, group, resample, layer)"""
    share: FloatArray
    """(stratum, group, resample, layer or 1), weighted by 1 / sampling probability"""
    size: FloatArray
    """(stratum, group, layer or 1): samples in the data as they are, mean over draws"""


def split(base: Resampled, shift: Shift, anchor: str | None, halves: bool, strata: tuple[str, ...]) -> Split:
    """Split by one condition's flips, at each layer (`anchor` None) or at an anchor layer."""
    chosen = base.half_anchors if halves else base.anchors
    anchors = None if anchor is None else chosen[anchor]
    total = _Total()
    for repeat in range(len(base.clean)):
        if halves:
            draws = [half_labellings(base, shift, anchors, repeat, half) for half in HALVES]
        else:
            draws = [whole_labellings(base, shift, anchors, repeat)]
        for labellings in draws:
            total.add(_one_draw(base, labellings, strata), base.resamples.repeats[:, repeat])
    return total.split()


class Sums(NamedTuple):
    """Sums over the samples of groups: (stratum, group, layer or 1, resample), a group's resamples side by side."""

    number: FloatArray
    """How many samples."""
    inverse: FloatArray
    """Their 1 / sampling probability."""
    effect: FloatArray
    """What the condition does to them."""


def _one_draw(base: Resampled, labellings: Iterator[Labelling], strata: tuple[str, ...]) -> Sums:
    """The sums of one draw. Each of its labellings holds in some resamples; together they are all resamples."""
    parts: list[tuple[IntArray, Sums]] = []
    for labelling in labellings:
        by_layer = labelling.flipped.shape[1] == base.layers
        sums_of = _sums_by_layer if by_layer else _sums_at_anchor
        parts.append((labelling.rows, sums_of(base, labelling, strata)))
    if len(parts) == 1:
        return parts[0][1]
    whole = Sums(*(np.empty((*array.shape[:-1], len(base.resamples)), np.float32) for array in parts[0][1]))
    for rows, sums in parts:
        for every, values in zip(whole, sums, strict=True):
            every[..., rows] = values
    return whole


def _sums_by_layer(base: Resampled, labelling: Labelling, strata: tuple[str, ...]) -> Sums:
    """For a label at every layer: right and wrong answers by predicted class and flip, in one product of matrices."""
    # 1. what is summed up of each sample, side by side: 1, its 1 / probability, and its effect
    samples, layers = labelling.flipped.shape
    columns = np.empty((samples, 3, layers), np.float32)
    columns[:, 0], columns[:, 1], columns[:, 2] = 1, base.inverse[:, None], labelling.delta
    # 2. each of them in the place of the sample's predicted class and flip, 0 in the others
    classes = labelling.predicted, ~labelling.predicted
    atoms = [one & flip for one in classes for flip in (labelling.flipped, ~labelling.flipped)]
    placed = np.stack(atoms, axis=1)[:, :, None] * columns[:, None]  # (sample, class × flip, column, layer)
    # 3. summed up in every resample, of right and wrong answers apart if a stratum asks for it
    sides = base.sides if set(strata) & set(STRATA[3:]) else ((slice(None), base.across),)
    summed = [placed[side].reshape(len(counts), -1).T @ counts for side, counts in sides]
    by_side = np.stack(summed).reshape(len(summed), 2, 2, *columns.shape[1:], -1)
    # 4. classes and sides to strata: (flip, column, layer, resample) each
    by_class = by_side.sum(axis=0)
    of = dict(zip(STRATA, (by_class.sum(axis=0), *by_class, *by_side.sum(axis=1)), strict=False))
    sums = np.empty((columns.shape[1], len(strata), len(GROUPS), layers, by_side.shape[-1]), np.float32)
    for place, name in enumerate(strata):
        flipped, stayed = of[name]
        sums[:, place, 0], sums[:, place, 1] = flipped, stayed
        np.add(flipped, stayed, out=sums[:, place, 2])
    return Sums(*sums)


def _sums_at_anchor(base: Resampled, labelling: Labelling, strata: tuple[str, ...]) -> Sums:
    """For one label per sample: each sample is in one atom, and strata and groups are unions of atoms.

    So each sample is multiplied once and not once for every stratum and group it may be in.
    """
    # 1. atoms: samples that are in the same strata and groups
    members = labelling.members(strata, base.labels).reshape(-1, len(base.labels))  # (stratum × group, sample)
    code = 2 ** np.arange(len(members)) @ members  # (sample): in which of them it is, as the digits of a number
    _, first, atom = np.unique(code, return_index=True, return_inverse=True)
    # 2. what is summed up of each sample, side by side: 1, its 1 / probability, and its effect at each layer
    columns = np.vstack([np.ones_like(base.inverse), base.inverse, labelling.delta.T]).T  # (sample, column)
    # 3. summed up for each atom in every resample: samples of an atom side by side, so that each is a slice
    order = np.argsort(atom, kind="stable")
    ordered = base.across[order]  # (sample, resample)
    if len(labelling.rows) < len(base.resamples):
        ordered = ordered[:, labelling.rows]
    columns, ends = columns[order], np.searchsorted(atom[order], np.arange(len(first) + 1))
    slices = [slice(*bounds) for bounds in pairwise(ends)]
    by_atom = np.stack([columns[rows].T @ ordered[rows] for rows in slices])  # (atom, column, resample)
    # 4. and atoms to strata and groups
    of_atoms = members[:, first].reshape(len(strata), len(GROUPS), -1)
    sums = np.einsum("sga,acr->csgr", of_atoms, by_atom, optimize=True)  # (column, stratum, group, resample)
    return Sums(sums[0, :, :, None], sums[1, :, :, None], np.moveaxis(sums[2:], 0, -2))


class _Total:
    """The mean over draws; a draw in which a group is empty is left out of that group's mean."""

    def __init__(self) -> None:
        self._sums: list[Any] = [0.0, 0.0]
        self._weights: list[Any] = [0.0, 0.0]
        self._sizes: list[FloatArray] = []

    def add(self, draw: Sums, weight: FloatArray) -> None:
        """A draw, whose weight is (resample)."""
        of_means, of_shares = (draw.effect, draw.number), (draw.inverse, draw.inverse[:, 2:])
        for index, (sums, counts) in enumerate((of_means, of_shares)):
            there = counts > 0
            self._sums[index] += sums * np.divide(weight, counts, out=np.zeros_like(counts), where=there)
            self._weights[index] += there * weight
        self._sizes.append(draw.number[..., 0].copy())

    def split(self) -> Split:
        mean, share = (_ratio(sums, weights) for sums, weights in zip(self._sums, self._weights, strict=True))
        return Split(mean.swapaxes(-1, -2), share.swapaxes(-1, -2), np.mean(self._sizes, axis=0))


def _ratio(sums: FloatArray, counts: FloatArray) -> FloatArray:
    """Undefined (nan) where a group is empty in all draws."""
    ratio: FloatArray = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    return ratio


def mean_split(splits: Sequence[Split]) -> Split:
    """The mean over draws of donors; a draw in which a group is empty is left out of that group's mean."""
    if len(splits) == 1:
        return splits[0]
    alike = np.ones(1, np.float32)
    mean, share = (average(np.stack(draws), alike) for draws in zip(*((s.mean, s.share) for s in splits), strict=True))
    return Split(mean, share, np.mean([draw.size for draw in splits], axis=0))


def kappa(base: Resampled, shift: Shift, anchor: str | None) -> FloatArray:
    """Cohen's kappa between the labels of the two halves, mean over repeats: (resample, layer or 1).

    A repeat in which both halves give all samples one and the same label has no kappa and is left out.
    """
    weights = base.resamples.samples
    repeats = range(base.clean.shape[0])
    if anchor is None:
        by_repeat = [cohens_kappa(shift.flipped[repeat, 1], shift.flipped[repeat, 2], weights) for repeat in repeats]
        return average(np.stack(by_repeat), base.resamples.repeats.T[:, :, None])
    by_repeat = []
    for repeat in repeats:
        layers = base.half_anchors[anchor][:, repeat]  # (resample, half): each half's own
        values = np.empty((len(weights), 1))
        for first, second in np.unique(layers, axis=0):
            rows = (layers == (first, second)).all(axis=1)
            one, two = shift.flipped[repeat, 1][:, _at(first)], shift.flipped[repeat, 2][:, _at(second)]
            values[rows] = cohens_kappa(one, two, weights[rows])
        by_repeat.append(values)
    return average(np.stack(by_repeat), base.resamples.repeats.T[:, :, None])


def cohens_kappa(first: BoolArray, second: BoolArray, weights: FloatArray) -> FloatArray:
    """How far two labels of the same samples agree beyond chance: (resample, layer), labels (sample, layer) each."""
    total = weights.sum(axis=1, keepdims=True, dtype=np.float64)
    masks = np.concatenate([first, second, first & second], axis=1).astype(np.float32)
    ones, twos, both = np.split((weights @ masks) / total, 3, axis=1)
    agreed = 1 - ones - twos + 2 * both
    expected = ones * twos + (1 - ones) * (1 - twos)
    # Shares are quotients of whole numbers: `expected` is 1 exactly where both halves give one and the same label.
    value: FloatArray = np.divide(
        agreed - expected, 1 - expected, out=np.full(agreed.shape, np.nan), where=expected < 1
    )
    return value
