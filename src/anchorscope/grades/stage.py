"""From questions and answers to the `grades` table of one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.grades.judge import Case, grading_of
from anchorscope.grades.record import GRADES, Grade, Graded
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.store import Job, Sharded, Store
from anchorscope.store.stage import Context


def grades_stage(store: Store, model: str, dataset: str) -> Sharded[Graded]:
    """The `grades` table of one model and dataset."""
    spec, cell = store.study.grades, store.results(model, dataset)
    questions, answers = store.questions(dataset).table(QUESTIONS), cell.table(ANSWERS)
    begun = cell.entry(ANSWERS)
    assert begun is not None
    table = cell.begin(GRADES, answers.plan, {"answers": begun["inputs"], "grades": spec.identity()}, {})
    grade = grading_of(spec, store.root, ask=bool(table.missing()))

    return Sharded(
        f"{model}, {dataset}: grading",
        (table,),
        lambda shard, _: [graded(questions.read(shard), answers.read(shard), grade, spec.grader)],
    )


def graded(
    questions: Sequence[Question], answers: Sequence[Answer], grade: Callable[[Sequence[Case]], list[Grade]], by: str
) -> list[Graded]:
    """Grade some answers; a label that came with an answer stands."""
    cases = {
        answer.id: Case(answer.answer, question.answers, question.question)
        for question, answer in zip(questions, answers, strict=True)
        if answer.answered and answer.label is None
    }
    grades = dict(zip(cases, grade(list(cases.values())), strict=True))
    return [_row(answer, grades.get(answer.id), by) for answer in answers]


def _row(answer: Answer, grade: Grade | None, by: str) -> Graded:
    if grade is not None:
        return Graded(answer.id, grade.judgement, by, grade.reason, grade.alias, grade.start, grade.end)
    label = {True: "right", False: "wrong", None: None}[answer.label]
    return Graded(answer.id, label, "label" if label else None)


def stage_of(context: Context, job: Job) -> Sharded[Graded]:
    return grades_stage(context.store, job.model, job.dataset)
