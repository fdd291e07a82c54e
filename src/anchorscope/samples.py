"""The third stage: from answers to the `spans` table, and both tables side by side as samples.

A sample without valid spans is dropped with its reason; what the tables hold says how many each reason took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anchorscope.answers.stage import TABLE as ANSWERS
from anchorscope.answers.stage import Answer
from anchorscope.errors import StoreError
from anchorscope.models.load import Model
from anchorscope.progress import Progress, silent
from anchorscope.prompts import Prompter
from anchorscope.questions.question import Question
from anchorscope.questions.stage import TABLE as QUESTIONS
from anchorscope.spans import Spans, disagrees, find_spans
from anchorscope.store import Cell, Store
from anchorscope.table import Table

TABLE = "spans"


def write_spans(model: Model, dataset: str, store: Store, progress: Progress = silent) -> Table[Spans]:
    """Write the `spans` table of one model and dataset, or what is missing of it."""
    study, cell = store.study, store.results(model.name, dataset)
    questions = store.questions(dataset).table(QUESTIONS, Question)
    answers = cell.table(ANSWERS, Answer)
    begun = cell.plan(ANSWERS)
    assert begun is not None
    inputs = {"answers": begun["inputs"], "spans": study.spans.model_dump(mode="json"), "seed": study.seed}
    table = cell.begin(TABLE, Spans, answers.plan, inputs, {})
    missing = table.missing()
    if not missing:
        return table
    prompter = Prompter(model.tokenizer, study.prompt_for(model.spec), model.wants_bos)
    with progress(f"{model.name}, {dataset}: finding exact tokens", table.plan.rows) as advance:
        for shard in range(table.plan.shards):
            if shard in missing:
                table.write(shard, _spans(questions.read(shard), answers.read(shard), prompter, store))
            advance(len(table.plan.rows_of(shard)))
    return table


def _spans(questions: list[Question], answers: list[Answer], prompter: Prompter, store: Store) -> list[Spans]:
    study, found = store.study, []
    prompts = prompter.many([(q.question, a.context) for q, a in zip(questions, answers, strict=True)])
    for question, answer, prompt in zip(questions, answers, prompts, strict=True):
        if prompt.ids != prompter.shared_ids + answer.prompt_ids:
            raise StoreError(f"the prompt of question '{question.id}' is not the one that was answered")
        found.append(
            find_spans(
                prompt,
                answer.answer_ids,
                answer.answer,
                question,
                prompter.tokenizer,
                study.spans.exact_question,
                study.spans.controls,
                study.seed,
            )
        )
    return found


@dataclass(frozen=True)
class Sample:
    """A question, its answer and its spans."""

    question: Question
    answer: Answer
    spans: Spans


def read_samples(store: Store, model: str, dataset: str) -> Iterator[Sample]:
    """The samples of one model and dataset, in order, dropped ones included."""
    cell = store.results(model, dataset)
    rows = zip(
        store.questions(dataset).table(QUESTIONS, Question),
        cell.table(ANSWERS, Answer),
        cell.table(TABLE, Spans),
        strict=True,
    )
    for question, answer, spans in rows:
        size = spans.answer[1] - spans.answer[0] if spans.answer else len(answer.answer_ids)
        if size != len(answer.answer_ids) or not question.id == answer.id == spans.id:
            raise StoreError(f"{cell.folder}: answers and spans do not fit together", "Run: anchorscope answer STUDY")
        yield Sample(question, answer, spans)


def summary(cell: Cell) -> dict[str, Any]:
    """How many answers there are, how many are right, what was dropped and why, and where grade and rule disagree."""
    counts: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for answer, spans in zip(cell.table(ANSWERS, Answer), cell.table(TABLE, Spans), strict=True):
        counts["answers"] += answer.correct is not None
        counts["right"] += answer.correct is True
        if spans.dropped is not None:
            dropped[spans.dropped] += 1
        elif answer.alias_start is not None and answer.alias_end is not None:
            counts["compared"] += 1
            first, last = spans.exact_answer_text
            counts["disagree"] += disagrees(answer.answer, (first, last), (answer.alias_start, answer.alias_end))
    return {**counts, "dropped": dict(dropped)}
