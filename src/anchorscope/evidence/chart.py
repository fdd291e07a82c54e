"""The chart: ΔP of Q-Anchored and A-Anchored answers, ΔAUROC, their nulls and controls, and the claims about them.

ΔAUROC beyond `permuted` needs no groups, and a drift common to all answers does not change it. To rule out artefacts it
is also read by half the probes, within each predicted class, and at each anchor layer. The answers of the curves are
sorted at each anchor layer, and also at every layer, because a trough that follows the anchor layer is an artefact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from anchorscope.evidence import chart_figures
from anchorscope.evidence.claim import HALF, Claim, ClaimMeasure, Measure, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import IntArray as Rows
from anchorscope.evidence.tables import KEYS
from anchorscope.pathways.baselines import BASELINES, MASSES, baselines, masses
from anchorscope.pathways.effects import STATISTICS, Part, by_kind, effects
from anchorscope.pathways.intervals import FloatArray, Resamples, mean_auroc
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.parallel import side_by_side
from anchorscope.pathways.record import AnchorName, Group, Key
from anchorscope.pathways.series import Line, Series
from anchorscope.pathways.shifts import FRACTIONS, make_donors
from anchorscope.store.stage import always
from anchorscope.study.terms import MIN_GROUP

if TYPE_CHECKING:
    from anchorscope.probes.readouts import Readouts

MIN_CLASS = 60  # right and wrong answers of a predicted class


def chart_series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """Every number of the chart that has one of these keys."""
    recorded, drawn = cell.recorded, cell.drawn
    further: list[Part] = [
        partial(by_kind, recorded.readouts, drawn, [row.kind for row in recorded.rows], keys),
        partial(baselines, recorded, drawn, keys),
        partial(beyond_permuted, recorded.readouts, drawn, keys, cell.study.seed),
    ]
    losses: dict[str, Series] = {}
    with threadpool_limits(1):  # a part has one thread, however many there are: the same bytes
        every = chain(effects(recorded.readouts, drawn, keys, cell.study.seed), further)
        for part in side_by_side(lambda part: list(part()), every):
            losses |= {one.key.condition: one for one in part if one.key == Key("delta_auroc", one.key.condition)}
            yield from (replace(one, widened=cell.widening(one.key)) for one in part)
        yield from masses(recorded, drawn, losses, keys)


def beyond_permuted(readouts: Readouts, drawn: Resamples, keys: Collection[Key], seed: int = 0) -> Iterator[Series]:
    """ΔAUROC, knockout minus permuted, at the middle layer, checked for each way in which it could be an artefact."""
    if not any(key.statistic == BEYOND for key in keys):
        return
    clean = readouts.logits[0].astype(np.float32)
    change = readouts.logits[readouts.conditions.index("knockout")].astype(np.float32) - clean
    donors = make_donors(readouts.clusters, seed)
    middle, every = round((readouts.layers - 1) / 2), np.arange(len(readouts.labels))
    predicted = clean[:, 0, :, middle].mean(axis=0) > 0

    def beyond(parts: Sequence[int], layers: Sequence[int], rows: Rows) -> FloatArray:
        """(1 + resample, layer): mean over parts of the probes."""
        before, shift = clean[..., layers], change[..., layers]
        by_part = []
        for part in parts:
            real = mean_auroc(readouts.labels, (before + shift)[:, part], drawn, rows)
            moved = [mean_auroc(readouts.labels, (before + shift[:, :, d])[:, part], drawn, rows) for d in donors]
            by_part.append(real - np.mean(moved, axis=0))
        return np.mean(by_part, axis=0)

    at = [round((readouts.layers - 1) * depth) for depth in FRACTIONS.values()]
    by_anchor = beyond([0], at, every)
    for number, anchor in enumerate(FRACTIONS):
        yield Series.of(Key(BEYOND, stratum=f"anchor_{anchor}"), by_anchor[:, number], len(every))
    yield Series.of(Key(BEYOND, stratum="halves"), beyond([1, 2], [middle], every)[:, 0], len(every))
    for name, side in (("predicted_correct", predicted), ("predicted_wrong", ~predicted)):
        rows = np.flatnonzero(side)
        right = int(readouts.labels[rows].sum())
        if min(right, len(rows) - right) >= MIN_CLASS:
            yield Series.of(Key(BEYOND, stratum=name), beyond([0], [middle], rows)[:, 0], len(rows))


BEYOND = "chart_beyond_permuted"
WAYS = (*(f"anchor_{anchor}" for anchor in FRACTIONS), "halves", "predicted_correct", "predicted_wrong")
"""Ways in which ΔAUROC beyond `permuted` could be an artefact."""

# --- the claims


def _curve(group: Group, anchor: AnchorName = "half") -> Key:
    """ΔP under the knockout, sorted by one half of the probes at an anchor layer, or at every layer."""
    return Key("delta_p", "knockout", "layer_half" if anchor == "none" else "anchor_half", anchor, group=group)


Q, A = _curve("Q"), _curve("A")


def _near_zero(lines: Lines) -> ClaimMeasure | None:
    if A not in lines:
        return None
    points = lines[A].replicates.T
    return ClaimMeasure([*points, *-points], lines[A].n, at_once=True)


SORTED = (Q, _curve("Q", "quarter"), _curve("Q", "three_quarters"), _curve("Q", "last"), _curve("Q", "none"))
"""The curves of Q, sorted at each anchor layer, and at every layer; a shape must appear in all of them."""


def _shaped(shape: Callable[[Line], FloatArray]) -> Measure:
    def measure(lines: Lines) -> ClaimMeasure | None:
        there = {
            key: line for key, line in lines.items() if line.n >= MIN_GROUP and np.isfinite(line.replicates[0]).all()
        }
        if Q not in there:
            return None
        in_order = [there[key] for key in SORTED if key in there]
        return ClaimMeasure([shape(line) for line in in_order], min(line.n for line in in_order))

    return Measure(SORTED, measure)


def _fall(curve: Line) -> FloatArray:
    return curve.over(1 / 3, 1) - curve.at(0)


def _end(curve: Line) -> FloatArray:
    return curve.over(0.9, 1) - curve.over(0.4, 0.7)


def _survives(lines: Lines) -> ClaimMeasure | None:
    chosen = list(lines.values())
    return ClaimMeasure([line.at(0) for line in chosen], min(line.n for line in chosen)) if chosen else None


def _loss(condition: str) -> Key:
    return Key("delta_auroc", condition)


MATCHED = ("matched_question-control_question", "matched_random-control_random")

CLAIMS = (
    Claim(
        "a_near_zero", "A-Anchored answers stay near zero at every layer",
        "|ΔP| of A, split halves, at every layer (points)", "zero, with a band over all layers", 10, "below",
        Measure((A,), _near_zero),
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
        at_depth(HALF, _loss("knockout-permuted")),
    ),
    Claim(
        "survives", "That loss is found with half the probes, in each class, at every anchor",
        "ΔAUROC, knockout minus permuted, the smallest of these losses", "permuted", -0.02, "below",
        Measure(tuple(Key(BEYOND, stratum=way) for way in WAYS), _survives),
    ),
    Claim(
        "beyond_controls", "Cutting exact tokens hurts ranking more than cutting as many others",
        "ΔAUROC, matched minus control, both controls, at the middle layer", "control_question, control_random",
        -0.02, "below", at_depth(HALF, *(_loss(condition) for condition in MATCHED)),
    ),
)  # fmt: skip


def _agree(sets: Mapping[str, Lines]) -> ClaimMeasure | None:
    """The mean correlation of the curves of Q, over all pairs of datasets."""
    curves = [lines[Q] for lines in sets.values() if Q in lines and lines[Q].n >= MIN_GROUP]
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


def _order(sets: Mapping[str, Lines]) -> ClaimMeasure | None:
    """ΔP of Q at the middle layer: PopQA and TriviaQA minus HotpotQA and NQ."""
    curves = {name.lower(): lines.get(Q) for name, lines in sets.items()}
    there = [curve for name in ("popqa", "triviaqa", "hotpotqa", "nq") if (curve := curves.get(name)) is not None]
    if len(there) < 4:
        return None
    popqa, triviaqa, hotpotqa, nq = (curve.at(HALF) for curve in there)
    return ClaimMeasure([(popqa + triviaqa - hotpotqa - nq) / 2], min(curve.n for curve in there))


def _harder(smaller: Mapping[str, Lines], larger: Mapping[str, Lines]) -> ClaimMeasure | None:
    key = _loss("knockout")
    sets = [name for name in smaller if name in larger and key in smaller[name] and key in larger[name]]
    if not sets:
        return None
    lost = [larger[name][key].at(HALF) - smaller[name][key].at(HALF) for name in sets]
    return ClaimMeasure(
        [np.mean(lost, axis=0)], min(lines[name][key].n for lines in (smaller, larger) for name in sets)
    )


OF_MODELS = (
    Claim(
        "sets_agree", "The Q-Anchored curves of the datasets agree in shape",
        "correlation over layers of ΔP of Q, mean over pairs of datasets", "0, no agreement",
        0.8, "above", Measure((Q,), _agree), about="model",
    ),
    Claim(
        "order", "PopQA and TriviaQA lie lower than HotpotQA and NQ",
        "ΔP of Q, split halves, at the middle layer: the first two minus the others (points)", "no order",
        -5, "below", Measure((Q,), _order), about="model",
    ),
    Claim(
        "larger_harder", "The knockout hurts ranking more in the larger model of a pair",
        "ΔAUROC of the knockout at the middle layer, larger minus smaller model, mean over datasets",
        "the smaller model", -0.02, "below", Measure((_loss("knockout"),), _harder), about="pair",
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    "chart",
    chart_series,
    (*STATISTICS, *BASELINES, *MASSES, BEYOND),
    (*CLAIMS, *OF_MODELS),
    chart_figures.CHARTS,
    KEYS,
    wanted=always,
)
