"""Questions, answers, grades and spans side by side: the samples of one model and dataset, read as they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.errors import StoreError
from anchorscope.grades.record import CORRECT, GRADES, Graded
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.spans.find import disagrees
from anchorscope.spans.record import SPANS, Spans
from anchorscope.store import Cell, Store


@dataclass(frozen=True)
class Sample:
    """A question, its answer, grade and spans."""

    question: Question
    answer: Answer
    grade: Graded
    spans: Spans
    """Which tokens are what; `dropped` says why a sample cannot be used."""

    @property
    def exact_tokens(self) -> int:
        """The number of tokens of the answer up to its last exact one."""
        return self.spans.answer_last - self.spans.answer[0] + 1


def read_samples(store: Store, model: str, dataset: str, ids: Collection[str] | None = None) -> Iterator[Sample]:
    """The samples of one model and dataset, in order, dropped ones included; those of some questions, or all."""
    cell = store.results(model, dataset)
    tables = (
        store.questions(dataset).table(QUESTIONS).rows(ids),
        cell.table(ANSWERS).rows(ids),
        cell.table(GRADES).rows(ids),
        cell.table(SPANS).rows(ids),
    )
    for question, answer, grade, spans in zip(*tables, strict=True):
        size = spans.answer[1] - spans.answer[0] if spans.answer else len(answer.answer_ids)
        if size != len(answer.answer_ids) or not question.id == answer.id == grade.id == spans.id:
            raise _unlike(cell)
        yield Sample(question, answer, grade, spans)


def usable(store: Store, model: str, dataset: str) -> Iterator[tuple[str, bool]]:
    """The ids of samples that can be traced and whether their answer is right, in order."""
    cell = store.results(model, dataset)
    grades, spans = cell.table(GRADES).values("id", "judgement"), cell.table(SPANS).values("id", "dropped")
    for (name, judgement), (other, dropped) in zip(grades, spans, strict=True):
        if name != other:
            raise _unlike(cell)
        if dropped is None and (correct := CORRECT.get(judgement)) is not None:
            yield name, correct


def _unlike(cell: Cell) -> StoreError:
    return StoreError(
        f"{cell.folder}: answers and spans do not fit together", "Run: anchorscope run STUDY --until answers"
    )


def summary(cell: Cell) -> dict[str, Any]:
    """How many answers there are, how many are right, and why others cannot be graded or were dropped.

    Also in how many the exact answer ends at another word than what the grader found.
    """
    counts: Counter[str] = Counter()
    untold: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for answer, grade, spans in zip(cell.table(ANSWERS), cell.table(GRADES), cell.table(SPANS), strict=True):
        counts["answers"] += answer.answered
        counts["right"] += grade.judgement == "right"
        if grade.judgement == "cannot_tell":
            untold[grade.reason or ""] += 1
        if spans.dropped is not None:
            dropped[spans.dropped] += 1
        elif grade.judgement == "right" and grade.alias_start is not None and grade.alias_end is not None:
            counts["compared"] += 1
            first, last = spans.exact_answer_text
            counts["disagree"] += disagrees(answer.answer, (first, last), (grade.alias_start, grade.alias_end))
    aside = len(cell.table(ANSWERS).aside())
    return {**counts, "cannot_tell": dict(untold), "dropped": dict(dropped), "set_aside": aside}
