"""Where an answer came from, in datasets whose passages contradict what a model may remember.

Such a dataset names the answers that a model may remember (`memory_answers`). An answer that agrees with the passage
counts as taken from it, and one that agrees with memory as remembered. All others are left out. If the route follows
the source, answers from the passage lose more log-probability without it than remembered ones do. A fragile answer
loses much under any cut, so the same comparison for a cut of the question's words serves as the control.

In such a dataset an answer from the passage stands in the text, and a remembered one does not. So the claim cannot tell
*taken from the passage* from *standing in it*. checks/context.py has both names under both passages, which can.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from anchorscope.evidence.claim import Claim, at_depth
from anchorscope.evidence.experiment import CellData, Experiment
from anchorscope.evidence.means import BoolArray, IntArray
from anchorscope.grades.grading import grader
from anchorscope.pathways.intervals import FloatArray, Resamples, mean_auroc
from anchorscope.pathways.record import Key
from anchorscope.pathways.series import Series
from anchorscope.questions.record import QUESTIONS
from anchorscope.study.terms import Condition

CUT: tuple[Condition, ...] = ("knockout", "knockout_context")
CLEAN: Condition = "clean"
AUROC, DIFFERENCE = "source_auroc", "knockout_context-knockout"


def source_series(
    taken: BoolArray, rows: IntArray, support: Mapping[str, FloatArray], drawn: Resamples
) -> Iterator[Series]:
    """How well the loss under each cut tells answers from the passage from remembered ones: AUROC.

    `rows`: samples whose source is known; `taken` (sample): from the passage. `support`, by condition, (sample):
    log-probability. No probe is fitted for it, so its interval is that of the bootstrap.
    """
    if not taken[rows].any() or taken[rows].all():
        return
    rarer = int(min(taken[rows].sum(), (~taken[rows]).sum()))
    areas: dict[str, FloatArray] = {}
    for name in CUT:
        lost = (support["clean"] - support[name])[None, :, None]
        by_repeat = np.broadcast_to(lost, (drawn.repeats.shape[1], len(taken), 1))
        areas[name] = mean_auroc(taken, by_repeat, drawn, rows)[:, 0]
        yield Series.of(Key(AUROC, name), areas[name], rarer)
    yield Series.of(Key(AUROC, DIFFERENCE), areas["knockout_context"] - areas["knockout"], rarer)


def sources(cell: CellData) -> tuple[BoolArray, IntArray]:
    """(sample): whether an answer was taken from the passage; and the samples of which that is known."""
    remembered = {
        question.id: question.memory_answers for question in cell.store.questions(cell.dataset).table(QUESTIONS)
    }
    rows = cell.recorded.rows
    taken = np.array([row.correct for row in rows], dtype=np.bool_)
    right = grader()
    known = [
        bool(row.correct) or bool(remembered[row.id] and right(row.answer, remembered[row.id], row.question).correct)
        for row in rows
    ]
    any_named = any(remembered[row.id] for row in rows)
    return taken, np.flatnonzero(known) if any_named else np.empty(0, np.int64)


def _series(cell: CellData, keys: Collection[Key]) -> Iterator[Series]:
    """From the log-probabilities that were traced with the states; nothing where no set contradicts memory."""
    if "knockout_context" not in cell.readouts.conditions:
        return
    taken, rows = sources(cell)
    if not len(rows):
        return
    support: dict[str, FloatArray] = {name: cell.activations.support(name).astype(np.float64) for name in (CLEAN, *CUT)}
    yield from source_series(taken, rows, support, cell.drawn)


CLAIMS = (
    Claim(
        "route_follows_source", "Answers that stand in the passage depend on it more than remembered ones that do not",
        "AUROC of the log-probability lost without the passage, for telling answers that agree with the passage from "
        "those that agree with memory, minus the same AUROC without the question's words; n is the rarer kind",
        "knockout; none for standing in the passage",
        0.05, "above", at_depth(0, Key(AUROC, DIFFERENCE)),
    ),
)  # fmt: skip

EXPERIMENT = Experiment(
    "source", _series, (AUROC,), CLAIMS, tables=tuple(Key(AUROC, name) for name in CUT), optional=True
)
