"""The third route: what the probe loses without the passage that an answer was given with.

This experiment needs a dataset with passages and the conditions that cut them. Routes are not exclusive classes: what
a sample loses without the passage, without the question's words and without both are three numbers, and each may be
large. The interaction is the change of AUROC with both cut minus the sum of the changes with each cut alone. It is
below zero where either one is enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from anchorscope.evidence.chart_figures import ROUTES
from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import weighted_mean
from anchorscope.pathways.intervals import Resamples, mean_auroc
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.probes.readouts import Readouts
from anchorscope.study import Study

CUT = ("knockout_context", "knockout", "knockout_both")
INTERACTION, SHARE = Key("routes_interaction"), "routes_share"
FLIPS = ("context_alone", "question_alone", "either", "neither")


def route_series(readouts: Readouts, drawn: Resamples) -> Iterator[Series]:
    """The interaction of two cuts, and which answers flip under which; nothing without passages."""
    conditions, labels, n = readouts.conditions, readouts.labels, len(readouts.labels)
    if "knockout_context" not in conditions:
        return
    whole = {name: readouts.logits[conditions.index(name), :, 0] for name in ("clean", *CUT) if name in conditions}
    if "knockout_both" in whole:
        clean, *cut = (mean_auroc(labels, whole[name], drawn) for name in ("clean", *CUT))
        lost = dict(zip(CUT, (areas - clean for areas in cut), strict=True))
        interaction = lost["knockout_both"] - lost["knockout_context"] - lost["knockout"]
        yield Series.of(INTERACTION, interaction, n)
    context, question = ((whole[name] > 0) != (whole["clean"] > 0) for name in CUT[:2])
    members = (context & ~question, question & ~context, context & question, ~context & ~question)
    for name, flipped in zip(FLIPS, members, strict=True):
        share = weighted_mean(flipped.mean(axis=0).astype(np.float64), drawn.samples)
        yield Series.of(Key(SHARE, name), share, n)


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    return route_series(cell.readouts, cell.drawn)


def with_passages(study: Study) -> bool:
    """Studies that cut passages want it."""
    return "knockout_context" in study.traces.conditions


def _loss(condition: str) -> Key:
    return Key("delta_auroc", condition)


CLAIMS = (
    Claim(
        "context_beyond_permuted", "Cutting the passage hurts ranking by more than the permutation null",
        "ΔAUROC, knockout_context minus permuted_context, at the middle layer", "permuted_context",
        -0.02, "below", at_depth(HALF, _loss("knockout_context-permuted_context")),
    ),
    Claim(
        "swap_beyond_permuted", "Another passage instead hurts ranking by more than the permutation null",
        "ΔAUROC, swapped_context minus permuted_swap, at the middle layer", "permuted_swap",
        -0.02, "below", at_depth(HALF, _loss("swapped_context-permuted_swap")),
    ),
    Claim(
        "evidence_beyond_control", "Cutting sentences with an answer hurts ranking more than cutting others",
        "ΔAUROC, matched_evidence minus control_evidence, at the middle layer", "control_evidence",
        -0.02, "below", at_depth(HALF, _loss("matched_evidence-control_evidence")),
    ),
    Claim(
        "context_over_question", "Cutting the passage hurts ranking more than cutting the question's words",
        "ΔAUROC, knockout_context minus knockout, at the middle layer", "knockout",
        -0.02, "below", at_depth(HALF, _loss("knockout_context-knockout")),
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    "routes",
    _series,
    (INTERACTION.statistic, SHARE),
    CLAIMS,
    (ROUTES,),
    (INTERACTION, *(Key(SHARE, name) for name in FLIPS)),
    optional=True,
    wanted=with_passages,
)
