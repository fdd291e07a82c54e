"""Answer only: how well the probes tell right from wrong answers when the question is removed from the prompt."""

from __future__ import annotations

from collections.abc import Iterator

from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.lines import LEGEND, chart_curve, line
from anchorscope.evidence.record import EvidenceLine
from anchorscope.pathways.chart import Chart, Row
from anchorscope.pathways.intervals import mean_auroc


def _lines(cell: CellData) -> Iterator[EvidenceLine]:
    """AUROC with the question removed: the answer after the rest of the prompt, and after a BOS token alone."""
    labels, n = cell.readouts.labels, len(cell.readouts.labels)
    passes = {"answer_bare": cell.recorded.further["answer_bare"]}
    if "answer_only" in cell.readouts.conditions:
        at = cell.readouts.conditions.index("answer_only")
        passes["answer_only"] = cell.readouts.logits[at, :, 0]
    for name, logits in passes.items():
        yield line("answer_only", "auroc", mean_auroc(labels, logits, cell.drawn), n, name)


CHART = Chart(
    "answer_only",
    (
        Row(
            (
                chart_curve("answer_only", "auroc", "answer_only"),
                chart_curve("answer_only", "auroc", "answer_bare", dotted=True),
            ),
            "AUROC without the question: answer after the examples (solid), after BOS alone (dotted)", "AUROC", 0.1,
            0.5,
            dotted="answer after the BOS token alone",
        ),
    ),
    LEGEND,
    "How well the probes of the clean pass tell right from wrong answers when the question is removed from the prompt. "
    "The answer then follows the examples and the cue (solid), or the BOS (beginning-of-sequence) token alone (dotted)."
    " The level line is chance.",
    title="Without the question",
    tab="mirror",
)  # fmt: skip

EXPERIMENT = Experiment("answer_only", _lines, charts=(CHART,))
