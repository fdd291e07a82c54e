"""What claims about the chart rest on: ΔAUROC beyond `permuted`, the curves of Q and A, and the gap between them.

ΔAUROC beyond `permuted` needs no groups, and a drift of all answers alike does not change it. It is taken in every way
in which it could be an artefact: read by half the probes, within each predicted class, and at each anchor layer. The
curves are sorted at each anchor layer and at every layer anew: a trough that follows the anchor is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.evidence.lines import IntArray as Rows
from anchorscope.evidence.lines import line, mean_auroc
from anchorscope.evidence.record import Line
from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples
from anchorscope.pathways.shifts import FRACTIONS, IntArray, make_donors, resampled, shift_of
from anchorscope.pathways.splits import mean_split, split
from anchorscope.pathways.widening import Family

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts

DRAWS = 5  # of donors, as in the pathways
PAIRS = (("matched_question", "control_question"), ("matched_random", "control_random"))
MIN_GROUP = 60  # right and wrong answers of a predicted class


def chart_lines(
    readouts: Readouts, drawn: Resamples, seed: int = 0, widened: dict[Family, float] | None = None
) -> Iterator[Line]:
    """ΔAUROC by condition, ΔP of Q and A by layer, and the gap beyond `permuted`."""
    wider = widened or {}
    yield from _ranked(readouts, drawn, seed)
    yield from _beyond(readouts, drawn, seed)
    yield from _shapes(readouts, drawn, wider)
    yield from _gap(readouts, drawn, seed)


def _ranked(readouts: Readouts, drawn: Resamples, seed: int) -> Iterator[Line]:
    """ΔAUROC: by condition, less `permuted`, and less a control."""
    labels, n = readouts.labels, len(readouts.labels)
    whole = readouts.logits[:, :, 0]  # (condition, repeat, sample, layer)
    clean = mean_auroc(labels, whole[0], drawn)
    yield line("chart", "auroc", clean, n, "clean")
    lost = {}
    for index, condition in enumerate(readouts.conditions[1:], 1):
        lost[condition] = mean_auroc(labels, whole[index], drawn) - clean
        yield line("chart", "delta_auroc", lost[condition], n, condition)
    change = whole[readouts.conditions.index("knockout")] - whole[0]
    donors = make_donors(readouts.clusters, DRAWS, seed)
    null = np.mean([mean_auroc(labels, whole[0] + change[:, each], drawn) for each in donors], axis=0) - clean
    yield line("chart", "delta_auroc", null, n, "permuted")
    yield line("chart", "delta_auroc", lost["knockout"] - null, n, "knockout-permuted")
    for matched, control in PAIRS:
        if matched in lost and control in lost:
            yield line("chart", "delta_auroc", lost[matched] - lost[control], n, f"{matched}-{control}")


def _beyond(readouts: Readouts, drawn: Resamples, seed: int) -> Iterator[Line]:
    """ΔAUROC, knockout minus permuted, in every way in which it could be an artefact; at the layer half-way up."""
    base = resampled(readouts, drawn, Auroc(readouts.labels, drawn.samples))
    donors = make_donors(readouts.clusters, DRAWS, seed)
    middle, every = round((readouts.layers - 1) / 2), np.arange(len(readouts.labels))
    predicted = base.clean[:, 0, :, middle].mean(axis=0) > 0

    whole = shift_of(readouts, base, "knockout", "none").delta[1]

    def beyond(parts: Sequence[int], layers: Sequence[int], rows: Rows) -> FloatArray:
        """(1 + resample, layer): mean over parts of the probes."""
        change = whole[..., layers]
        clean = base.clean[..., layers]
        made = []
        for part in parts:
            real = mean_auroc(readouts.labels, (clean + change)[:, part], drawn, rows)
            moved = [mean_auroc(readouts.labels, (clean + change[:, :, d])[:, part], drawn, rows) for d in donors]
            made.append(real - np.mean(moved, axis=0))
        mean: FloatArray = np.mean(made, axis=0)
        return mean

    at = [round((readouts.layers - 1) * depth) for depth in FRACTIONS.values()]
    by_anchor = beyond([0], at, every)
    for number, anchor in enumerate(FRACTIONS):
        yield line("chart", "beyond_permuted", by_anchor[:, number], len(every), "", f"anchor_{anchor}")
    yield line("chart", "beyond_permuted", beyond([1, 2], [middle], every)[:, 0], len(every), "", "halves")
    for name, side in (("predicted_correct", predicted), ("predicted_wrong", ~predicted)):
        rows = np.flatnonzero(side)
        right = int(readouts.labels[rows].sum())
        if min(right, len(rows) - right) >= MIN_GROUP:
            yield line("chart", "beyond_permuted", beyond([0], [middle], rows)[:, 0], len(rows), "", name)


def _shapes(readouts: Readouts, drawn: Resamples, wider: dict[Family, float]) -> Iterator[Line]:
    """ΔP of Q and A by layer: labels by one half, at an anchor layer or at every layer, ΔP by the other."""
    base = resampled(readouts, drawn, Auroc(readouts.labels, drawn.samples))
    shift = shift_of(readouts, base, "knockout", "none")
    for anchor in (*FRACTIONS, None):
        groups = split(base, shift, anchor, "crossed", ("all",))
        name = "delta_p" if anchor == "half" else f"delta_p_{anchor or 'layer'}"
        for place, group in enumerate(("Q", "A")):
            size = float(groups.size[0, place].min())
            factor = wider.get(Family("delta_p", "half", group), 1.0)
            yield line("chart", name, groups.mean[0, 0, place], size, "knockout", group, factor)


def _gap(readouts: Readouts, drawn: Resamples, seed: int) -> Iterator[Line]:
    """ΔP of Q minus A at the layer half-way up, halves: under the knockout, and under `permuted`."""
    at = [round((readouts.layers - 1) / 2)]
    some = replace(readouts, logits=readouts.logits[..., at], drift=readouts.drift[..., at])
    base = resampled(some, drawn, Auroc(some.labels, drawn.samples))
    donors: dict[str, list[IntArray | None]] = {"knockout": [None]}
    donors["permuted"] = list(make_donors(some.clusters, DRAWS, seed))
    for name, drawn_donors in donors.items():
        shifts = [shift_of(some, base, "knockout", "none", each) for each in drawn_donors]
        groups = mean_split([split(base, shift, None, "crossed", ("all",)) for shift in shifts])
        gap = groups.mean[0, 0, 0, :, 0] - groups.mean[0, 0, 1, :, 0]
        yield line("chart", "gap", gap, float(groups.size[0, :2].min()), name)
