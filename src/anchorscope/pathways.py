"""Pathways: how far each condition moves the read-outs of the Q-Anchored and the A-Anchored, with intervals.

One call makes all rows of the `pathways` table for one model, set, site and position. splits.py says who belongs to
which group, bootstrap.py how intervals are made; here the numbers are named, subtracted from each other, written down.
Differences between groups and between conditions are taken within each resample, so their intervals are paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.bootstrap import Auroc, FloatArray, Resamples, average, interval, resample
from anchorscope.errors import ProbeError
from anchorscope.splits import (
    ANCHORS,
    GROUPS,
    MEASURES,
    STRATA,
    WHOLE,
    BoolArray,
    Cell,
    Shift,
    Split,
    kappa,
    make_cell,
    shift_of,
    sigmoid,
    split,
)

if TYPE_CHECKING:
    from anchorscope.readouts import Readouts

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


@dataclass(frozen=True, slots=True)
class Statistic:
    """One row of the `pathways` table: one number with its 95 % bootstrap interval."""

    model: str = field(metadata={"doc": "the model"})
    dataset: str = field(metadata={"doc": "the question set"})
    site: str = field(metadata={"doc": "where the activation was read: attn, mlp or resid"})
    position: str = field(metadata={"doc": "which token was read: answer_last, final or prompt_last"})
    condition: str = field(metadata={"doc": "the forward pass, or the first minus the second of two, joined by '-'"})
    split: str = field(metadata={"doc": "none, layer, anchor, layer_half or anchor_half"})
    anchor: str = field(metadata={"doc": "none, best, quarter, half, three_quarters or last"})
    correction: str = field(metadata={"doc": "none, or drift: the drift of the training samples is subtracted"})
    group: str = field(metadata={"doc": "all, Q (the condition flips the predicted class), A (it does not) or Q-A"})
    stratum: str = field(metadata={"doc": "all, predicted_correct, predicted_wrong, label_correct or label_wrong"})
    layer: int = field(metadata={"doc": "the layer read; -1 where the number does not belong to a layer"})
    statistic: str = field(
        metadata={
            "doc": "delta_p (percentage points), delta_logit, auroc and delta_auroc (0..1), "
            "share (of the group, weighted by 1 / sampling probability, 0..1), kappa, anchor_layer; and of baselines "
            "auroc_question_only, auroc_text_only, auroc_within_relation, auroc_question_only_within_relation"
        }
    )
    value: float | None = field(metadata={"doc": "the number; null where a group is too small or it is undefined"})
    low: float | None = field(metadata={"doc": "lower end of the 95 % percentile bootstrap interval"})
    high: float | None = field(metadata={"doc": "upper end of the 95 % percentile bootstrap interval"})
    n: int = field(metadata={"doc": "samples behind the number, mean over draws; of a difference the smaller side's"})


@dataclass(frozen=True)
class Series:
    """One statistic at all its layers, in every resample: what rows of the table are made of."""

    condition: str
    split: str
    anchor: str
    correction: str
    group: str
    stratum: str
    statistic: str
    replicates: FloatArray  # (1 + resample, layer or 1): row 0 is the value
    size: FloatArray  # (layer or 1,): samples behind it, mean over draws
    by_layer: bool = True

    def minus(self, other: Series) -> Series:
        """The difference within each resample; its size is that of the smaller side."""
        return replace(self, replicates=self.replicates - other.replicates, size=np.minimum(self.size, other.size))


def pathways(
    readouts: Readouts, model: str, dataset: str, site: str, position: str, resamples: int = 1000, seed: int = 0
) -> list[Statistic]:
    """All rows of the `pathways` table for one cell. The same read-outs and seed give the same rows."""
    _check(readouts)
    drawn = resample(readouts.clusters, readouts.logits.shape[1], resamples, seed)
    rows: list[Statistic] = []
    for one in series(readouts, drawn):
        rows += _rows(one, model, dataset, site, position)
    return rows


def _check(readouts: Readouts) -> None:
    if "knockout" not in readouts.conditions:
        raise ProbeError(f"pathways need read-outs of the knockout, not only of {', '.join(readouts.conditions)}")
    if readouts.labels.all() or not readouts.labels.any():
        raise ProbeError("pathways need correct and wrong answers; here all are alike", "Take more questions.")


def _rows(one: Series, model: str, dataset: str, site: str, position: str) -> Iterator[Statistic]:
    low, high = interval(one.replicates[1:])
    for index, value in enumerate(one.replicates[0]):
        size = float(one.size[index])
        numbers = [
            None if size < MIN_GROUP or not np.isfinite(x) else float(x) for x in (value, low[index], high[index])
        ]
        yield Statistic(
            model=model,
            dataset=dataset,
            site=site,
            position=position,
            condition=one.condition,
            split=one.split,
            anchor=one.anchor,
            correction=one.correction,
            group=one.group,
            stratum=one.stratum,
            layer=index if one.by_layer else -1,
            statistic=one.statistic,
            value=numbers[0],
            low=numbers[1],
            high=numbers[2],
            n=int(size),  # rounded down: a group of 29.6 is too small, and says 29
        )


def series(readouts: Readouts, resamples: Resamples) -> Iterator[Series]:
    """Every statistic of a cell, in every resample."""
    auroc = Auroc(readouts.labels.astype(bool), resamples.samples)
    cell = make_cell(readouts, resamples, auroc)
    shifts = {
        (condition, correction): shift_of(readouts, cell, condition, correction)
        for condition in readouts.conditions[1:]
        for correction in CORRECTIONS
    }
    yield from _unsplit(readouts, cell, shifts, auroc)
    for anchor, halves, correction in product((None, *ANCHORS), (False, True), CORRECTIONS):
        chosen = {condition: shift for (condition, name), shift in shifts.items() if name == correction}
        yield from _split(cell, chosen, correction, anchor, halves)
    yield from _anchor_layers(cell)


def _unsplit(readouts: Readouts, cell: Cell, shifts: dict[tuple[str, str], Shift], auroc: Auroc) -> Iterator[Series]:
    """All samples together, by the whole probes: AUROC, and the mean effect towards ŷ of the layer."""
    size = np.full(cell.layers, len(cell.labels), float)

    def all_samples(condition: str, correction: str, statistic: str, replicates: FloatArray) -> Series:
        return Series(condition, "none", "none", correction, "all", "all", statistic, replicates, size)

    clean = all_samples("clean", "none", "auroc", mean_auroc(cell, cell.clean, auroc))
    yield clean
    for correction in CORRECTIONS:
        found: dict[tuple[str, str], Series] = {}
        for condition in readouts.conditions[1:]:
            shift = shifts[condition, correction]
            ranked = all_samples(condition, correction, "auroc", mean_auroc(cell, cell.clean + shift.delta[1], auroc))
            yield ranked
            found[condition, "delta_auroc"] = replace(ranked.minus(clean), statistic="delta_auroc")
            for measure, replicates in zip(MEASURES, _mean_delta(cell, shift), strict=True):
                found[condition, measure] = all_samples(condition, correction, measure, replicates)
        yield from found.values()
        yield from _differences(found, readouts.conditions)


def _differences(found: dict[tuple[str, str], Series], conditions: Sequence[str]) -> Iterator[Series]:
    """The first condition minus the second, for everything that was found under both."""
    for first, second in DIFFERENCES:
        if first in conditions and second in conditions:
            for (condition, key), one in found.items():
                if condition == first and (second, key) in found:
                    yield replace(one.minus(found[second, key]), condition=f"{first}-{second}")


def mean_auroc(cell: Cell, logits: FloatArray, auroc: Auroc) -> FloatArray:
    """AUROC of the whole probes, mean over repeats: (resample, layer)."""
    by_repeat = np.stack([auroc(repeat[WHOLE]) for repeat in logits])
    return average(by_repeat, cell.resamples.repeats.T[:, :, None])


def _mean_delta(cell: Cell, shift: Shift) -> FloatArray:
    """Mean effect over all samples, ŷ of the layer, whole probes: (measure, resample, layer)."""
    weights = cell.resamples.samples
    sign = np.where(cell.clean[:, WHOLE] > 0, np.float32(1), np.float32(-1))
    means = weights @ (sign * shift.delta[:, :, WHOLE]) / weights.sum(axis=1, keepdims=True)
    votes = cell.resamples.repeats / cell.resamples.repeats.shape[1]
    total: FloatArray = np.einsum("mrbl,br->mbl", means, votes)
    return total


def _anchor_layers(cell: Cell) -> Iterator[Series]:
    """Where the labels are taken; with halves the mean over draws."""
    size = np.array([float(len(cell.labels))])
    votes = cell.resamples.repeats / (2 * cell.resamples.repeats.shape[1])
    for anchor in ANCHORS:
        whole = cell.anchors[anchor][:, None].astype(float)
        half = np.einsum("brh,br->b", cell.half_anchors[anchor], votes)[:, None]
        for name, replicates in (("anchor", whole), ("anchor_half", half)):
            yield Series("clean", name, anchor, "none", "all", "all", "anchor_layer", replicates, size, by_layer=False)


def _split(cell: Cell, shifts: dict[str, Shift], correction: str, anchor: str | None, halves: bool) -> Iterator[Series]:
    """All statistics of one split."""
    name = ("layer" if anchor is None else "anchor") + ("_half" if halves else "")
    base = Series("", name, anchor or "none", correction, "all", "all", "", np.empty(0), np.empty(0))
    found: dict[tuple[str, str], Series] = {}
    for condition, shift in shifts.items():
        strata = STRATA if condition in STRATIFIED else DIFFERENCE_STRATA
        groups = split(cell, shift, anchor, halves, strata)
        for one in _of_groups(replace(base, condition=condition), groups, strata, cell.layers):
            if one.stratum == "all" or condition in STRATIFIED:
                yield one
            if one.stratum in DIFFERENCE_STRATA:
                found[condition, f"{one.stratum} {one.group} {one.statistic}"] = one
        if halves:
            by_layer = anchor is None
            replicates = kappa(cell, shift, anchor)
            size = np.full(replicates.shape[1], len(cell.labels), float)
            yield replace(
                base, condition=condition, statistic="kappa", replicates=replicates, size=size, by_layer=by_layer
            )
    yield from _differences(found, list(shifts))


def _of_groups(base: Series, groups: Split, strata: Sequence[str], layers: int) -> Iterator[Series]:
    """Means and shares of each stratum's groups, and Q minus A."""
    for index, stratum in enumerate(strata):
        size = dict(zip(GROUPS, groups.size[index], strict=True))
        for measure, mean in zip(MEASURES, groups.mean[:, index], strict=True):
            q, a, both = (
                replace(
                    base,
                    stratum=stratum,
                    group=group,
                    statistic=measure,
                    replicates=mean[at],
                    size=np.broadcast_to(size[group], (layers,)),
                )
                for at, group in enumerate(GROUPS)
            )
            yield from (q, a, replace(q.minus(a), group="Q-A"))
            if base.split == "layer_half":  # the effect on all samples, ŷ chosen by probes that do not measure it
                yield both
        for at, group in enumerate(GROUPS[:2]):
            yield replace(
                base,
                stratum=stratum,
                group=group,
                statistic="share",
                replicates=groups.share[index, at],
                size=size["all"],
                by_layer=base.anchor == "none",
            )


