"""The mirror: read the token after the answer, which can attend to question and answer, and cut either or both."""

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
    """AUROC, the loss under each cut, and the loss under both beyond their sum.

    `logits` (repeat, sample, layer) by condition.
    """
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
        "mirror_answer", "Read after the answer, cutting the answer hurts ranking",
        "ΔAUROC at the token after the answer, E_A cut for that token, at the middle layer", "the clean pass",
        -0.02, "below",
        at_depth(HALF, LineName("mirror", "delta_auroc", "mirror_answer")),
    ),
    Claim(
        "mirror_question", "Read after the answer, cutting the question hurts ranking",
        "ΔAUROC at the token after the answer, E_Q cut for that token, at the middle layer", "the clean pass",
        -0.02, "below",
        at_depth(HALF, LineName("mirror", "delta_auroc", "mirror_question")),
    ),
    Claim(
        "mirror_interaction", "Read after the answer, question and answer can replace each other",
        "ΔAUROC with both cut minus the sum of each cut alone, at the middle layer", "the sum", -0.03, "below",
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
            "Read after the answer: the answer cut (solid), the question cut (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when the answer is cut (solid) and when the question is cut (dotted)."
            ),
            dotted="question cut",
        ),
        Row(
            (chart_curve("mirror", "delta_auroc", "mirror_both"), chart_curve("mirror", "interaction", dotted=True)),
            "Both cut (solid), and that change minus the sum of each cut alone (dotted)", "ΔAUROC", 0.1,
            caption=(
                "Change of AUROC when both are cut (solid), and that change minus the sum of each cut alone (dotted). "
                "Below zero, one can replace the other."
            ),
            dotted="both cut minus the sum of each alone",
        ),
    ),
    LEGEND,
    "Probes read the first token after the answer, and only that token is prevented from attending to the exact answer "
    "tokens, to the exact question tokens, or to both.",
    title="The mirror: read after the answer",
    tab="mirror",
)  # fmt: skip

EXPERIMENT = Experiment("mirror", _lines, CLAIMS, charts=(CHART,))
