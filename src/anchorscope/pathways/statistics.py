"""Pathways: how far each condition moves the read-outs of the Q-Anchored and the A-Anchored, with intervals.

One call makes all rows of the `pathways` table for one model, set and read point. splits.py says who belongs to
which group, intervals.py how intervals are made; here the numbers are named, subtracted from each other, written down.
Differences between groups and between conditions are taken within each resample, so their intervals are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples, average, interval, resample
from anchorscope.pathways.record import Key, Origin, Statistic
from anchorscope.pathways.splits import (
    ANCHORS,
    GROUPS,
    MEASURES,
    STRATA,
    WHOLE,
    BoolArray,
    Resampled,
    Shift,
    Split,
    kappa,
    resampled,
    shift_of,
    split,
)

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts


MIN_GROUP = 30  # samples; a smaller group is "too few", not a line
CORRECTIONS = ("none", "drift")
DIFFERENCES = (
    ("matched_question", "control_question"),
    ("matched_random", "control_random"),
    ("knockout", "control_question"),
    ("knockout", "control_random"),
)
# Strata other than `all` are kept for these conditions only, which bounds the time and the size of the table.
STRATIFIED = ("knockout", "matched_question", "control_question")
DIFFERENCE_STRATA = STRATA[:3]  # by predicted class; differences alone are kept in these strata for all pairs


@dataclass(frozen=True)
class Series:
    """One statistic at all its layers, in every resample: what rows of the table are made of."""

    key: Key
    """What it measures."""
    replicates: FloatArray
    """(1 + resample, layer or 1): row 0 is the value"""
    size: FloatArray
    """(layer or 1,): samples behind it, mean over draws"""
    by_layer: bool = True
    """Whether it belongs to layers; else it is one number."""

    def minus(self, other: Series, **named: str) -> Series:
        """The difference within each resample, of the smaller side's size; `named`: what it is called."""
        replicates, size = self.replicates - other.replicates, np.minimum(self.size, other.size)
        return replace(self, key=self.key._replace(**named), replicates=replicates, size=size)

    def rows(self, origin: Origin) -> Iterator[Statistic]:
        """A row for each layer; without numbers where the group is too small."""
        low, high = interval(self.replicates[1:])
        for index, value in enumerate(self.replicates[0]):
            size = float(self.size[index])
            number, lower, upper = (
                None if size < MIN_GROUP or not np.isfinite(x) else float(x) for x in (value, low[index], high[index])
            )
            layer = index if self.by_layer else -1
            # the size is rounded down: a group of 29.6 is too small, and says 29
            yield Statistic.of(origin, self.key, layer, (number, lower, upper), int(size))


def pathways(readouts: Readouts, origin: Origin, resamples: int = 1000, seed: int = 0) -> list[Statistic]:
    """All rows of the `pathways` table for one cell. The same read-outs and seed give the same rows."""
    _check(readouts)
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    return [row for one in series(readouts, drawn) for row in one.rows(origin)]


def _check(readouts: Readouts) -> None:
    if "knockout" not in readouts.conditions:
        raise ProbeError(f"pathways need read-outs of the knockout, not only of {', '.join(readouts.conditions)}")
    if readouts.labels.all() or not readouts.labels.any():
        raise ProbeError("pathways need correct and wrong answers; here all are alike", "Take more questions.")


def series(readouts: Readouts, resamples: Resamples) -> Iterator[Series]:
    """Every statistic of a cell, in every resample."""
    auroc = Auroc(readouts.labels.astype(bool), resamples.samples)
    base = resampled(readouts, resamples, auroc)
    shifts = {
        (condition, correction): shift_of(readouts, base, condition, correction)
        for condition in readouts.conditions[1:]
        for correction in CORRECTIONS
    }
    yield from _unsplit(readouts, base, shifts, auroc)
    for anchor, halves, correction in product((None, *ANCHORS), (False, True), CORRECTIONS):
        chosen = {condition: shift for (condition, name), shift in shifts.items() if name == correction}
        yield from _split(base, chosen, correction, anchor, halves)
    yield from _anchor_layers(base)


def _unsplit(
    readouts: Readouts, base: Resampled, shifts: dict[tuple[str, str], Shift], auroc: Auroc
) -> Iterator[Series]:
    """All samples together, by the whole probes: AUROC, and the mean effect towards ŷ of the layer."""
    size = np.full(base.layers, len(base.labels), float)
    clean = Series(Key("auroc", "clean"), mean_auroc(base, base.clean, auroc), size)
    yield clean
    for correction in CORRECTIONS:
        effects: dict[tuple[str, str], Series] = {}
        for condition in readouts.conditions[1:]:
            shift = shifts[condition, correction]
            key = Key("auroc", condition, correction=correction)
            ranked = Series(key, mean_auroc(base, base.clean + shift.delta[1], auroc), size)
            yield ranked
            effects[condition, "delta_auroc"] = ranked.minus(clean, statistic="delta_auroc")
            for measure, replicates in zip(MEASURES, _mean_delta(base, shift), strict=True):
                effects[condition, measure] = Series(key._replace(statistic=measure), replicates, size)
        yield from effects.values()
        yield from _differences(effects, readouts.conditions)