@dataclass(frozen=True)
class Memberships:
    """On which pathway each sample's read-out rests, by the whole probes at the best anchor layer."""

    anchor_layer: int
    flipped: FloatArray  # (sample,): share of repeats in which the condition flips the predicted class
    question: BoolArray  # (sample,): Q-Anchored, that is flipped in at least half of the repeats
    predicted: BoolArray  # (sample,): class predicted on the clean pass, mean P over repeats at least 0.5
    probability: FloatArray  # (sample,): that mean P


def memberships(readouts: Readouts, condition: str = "knockout", correction: str = "none") -> Memberships:
    """The pathway of each sample; for counts and tables by sample, not for effects: these labels have no halves."""
    _check(readouts)
    one = resample(readouts.clusters, readouts.logits.shape[1], resamples=0, seed=0)
    cell = make_cell(readouts, one, Auroc(readouts.labels.astype(bool), one.samples))
    layer = int(cell.anchors["best"][0])
    shift = shift_of(readouts, cell, condition, correction)
    flipped = shift.flipped[:, WHOLE, :, layer].mean(axis=0)
    probability = sigmoid(cell.clean[:, WHOLE, :, layer]).mean(axis=0)
    return Memberships(layer, flipped, flipped >= 0.5, probability >= 0.5, probability)
