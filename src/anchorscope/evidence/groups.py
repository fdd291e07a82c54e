"""What tells Q-Anchored from A-Anchored answers: the knowledge boundary, self-awareness and saliency.

A sample is Q-Anchored here if the knockout flips its predicted class at the middle layer in at least half of the
draws (repeats and halves). Groups are compared within a predicted class, and pathways read within tenths of the clean
logit: what the predicted class and its confidence give away counts for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from anchorscope.evidence.anchored import Groups, difference
from anchorscope.evidence.claim import Claim, ClaimMeasure, Measure, at_depth
from anchorscope.evidence.dip import ALTERNATIVES, dip_test, dip_within
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray, IntArray, bins_of
from anchorscope.pathways.baselines import within_strata
from anchorscope.pathways.intervals import FloatArray, Resamples
from anchorscope.pathways.lookup import Lines
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.probes.fit import choose_strength, fit_layer
from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.readouts import read_out
from anchorscope.probes.record import SALIENCY
from anchorscope.store.stage import with_claims
from anchorscope.study.terms import MIN_GROUP

ACCURACY = Key("boundary_accuracy", stratum="Q-A")
AWARE = Key("awareness_beyond_confidence")
DIPS = ("dip", "dip_p_unimodal", "dip_p_two_groups")
TENTHS, FIFTHS = 10, 5
STRENGTHS = (1e-4, 1e-3, 1e-2)


def boundary_series(groups: Groups, labels: BoolArray, probability: FloatArray, drawn: Resamples) -> Iterator[Series]:
    """Accuracy of Q minus A within a predicted class, weighted by 1 / sampling probability."""
    gap = difference(labels.astype(np.float64), groups, 1 / probability, drawn.samples)
    if gap is not None:
        yield Series.of(ACCURACY, gap, len(labels))


def awareness_series(
    groups: Groups, states: FloatArray, clusters: IntArray, folds: Folds, drawn: Resamples, seed: int
) -> Iterator[Series]:
    """Can a probe read the pathway from clean states (sample, width), beyond predicted class and confidence?"""
    label = groups.q
    counts = min(len(np.unique(clusters[label])), len(np.unique(clusters[~label])))
    if counts < MIN_GROUP:
        return
    one = Folds(folds.fold[:1], folds.half[:1])
    strength = choose_strength([0], lambda _: states, label, clusters, one, STRENGTHS, seed=seed)
    scores = read_out(fit_layer(states, label, clusters, one, strength, seed=seed, parts=1), states, one)[:, 0]
    strata = bins_of(groups.clean, TENTHS)
    weights, votes = drawn.samples, np.ones((len(drawn), 1), np.float32)
    # near the boundary any shift flips: closeness to it is what confidence alone gives
    read, confident = (
        within_strata(label, values[:, :, None], strata, weights, votes)[:, 0]
        for values in (scores, -np.abs(groups.clean)[None])
    )
    yield Series.of(AWARE, read - confident, len(label))


def dip_series(prefix: str, values: FloatArray, strata: IntArray | None = None) -> Iterator[Series]:
    """The dip, how often one group has one as large, and how often two groups have one as small."""
    exact = np.asarray(values, np.float64)
    dip = dip_test(exact) if strata is None else dip_within(exact, strata)
    numbers = (dip.statistic, dip.p_unimodal, dip.p_two_groups)
    for name, number in zip(DIPS, numbers, strict=True):
        yield Series.of(Key(f"{prefix}_{name}"), np.array([number]), len(values))


# --- from the tables of a run


def _groups(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """Boundary, awareness, and whether the shift has two groups, within fifths of the clean logit."""
    study, groups = cell.study, cell.groups
    yield from boundary_series(groups, cell.readouts.labels, cell.readouts.probability, cell.drawn)
    _, clusters, folds = folds_of(cell.recorded.rows, study.probes, study.seed)
    states = cell.activations.layer("clean", cell.point, groups.layer)
    yield from awareness_series(groups, states, clusters, folds, cell.drawn, study.seed)
    yield from dip_series("shift", groups.change, bins_of(groups.clean, FIFTHS))


def _saliency(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """The dip of the logarithm of saliency, which is attention times gradient."""
    kind = SALIENCY.at(cell.point)
    if cell.cell.entry(kind) is None:
        return
    values = np.array([sum(row.of_logit) for row in cell.cell.table(kind)])
    # none where an answer is one token: its likelihood does not depend on what that token sees
    if (values > 0).sum() >= MIN_GROUP:
        yield from dip_series("saliency", np.log(values[values > 0]))


# --- the claims


def _dips(prefix: str) -> Measure:
    keys = tuple(Key(f"{prefix}_{name}") for name in DIPS)

    def measure(lines: Lines) -> ClaimMeasure | None:
        if any(key not in lines for key in keys):
            return None
        dip, p_unimodal, p_two_groups = (float(lines[key].value[0]) for key in keys)
        return ClaimMeasure([np.array([dip])], lines[keys[0]].n, p=(p_unimodal, p_two_groups))

    return Measure(keys, measure)


RULED_OUT = " and ".join(f"{100 * share:.0f} % of answers {apart:.0f} SD away" for share, apart in ALTERNATIVES)
ONE_OR_TWO = f"a uniform distribution (holds); {RULED_OUT} (does not hold if the dip is too small for both)"

CLAIMS = (
    Claim(
        "two_groups", "The shifts form two groups of answers far apart, not a continuum",
        "dip of Δlogit, mean over fifths of the clean logit", ONE_OR_TWO, 0, "above", _dips("shift"),
        primary=True,
    ),
    Claim(
        "boundary", "In a predicted class, Q-Anchored answers are right more often than others",
        "accuracy of Q minus A within a predicted class", "the predicted class", 0.1, "above",
        at_depth(0, ACCURACY),
    ),
    Claim(
        "readable", "Clean states show the pathway, beyond predicted class and confidence",
        "AUROC of a probe for Q at equal clean logit, minus the AUROC of confidence", "confidence", 0.05, "above",
        at_depth(0, AWARE),
    ),
)  # fmt: skip

OF_SALIENCY = (
    Claim(
        "two_groups_saliency", "Saliency forms two groups of answers far apart, not a continuum",
        "dip of log saliency", ONE_OR_TWO, 0, "above", _dips("saliency"),
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    "groups",
    _groups,
    (ACCURACY.statistic, AWARE.statistic, *(f"shift_{name}" for name in DIPS)),
    CLAIMS,
    wanted=with_claims,
)
SALIENCY_EXPERIMENT = Experiment("saliency", _saliency, tuple(f"saliency_{name}" for name in DIPS), OF_SALIENCY)