def _differences(effects: dict[tuple[str, str], Series], conditions: Sequence[str]) -> Iterator[Series]:
    """The first condition minus the second, for everything that was measured under both."""
    for first, second in DIFFERENCES:
        if first in conditions and second in conditions:
            for (condition, what), one in effects.items():
                if condition == first and (second, what) in effects:
                    yield one.minus(effects[second, what], condition=f"{first}-{second}")


def mean_auroc(base: Resampled, logits: FloatArray, auroc: Auroc) -> FloatArray:
    """AUROC of the whole probes, mean over repeats: (resample, layer)."""
    by_repeat = np.stack([auroc(repeat[WHOLE]) for repeat in logits])
    return average(by_repeat, base.resamples.repeats.T[:, :, None])


def _mean_delta(base: Resampled, shift: Shift) -> FloatArray:
    """Mean effect over all samples, ŷ of the layer, whole probes: (measure, resample, layer)."""
    weights = base.resamples.samples
    sign = np.where(base.clean[:, WHOLE] > 0, np.float32(1), np.float32(-1))
    means = weights @ (sign * shift.delta[:, :, WHOLE]) / weights.sum(axis=1, keepdims=True)
    votes = base.resamples.repeats / base.resamples.repeats.shape[1]
    total: FloatArray = np.einsum("mrbl,br->mbl", means, votes)
    return total


def _anchor_layers(base: Resampled) -> Iterator[Series]:
    """Where the labels are taken; with halves the mean over draws."""
    size = np.array([float(len(base.labels))])
    votes = base.resamples.repeats / (2 * base.resamples.repeats.shape[1])
    for anchor in ANCHORS:
        whole = base.anchors[anchor][:, None].astype(float)
        half = np.einsum("brh,br->b", base.half_anchors[anchor], votes)[:, None]
        for name, replicates in (("anchor", whole), ("anchor_half", half)):
            yield Series(Key("anchor_layer", "clean", name, anchor), replicates, size, by_layer=False)


def _split(
    base: Resampled, shifts: dict[str, Shift], correction: str, anchor: str | None, halves: bool
) -> Iterator[Series]:
    """All statistics of one split."""
    name = ("layer" if anchor is None else "anchor") + ("_half" if halves else "")
    effects: dict[tuple[str, str], Series] = {}
    for condition, shift in shifts.items():
        key = Key("", condition, name, anchor or "none", correction)
        strata = STRATA if condition in STRATIFIED else DIFFERENCE_STRATA
        groups = split(base, shift, anchor, halves, strata)
        for one in _of_groups(key, groups, strata, base.layers):
            if one.key.stratum == "all" or condition in STRATIFIED:
                yield one
            if one.key.stratum in DIFFERENCE_STRATA:
                effects[condition, f"{one.key.stratum} {one.key.group} {one.key.statistic}"] = one
        if halves:
            replicates = kappa(base, shift, anchor)
            size = np.full(replicates.shape[1], len(base.labels), float)
            yield Series(key._replace(statistic="kappa"), replicates, size, by_layer=anchor is None)
    yield from _differences(effects, list(shifts))


def _of_groups(key: Key, groups: Split, strata: Sequence[str], layers: int) -> Iterator[Series]:
    """Means and shares of each stratum's groups, and Q minus A."""
    for index, stratum in enumerate(strata):
        key = key._replace(stratum=stratum)
        size = dict(zip(GROUPS, groups.size[index], strict=True))
        for measure, mean in zip(MEASURES, groups.mean[:, index], strict=True):
            q, a, both = (
                Series(
                    key._replace(group=group, statistic=measure),
                    mean[at],
                    np.broadcast_to(size[group], (layers,)),
                )
                for at, group in enumerate(GROUPS)
            )
            yield from (q, a, q.minus(a, group="Q-A"))
            if key.split == "layer_half":  # the effect on all samples, ŷ chosen by probes that do not measure it
                yield both
        for at, group in enumerate(GROUPS[:2]):
            share = key._replace(group=group, statistic="share")
            yield Series(share, groups.share[index, at], size["all"], by_layer=key.anchor == "none")


@dataclass(frozen=True)
class Memberships:
    """On which pathway each sample's read-out rests, by the whole probes at the best anchor layer."""

    anchor_layer: int
    """At which layer."""
    flipped: FloatArray
    """(sample,): share of repeats in which the condition flips the predicted class"""
    question: BoolArray
    """(sample,): Q-Anchored, that is flipped in at least half of the repeats"""
    predicted: BoolArray
    """(sample,): class predicted on the clean pass, mean P over repeats at least 0.5"""
    probability: FloatArray
    """(sample,): that mean P"""


def memberships(readouts: Readouts, condition: str = "knockout", correction: str = "none") -> Memberships:
    """The pathway of each sample; for counts and tables by sample, not for effects: these labels have no halves."""
    _check(readouts)
    one = resample(readouts.clusters, readouts.repeats, resamples=0, seed=0)
    base = resampled(readouts, one, Auroc(readouts.labels.astype(bool), one.samples))
    layer = int(base.anchors["best"][0])
    shift = shift_of(readouts, base, condition, correction)
    flipped = shift.flipped[:, WHOLE, :, layer].mean(axis=0)
    probability = expit(base.clean[:, WHOLE, :, layer]).mean(axis=0)
    return Memberships(layer, flipped, flipped >= 0.5, probability >= 0.5, probability)
