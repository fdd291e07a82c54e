"""Answer only: how well the probes tell right from wrong answers when the question is removed from the prompt."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.pathways.chart import LEGEND, Chart, Row, dotted, solid
from anchorscope.pathways.intervals import mean_auroc
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """AUROC with the question removed: the answer after the rest of the prompt, and after a BOS token alone."""
    labels, n = cell.readouts.labels, len(cell.readouts.labels)
    passes = {"answer_bare": cell.recorded.further["answer_bare"]}
    if "answer_only" in cell.readouts.conditions:
        passes["answer_only"] = cell.readouts.logits[cell.readouts.conditions.index("answer_only"), :, 0]
    for name, logits in passes.items():
        yield Series.of(Key(AUROC, name), mean_auroc(labels, logits, cell.drawn), n, cell.widening(Key("auroc")))


AUROC = "answer_only_auroc"

CHART = Chart(
    "answer_only",
    (
        Row(
            (
                solid(Key(AUROC, "answer_only")),
                dotted(Key(AUROC, "answer_bare")),
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

EXPERIMENT = Experiment("answer_only", _series, (AUROC,), charts=(CHART,))
