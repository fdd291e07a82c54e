"""Questions, answers and spans side by side: the samples of one model and dataset, read as they are needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.errors import StoreError
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.spans.find import disagrees
from anchorscope.spans.record import SPANS, Spans
from anchorscope.store import Cell, Store


@dataclass(frozen=True)
class Sample:
    """A question, its answer and its spans."""

    question: Question
    """What was asked."""
    answer: Answer
    """What was answered, and its grade."""
    spans: Spans
    """Which tokens are what; `dropped` says why a sample cannot be used."""


def read_samples(store: Store, model: str, dataset: str) -> Iterator[Sample]:
    """The samples of one model and dataset, in order, dropped ones included."""
    cell = store.results(model, dataset)
    rows = zip(store.questions(dataset).table(QUESTIONS), cell.table(ANSWERS), cell.table(SPANS), strict=True)
    for question, answer, spans in rows:
        size = spans.answer[1] - spans.answer[0] if spans.answer else len(answer.answer_ids)
        if size != len(answer.answer_ids) or not question.id == answer.id == spans.id:
            raise StoreError(f"{cell.folder}: answers and spans do not fit together", "Run: anchorscope answer STUDY")
        yield Sample(question, answer, spans)


def summary(cell: Cell) -> dict[str, Any]:
    """How many answers there are, how many are right, what was dropped and why, and where grade and rule disagree."""
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for answer, spans in zip(cell.table(ANSWERS), cell.table(SPANS), strict=True):
        counts["answers"] += answer.correct is not None
        counts["right"] += answer.correct is True
        if spans.dropped is not None:
            dropped[spans.dropped] += 1
        elif answer.alias_start is not None and answer.alias_end is not None:
            counts["compared"] += 1
            first, last = spans.exact_answer_text
            counts["disagree"] += disagrees(answer.answer, (first, last), (answer.alias_start, answer.alias_end))
    return {**counts, "dropped": dict(dropped)}
