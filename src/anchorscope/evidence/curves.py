"""What claims about the chart rest on: ΔAUROC beyond `permuted`, the curves of Q and A, and the gap between them.

ΔAUROC beyond `permuted` needs no groups, and a drift common to all answers does not change it. To rule out artefacts it
is also read by half the probes, within each predicted class, and at each anchor layer. The answers of the curves are
sorted at each anchor layer, and also at every layer, because a trough that follows the anchor layer is an artefact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, ClaimMeasure, Pair, Together, at_depth, not_by_cell
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import EvidenceCurve, LineName, Lines, line
from anchorscope.evidence.lines import IntArray as Rows
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.intervals import Auroc, FloatArray, Resamples, mean_auroc
from anchorscope.pathways.shifts import FRACTIONS, IntArray, make_donors, resampled, shift_of
from anchorscope.pathways.splits import mean_split, split
from anchorscope.pathways.widening import Family
from anchorscope.study.terms import MIN_GROUP

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts

DRAWS = 5  # of donors, as in the pathways
CONTROLLED = (("matched_question", "control_question"), ("matched_random", "control_random"))
MIN_CLASS = 60  # right and wrong answers of a predicted class


def chart_lines(
    readouts: Readouts, drawn: Resamples, seed: int = 0, widened: dict[Family, float] | None = None
) -> Iterator[EvidenceLine]:
    """ΔAUROC by condition, ΔP of Q and A by layer, and the gap beyond `permuted`."""
    wider = widened or {}
    yield from _ranked(readouts, drawn, seed)
    yield from _beyond(readouts, drawn, seed)
    yield from _shapes(readouts, drawn, wider)
    yield from _gap(readouts, drawn, seed)


def _ranked(readouts: Readouts, drawn: Resamples, seed: int) -> Iterator[EvidenceLine]:
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
    null = np.mean([mean_auroc(labels, whole[0] + change[:, donor], drawn) for donor in donors], axis=0) - clean
    yield line("chart", "delta_auroc", null, n, "permuted")
    yield line("chart", "delta_auroc", lost["knockout"] - null, n, "knockout-permuted")
    for matched, control in CONTROLLED:
        if matched in lost and control in lost:
            yield line("chart", "delta_auroc", lost[matched] - lost[control], n, f"{matched}-{control}")


def _beyond(readouts: Readouts, drawn: Resamples, seed: int) -> Iterator[EvidenceLine]:
    """ΔAUROC, knockout minus permuted, at the middle layer, checked for each way in which it could be an artefact."""
    base = resampled(readouts, drawn, Auroc(readouts.labels, drawn.samples))
    donors = make_donors(readouts.clusters, DRAWS, seed)
    middle, every = round((readouts.layers - 1) / 2), np.arange(len(readouts.labels))
    predicted = base.clean[:, 0, :, middle].mean(axis=0) > 0

    whole = shift_of(readouts, base, "knockout", "none").delta[1]

    def beyond(parts: Sequence[int], layers: Sequence[int], rows: Rows) -> FloatArray:
        """(1 + resample, layer): mean over parts of the probes."""
        change = whole[..., layers]
        clean = base.clean[..., layers]
        by_part = []
        for part in parts:
            real = mean_auroc(readouts.labels, (clean + change)[:, part], drawn, rows)
            moved = [mean_auroc(readouts.labels, (clean + change[:, :, d])[:, part], drawn, rows) for d in donors]
            by_part.append(real - np.mean(moved, axis=0))
        mean: FloatArray = np.mean(by_part, axis=0)
        return mean

    at = [round((readouts.layers - 1) * depth) for depth in FRACTIONS.values()]
    by_anchor = beyond([0], at, every)
    for number, anchor in enumerate(FRACTIONS):
        yield line("chart", "beyond_permuted", by_anchor[:, number], len(every), "", f"anchor_{anchor}")
    yield line("chart", "beyond_permuted", beyond([1, 2], [middle], every)[:, 0], len(every), "", "halves")
    for name, side in (("predicted_correct", predicted), ("predicted_wrong", ~predicted)):
        rows = np.flatnonzero(side)
        right = int(readouts.labels[rows].sum())
        if min(right, len(rows) - right) >= MIN_CLASS:
            yield line("chart", "beyond_permuted", beyond([0], [middle], rows)[:, 0], len(rows), "", name)


def _shapes(readouts: Readouts, drawn: Resamples, wider: dict[Family, float]) -> Iterator[EvidenceLine]:
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


def _gap(readouts: Readouts, drawn: Resamples, seed: int) -> Iterator[EvidenceLine]:
    """ΔP of Q minus A at the middle layer, split halves: under the knockout, and under `permuted`."""
    at = [round((readouts.layers - 1) / 2)]
    halfway = replace(readouts, logits=readouts.logits[..., at], drift=readouts.drift[..., at])
    base = resampled(halfway, drawn, Auroc(halfway.labels, drawn.samples))
    donors: dict[str, list[IntArray | None]] = {"knockout": [None]}
    donors["permuted"] = list(make_donors(halfway.clusters, DRAWS, seed))
    for name, drawn_donors in donors.items():
        shifts = [shift_of(halfway, base, "knockout", "none", donor) for donor in drawn_donors]
        groups = mean_split([split(base, shift, None, "crossed", ("all",)) for shift in shifts])
        gap = groups.mean[0, 0, 0, :, 0] - groups.mean[0, 0, 1, :, 0]
        yield line("chart", "gap", gap, float(groups.size[0, :2].min()), name)


# --- the claims


def _curve(lines: Lines, group: str) -> EvidenceCurve | None:
    return lines.get(LineName("chart", "delta_p", "knockout", group))


def _near_zero(lines: Lines) -> ClaimMeasure | None:
    curve = _curve(lines, "A")
    if curve is None:
        return None
    points = curve.replicates.T
    return ClaimMeasure([*points, *-points], curve.n, at_once=True)


SORTED = ("delta_p", "delta_p_quarter", "delta_p_three_quarters", "delta_p_last", "delta_p_layer")
"""The curves of Q, sorted at each anchor layer, and at every layer; a shape must appear in all of them."""


def _shaped(shape: Callable[[EvidenceCurve], FloatArray]) -> Callable[[Lines], ClaimMeasure | None]:
    def measure(lines: Lines) -> ClaimMeasure | None:
        curves = [lines.get(LineName("chart", name, "knockout", "Q")) for name in SORTED]
        there = [
            curve for curve in curves if curve is not None and curve.n >= MIN_GROUP and np.isfinite(curve.value).all()
        ]
        if not any(curve is curves[0] for curve in there):  # an EvidenceCurve holds arrays: == would compare them
            return None
        return ClaimMeasure([shape(curve) for curve in there], min(curve.n for curve in there))

    return measure


def _fall(curve: EvidenceCurve) -> FloatArray:
    return curve.over(1 / 3, 1) - curve.at(0)


def _end(curve: EvidenceCurve) -> FloatArray:
    return curve.over(0.9, 1) - curve.over(0.4, 0.7)


def _survives(lines: Lines) -> ClaimMeasure | None:
    curves = [curve for name, curve in lines.items() if name[:2] == ("chart", "beyond_permuted")]
    return ClaimMeasure([curve.at(0) for curve in curves], min(curve.n for curve in curves)) if curves else None


def _chart(condition: str) -> LineName:
    return LineName("chart", "delta_auroc", condition)


MATCHED = ("matched_question-control_question", "matched_random-control_random")

CLAIMS = (
    Claim(
        "a_near_zero", "A-Anchored answers stay near zero at every layer",
        "|ΔP| of A, split halves, at every layer (points)", "zero, with a band over all layers", 10, "below",
        _near_zero,
    ),
    Claim(
        "q_falls", "Q-Anchored answers fall with depth",
        "ΔP of Q, split halves, for every anchor: mean from a third of the layers on, minus the first layer (points)",
        "the first layer", -5, "below", _shaped(_fall),
    ),
    Claim(
        "recovers", "The Q-Anchored curve recovers from the middle layers to the last ones",
        "ΔP of Q, split halves, for every anchor: last tenth of the layers minus those at 0.4 to 0.7 (points)",
        "the middle layers", 5, "above", _shaped(_end),
    ),
    Claim(
        "declines", "The Q-Anchored curve declines from the middle layers to the last ones",
        "ΔP of Q, split halves, for every anchor: last tenth of the layers minus those at 0.4 to 0.7 (points)",
        "the middle layers", -5, "below", _shaped(_end),
    ),
    Claim(
        "beyond_permuted", "Cutting exact tokens hurts ranking by more than the permutation null",
        "ΔAUROC, knockout minus permuted, at the middle layer", "permuted", -0.02, "below",
        at_depth(HALF, _chart("knockout-permuted")),
    ),
    Claim(
        "survives", "That loss is found with half the probes, in each class, at every anchor",
        "ΔAUROC, knockout minus permuted, the smallest of these losses", "permuted", -0.02, "below", _survives,
    ),
    Claim(
        "beyond_controls", "Cutting exact tokens hurts ranking more than cutting as many others",
        "ΔAUROC, matched minus control, both controls, at the middle layer", "control_question, control_random",
        -0.02, "below", at_depth(HALF, *(_chart(condition) for condition in MATCHED)),
    ),
)  # fmt: skip


def _agree(lines: Mapping[str, Lines]) -> ClaimMeasure | None:
    """The mean correlation of the curves of Q, over all pairs of datasets."""
    curves = [curve for of_set in lines.values() if (curve := _curve(of_set, "Q")) is not None and curve.n >= MIN_GROUP]
    if len(curves) < 2:
        return None
    correlations = [_correlation(a.replicates, b.replicates) for a, b in combinations(curves, 2)]
    return ClaimMeasure([np.mean(correlations, axis=0)], min(curve.n for curve in curves))


def _correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    """(1 + resample): over layers."""
    a, b = (values - values.mean(axis=1, keepdims=True) for values in (first, second))
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation: FloatArray = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return correlation


def _order(lines: Mapping[str, Lines]) -> ClaimMeasure | None:
    """ΔP of Q at the middle layer: PopQA and TriviaQA minus HotpotQA and NQ."""
    curves = {name.lower(): _curve(of_set, "Q") for name, of_set in lines.items()}
    wanted = [curves.get(name) for name in ("popqa", "triviaqa", "hotpotqa", "nq")]
    there = [curve for curve in wanted if curve is not None]
    if len(there) < 4:
        return None
    popqa, triviaqa, hotpotqa, nq = (curve.at(HALF) for curve in there)
    return ClaimMeasure([(popqa + triviaqa - hotpotqa - nq) / 2], min(curve.n for curve in there))


TOGETHER: tuple[Together, ...] = (
    Together(
        Claim(
            "sets_agree", "The Q-Anchored curves of the datasets agree in shape",
            "correlation over layers of ΔP of Q, mean over pairs of datasets", "0, no agreement",
            0.8, "above", not_by_cell,
        ),
        _agree,
    ),
    Together(
        Claim(
            "order", "PopQA and TriviaQA lie lower than HotpotQA and NQ",
            "ΔP of Q, split halves, at the middle layer: the first two minus the others (points)", "no order",
            -5, "below", not_by_cell,
        ),
        _order,
    ),
)  # fmt: skip


def _harder(smaller: Mapping[str, Lines], larger: Mapping[str, Lines]) -> ClaimMeasure | None:
    name = _chart("knockout")
    sets = [
        dataset for dataset in smaller if dataset in larger and name in smaller[dataset] and name in larger[dataset]
    ]
    if not sets:
        return None
    lost = [larger[dataset][name].at(HALF) - smaller[dataset][name].at(HALF) for dataset in sets]
    return ClaimMeasure(
        [np.mean(lost, axis=0)], min(lines[dataset][name].n for lines in (smaller, larger) for dataset in sets)
    )


PAIRS: tuple[Pair, ...] = (
    Pair(
        Claim(
            "larger_harder", "The knockout hurts ranking more in the larger model of a pair",
            "ΔAUROC of the knockout at the middle layer, larger minus smaller model, mean over datasets",
            "the smaller model", -0.02, "below", not_by_cell,
        ),
        _harder,
    ),
)  # fmt: skip


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    return chart_lines(cell.readouts, cell.drawn, cell.study.seed, cell.widened)


EXPERIMENT = Experiment("chart", _lines, CLAIMS, TOGETHER, PAIRS)
