"""The third route: what the probe loses without the passage that an answer was given with.

This experiment needs a dataset with passages and the conditions that cut them. Routes are not exclusive classes: what
a sample loses without the passage, without the question's words and without both are three numbers, and each may be
large. The interaction is the change of AUROC with both cut minus the sum of the changes with each cut alone. It is
below zero where either one is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import LineName, line, weighted_mean
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.intervals import Resamples, mean_auroc
from anchorscope.pathways.shifts import make_donors
from anchorscope.pathways.statistics import PERMUTED
from anchorscope.probes.readouts import Readouts

DRAWS = 5  # of donors, as in the pathways
CUT = ("knockout_context", "knockout", "knockout_both")
NULLS = {cut: null for null, cut in PERMUTED.items() if cut != "knockout"}
"""The permutation null of each change of the passage."""


def route_lines(readouts: Readouts, drawn: Resamples, seed: int = 0) -> Iterator[EvidenceLine]:
    """ΔAUROC of each cut beyond its null, the interaction, and which answers flip; nothing without passages."""
    conditions, labels, n = readouts.conditions, readouts.labels, len(readouts.labels)
    if "knockout_context" not in conditions:
        return
    whole = readouts.logits[:, :, 0]  # (condition, repeat, sample, layer)
    clean = mean_auroc(labels, whole[0], drawn)
    lost = {
        name: mean_auroc(labels, whole[conditions.index(name)], drawn) - clean
        for name in (*CUT, "knockout_evidence", "matched_evidence", "control_evidence", "swapped_context")
        if name in conditions
    }
    # 1. the passage cut or swapped, beyond the shift of another answer
    donors = make_donors(readouts.clusters, DRAWS, seed)
    for name, null_name in NULLS.items():
        if name in lost:
            change = whole[conditions.index(name)] - whole[0]
            null = np.mean([mean_auroc(labels, whole[0] + change[:, donor], drawn) for donor in donors], axis=0) - clean
            yield line("routes", "delta_auroc", lost[name] - null, n, f"{name}-{null_name}")
    yield line("routes", "delta_auroc", lost["knockout_context"] - lost["knockout"], n, "knockout_context-knockout")
    # 2. the sentences that hold an answer, beyond as much of the others
    if {"matched_evidence", "control_evidence"} <= lost.keys():
        beyond = lost["matched_evidence"] - lost["control_evidence"]
        yield line("routes", "delta_auroc", beyond, n, "matched_evidence-control_evidence")
    # 3. both at once, and who flips under which
    if "knockout_both" in lost:
        interaction = lost["knockout_both"] - lost["knockout_context"] - lost["knockout"]
        yield line("routes", "interaction", interaction, n)
    flips = {name: (whole[conditions.index(name)] > 0) != (whole[0] > 0) for name in CUT if name in conditions}
    context, question = flips["knockout_context"], flips["knockout"]
    groups = {
        "context_alone": context & ~question,
        "question_alone": question & ~context,
        "either": context & question,
        "neither": ~context & ~question,
    }
    for name, members in groups.items():
        yield line("routes", "share", weighted_mean(members.mean(axis=0).astype(np.float64), drawn.samples), n, name)


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    return route_lines(cell.readouts, cell.drawn, cell.study.seed)


def _at_half(condition: str) -> LineName:
    return LineName("routes", "delta_auroc", condition)


CLAIMS = (
    Claim(
        "context_beyond_permuted", "Cutting the passage hurts ranking by more than the permutation null",
        "ΔAUROC, knockout_context minus permuted_context, at the middle layer", "permuted_context",
        -0.02, "below", at_depth(HALF, _at_half("knockout_context-permuted_context")),
    ),
    Claim(
        "swap_beyond_permuted", "Another passage instead hurts ranking by more than the permutation null",
        "ΔAUROC, swapped_context minus permuted_swap, at the middle layer", "permuted_swap",
        -0.02, "below", at_depth(HALF, _at_half("swapped_context-permuted_swap")),
    ),
    Claim(
        "evidence_beyond_control", "Cutting sentences with an answer hurts ranking more than cutting others",
        "ΔAUROC, matched_evidence minus control_evidence, at the middle layer", "control_evidence",
        -0.02, "below", at_depth(HALF, _at_half("matched_evidence-control_evidence")),
    ),
    Claim(
        "context_over_question", "Cutting the passage hurts ranking more than cutting the question's words",
        "ΔAUROC, knockout_context minus knockout, at the middle layer", "knockout",
        -0.02, "below", at_depth(HALF, _at_half("knockout_context-knockout")),
    ),
)  # fmt: skip

EXPERIMENT = Experiment("routes", _lines, CLAIMS, optional=True)
