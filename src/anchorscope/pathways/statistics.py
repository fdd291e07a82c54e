"""Pathways: how far each condition moves the read-outs of the Q-Anchored and the A-Anchored, with intervals.

One call makes all rows of the `pathways` table for one model, set and read point. splits.py says who belongs to
which group, intervals.py how intervals are made; here the numbers are named, subtracted from each other, written down.
Differences between groups and between conditions are taken within each resample, so their intervals are paired.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.errors import ProbeError
from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples, band, centred, interval, mean_auroc, resample
from anchorscope.pathways.record import Key, Origin, Statistic
from anchorscope.pathways.shifts import (
    ANCHORS,
    CONTROL_DRIFT,
    MEASURES,
    WHOLE,
    Resampled,
    Shift,
    make_donors,
    resampled,
    shift_of,
)
from anchorscope.pathways.splits import GROUPS, STRATA, WAYS, Split, Way, kappa, mean_split, split

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts
from anchorscope.study.terms import MIN_GROUP

CORRECTIONS = ("none", "drift", "drift_class", "drift_control")
PERMUTED: dict[str, str] = {
    "permuted": "knockout",
    "permuted_context": "knockout_context",
    "permuted_swap": "swapped_context",
}
"""Conditions that need no pass: each sample receives the shift of a different sample under a knockout."""
DRAWS = 5  # of donors
CLAIMED = "half"  # the anchor that claims use: fixed in advance
DIFFERENCES = (
    ("knockout", "permuted"),
    ("matched_question", "control_question"),
    ("matched_random", "control_random"),
    ("knockout", "control_question"),
    ("knockout", "control_random"),
    ("knockout", "control_prefix"),
    ("knockout_context", "permuted_context"),
    ("swapped_context", "permuted_swap"),
    ("matched_evidence", "control_evidence"),
    ("knockout_context", "knockout"),
    ("knockout_both", "knockout_context"),
)
# Strata other than `all` are kept for these conditions only, which bounds the time and the size of the table.
STRATIFIED = ("knockout", "matched_question", "control_question", "permuted")
DIFFERENCE_STRATA = STRATA[:3]  # by predicted class; differences alone are kept in these strata for all pairs


Shifts = dict[str, list[Shift]]
"""What each condition does to every read-out; of `permuted` by several draws of donors."""


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

    def rows(self, origin: Origin, widened: float = 1.0) -> Iterator[Statistic]:
        """A row for each layer; without numbers where the group is too small."""
        yield from rows_of([self], origin, lambda _: widened)

    def written(self, origin: Origin, columns: Sequence[FloatArray]) -> Iterator[Statistic]:
        """The rows with these numbers: the value and the ends of its intervals, each (layer or 1,)."""
        for index in range(len(self.size)):
            size = float(self.size[index])
            numbers = [column[index] for column in columns]
            written = tuple(None if size < MIN_GROUP or not np.isfinite(x) else float(x) for x in numbers)
            # the size is rounded down: a group of 29.6 is too small, and says 29
            yield Statistic.of(origin, self.key, index if self.by_layer else -1, written, int(size))


def rows_of(some: Iterable[Series], origin: Origin, widened: Callable[[Key], float]) -> list[Statistic]:
    """The rows of each series in order; those of as many layers are computed side by side, which is faster."""
    every = list(some)
    # 1. which can stand side by side
    alike: defaultdict[tuple[int, bool, str], list[int]] = defaultdict(list)
    for number, one in enumerate(every):
        alike[len(one.size), one.by_layer, one.replicates.dtype.str].append(number)
    # 2. their numbers: the value and the ends of its intervals, each (layer)
    columns_of: dict[int, list[FloatArray]] = {}
    for (layers, by_layer, _), numbers in alike.items():
        lines = [every[number] for number in numbers]
        together = np.concatenate([one.replicates for one in lines], axis=1)
        factors = np.repeat([widened(one.key) for one in lines], layers).astype(together.dtype)
        moved, shape = centred(together, factors), (len(lines), layers)
        columns = [column.reshape(shape) for column in (together[0], *interval(moved))]
        if by_layer:
            enough = np.concatenate([one.size for one in lines]) >= MIN_GROUP
            columns += band(np.where(enough, moved, np.nan).reshape(-1, *shape), columns[0])
        columns_of |= {number: [column[line] for column in columns] for line, number in enumerate(numbers)}
    # 3. written down in order
    return [row for number, one in enumerate(every) for row in one.written(origin, columns_of[number])]


def pathways(readouts: Readouts, origin: Origin, resamples: int = 1000, seed: int = 0) -> list[Statistic]:
    """The rows of the `pathways` table that come from read-outs alone. The same read-outs and seed give the same."""
    check(readouts)
    drawn = resample(readouts.clusters, readouts.repeats, resamples, seed)
    return [row for part in parts(readouts, drawn, seed) for row in rows_of(part(), origin, lambda _: 1.0)]


def check(readouts: Readouts) -> None:
    """Refuse read-outs that have no pathways."""
    if "knockout" not in readouts.conditions:
        raise ProbeError(f"pathways need read-outs of the knockout, not only of {', '.join(readouts.conditions)}")
    if readouts.labels.all() or not readouts.labels.any():
        raise ProbeError(
            "pathways need right and wrong answers, but all answers here have the same grade",
            "Set a larger `sample` in the study.",
        )


Part = Callable[[], Iterable[Series]]
"""Some statistics of a cell, computed when it is called; parts do not depend on each other."""


def series(readouts: Readouts, resamples: Resamples, seed: int = 0) -> Iterator[Series]:
    """Every statistic of a cell, in every resample."""
    for part in parts(readouts, resamples, seed):
        yield from part()


def parts(readouts: Readouts, resamples: Resamples, seed: int = 0) -> Iterator[Part]:
    """Every statistic of a cell, in parts that can be computed side by side."""
    auroc = Auroc(readouts.labels.astype(bool), resamples.samples)
    base = resampled(readouts, resamples, auroc)
    donors = make_donors(readouts.clusters, DRAWS, seed)
    areas = mean_auroc(base.labels, base.clean[:, WHOLE], resamples, kernel=auroc)
    clean = Series(Key("auroc", "clean"), areas, np.full(base.layers, len(base.labels), float))
    yield lambda: [clean]
    for correction in CORRECTIONS:
        shifts: Shifts = {}
        nulls = [null for null, of in PERMUTED.items() if of in readouts.conditions]
        for condition in (*readouts.conditions[1:], *nulls):
            if not _corrected(readouts, condition, correction):
                continue
            of, drawn = (PERMUTED[condition], donors) if condition in PERMUTED else (condition, [None])
            shifts[condition] = [shift_of(readouts, base, of, correction, draw) for draw in drawn]
        yield partial(_unsplit, base, clean, shifts, correction, auroc)
        for anchor, way in product((None, *ANCHORS), WAYS):
            asked = {name: draws for name, draws in shifts.items() if _split_by(name, correction, anchor, way)}
            yield partial(_split, base, asked, correction, anchor, way)
    yield partial(_anchor_layers, base)


def _corrected(readouts: Readouts, condition: str, correction: str) -> bool:
    """Whether a condition is corrected so: the knockout in every way, a null in none, others by the common drift."""
    if condition in PERMUTED or (correction == "drift_control" and CONTROL_DRIFT not in readouts.conditions):
        return correction == "none"
    return correction in ("none", "drift") or condition == "knockout"


def _split_by(condition: str, correction: str, anchor: str | None, way: Way) -> bool:
    """Which splits are made: all for what the model passed; for nulls and further corrections those of claims."""
    claimed = anchor in (None, CLAIMED)
    if way == "same":
        return condition in ("knockout", "permuted") and correction == "none" and claimed
    if correction not in ("none", "drift"):
        return way == "crossed" and claimed
    return condition not in PERMUTED or claimed


def _unsplit(base: Resampled, clean: Series, shifts: Shifts, correction: str, auroc: Auroc) -> Iterator[Series]:
    """All samples together, by the whole probes: AUROC, and the mean effect towards ŷ of the layer."""
    size = clean.size
    effects: dict[tuple[str, str], Series] = {}
    for condition, draws in shifts.items():
        key = Key("auroc", condition, correction=correction)
        moved = [(base.clean + shift.delta[1])[:, WHOLE] for shift in draws]
        areas = [mean_auroc(base.labels, logits, base.resamples, kernel=auroc) for logits in moved]
        ranked = Series(key, np.mean(areas, axis=0), size)
        yield ranked
        effects[condition, "delta_auroc"] = ranked.minus(clean, statistic="delta_auroc")
        means = np.mean([mean_delta(base, shift) for shift in draws], axis=0)
        for measure, replicates in zip(MEASURES, means, strict=True):
            effects[condition, measure] = Series(key._replace(statistic=measure), replicates, size)
    yield from effects.values()
    yield from _differences(effects, list(shifts))


def by_kind(readouts: Readouts, resamples: Resamples, kinds: Sequence[str]) -> Iterator[Series]:
    """AUROC and ΔAUROC among questions of one kind, where there are several with enough right and wrong answers."""
    labels, kind = readouts.labels.astype(bool), np.array(kinds)
    enough = [k for k in sorted(set(kinds)) if min(labels[kind == k].sum(), (~labels[kind == k]).sum()) >= MIN_GROUP]
    for name in enough if len(set(kinds)) > 1 else []:
        rows = np.flatnonzero(kind == name)
        kernel = Auroc(labels[rows], resamples.samples[:, rows])
        size, stratum = np.full(readouts.layers, float(len(rows))), f"kind_{name}"
        ranked: dict[tuple[str, str], Series] = {}
        for index, condition in enumerate(readouts.conditions):
            areas = mean_auroc(labels, readouts.logits[index, :, WHOLE], resamples, rows, kernel)
            one = Series(Key("auroc", condition, stratum=stratum), areas, size)
            yield one
            ranked[condition, "auroc"] = one
        deltas = {
            (condition, "delta_auroc"): one.minus(ranked["clean", "auroc"], statistic="delta_auroc")
            for (condition, _), one in ranked.items()
            if condition != "clean"
        }
        yield from deltas.values()
        yield from _differences(deltas, readouts.conditions)


def _differences(effects: dict[tuple[str, str], Series], conditions: Sequence[str]) -> Iterator[Series]:
    """The first condition minus the second, for everything that was measured under both."""
    for first, second in DIFFERENCES:
        if first in conditions and second in conditions:
            for (condition, what), one in effects.items():
                if condition == first and (second, what) in effects:
                    yield one.minus(effects[second, what], condition=f"{first}-{second}")


def mean_delta(base: Resampled, shift: Shift) -> FloatArray:
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


def _split(base: Resampled, shifts: Shifts, correction: str, anchor: str | None, way: Way) -> Iterator[Series]:
    """All statistics of one split."""
    name = ("layer" if anchor is None else "anchor") + WAYS[way]
    effects: dict[tuple[str, str], Series] = {}
    for condition, draws in shifts.items():
        key = Key("", condition, name, anchor or "none", correction)
        strata = STRATA if condition in STRATIFIED and condition not in PERMUTED else DIFFERENCE_STRATA
        groups = mean_split([split(base, shift, anchor, way, strata) for shift in draws])
        for one in _of_groups(key, groups, strata, base.layers):
            if one.key.stratum == "all" or condition in STRATIFIED:
                yield one
            if one.key.stratum in DIFFERENCE_STRATA:
                effects[condition, f"{one.key.stratum} {one.key.group} {one.key.statistic}"] = one
        if way == "crossed" and condition not in PERMUTED:
            replicates = kappa(base, draws[0], anchor)
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
