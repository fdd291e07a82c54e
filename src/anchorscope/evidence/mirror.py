"""The mirror: read behind the answer, where question and answer lie before the reader alike, and cut either or both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from anchorscope.evidence.claim import HALF, Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import LEGEND, BoolArray, LineName, chart_curve, line
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.chart import Chart, Row
from anchorscope.pathways.intervals import FloatArray, Resamples, mean_auroc
from anchorscope.probes.record import MIRROR_READOUTS


def mirror_lines(labels: BoolArray, logits: Mapping[str, FloatArray], drawn: Resamples) -> Iterator[EvidenceLine]:
    """AUROC, what each cut loses, and what both lose beyond the sum. `logits` (repeat, sample, layer) by condition."""
    n = len(labels)
    ranked = {name: mean_auroc(labels, logits[name], drawn) for name in MIRROR_READOUTS}
    clean = ranked["mirror_clean"]
    yield line("mirror", "auroc", clean, n, "mirror_clean")
    lost = {name: ranked[name] - clean for name in MIRROR_READOUTS[1:]}
    for name, values in lost.items():
        yield line("mirror", "delta_auroc", values, n, name)
    both, question, answer = (lost[name] for name in ("mirror_both", "mirror_question", "mirror_answer"))
    yield line("mirror", "interaction", both - question - answer, n)
    yield line("mirror", "delta_auroc", answer - question, n, "mirror_answer-mirror_question")
    # by sample, towards the class that is predicted on the clean pass: mean change of the logit in standard deviations
    base = logits["mirror_clean"].mean(axis=0)
    sign = np.where(base > 0, 1.0, -1.0)
    weights = drawn.samples
    for name in MIRROR_READOUTS[1:]:
        change = sign * (logits[name].mean(axis=0) - base) / base.std(axis=0)
        yield line("mirror", "delta_logit", weights @ change / weights.sum(axis=1, keepdims=True), n, name)


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    return mirror_lines(cell.readouts.labels, cell.recorded.further, cell.drawn)


CLAIMS = (
    Claim(
        "mirror_answer", "Behind the answer, cutting the answer costs ranking",
        "ΔAUROC behind the answer, E_A cut for that reader, at the layer half-way up", "the clean pass", -0.02, "below",
        at_depth(HALF, LineName("mirror", "delta_auroc", "mirror_answer")),
    ),
    Claim(
        "mirror_question", "Behind the answer, cutting the question costs ranking",
        "ΔAUROC behind the answer, E_Q cut for that reader, at the layer half-way up", "the clean pass", -0.02, "below",
        at_depth(HALF, LineName("mirror", "delta_auroc", "mirror_question")),
    ),
    Claim(
        "mirror_interaction", "Behind the answer, question and answer stand in for each other",
        "ΔAUROC of both cuts minus the sum of either, at the layer half-way up", "the sum", -0.03, "below",
        at_depth(HALF, LineName("mirror", "interaction")),
    ),
)  # fmt: skip

CHART = Chart(
    "mirror",
    (
        Row(
            (
                chart_curve("mirror", "delta_auroc", "mirror_answer"),
                chart_curve("mirror", "delta_auroc", "mirror_question", dotted=True),
            ),
            "Read behind the answer: the answer cut (solid), the question cut (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when the answer is cut (solid) and when the question is (dotted)."
            ),
        ),
        Row(
            (chart_curve("mirror", "delta_auroc", "mirror_both"), chart_curve("mirror", "interaction", dotted=True)),
            "Both cut (solid); what both cost beyond the sum of either (dotted)", "ΔAUROC", 0.1,
            caption=(
                "When both are (solid), and by how much that exceeds the sum of either (dotted): below zero, one "
                "stands in for the other."
            ),
        ),
    ),
    LEGEND,
    "The mirror: probes read the first token behind the answer, and that token alone is forbidden to attend to the "
    "exact answer tokens, to the exact question tokens, or to both.",
    title="The mirror: read behind the answer",
    tab="mirror",
)  # fmt: skip

EXPERIMENT = Experiment("mirror", _lines, CLAIMS, charts=(CHART,))
