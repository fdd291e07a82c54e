"""From the `questions` table to the `answers` table of one model."""

from __future__ import annotations

from collections.abc import Callable

from anchorscope.answers.answerer import Answerer
from anchorscope.answers.given import GivenAnswers
from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.models.context import ModelContext
from anchorscope.progress import Advance, Notice, nobody
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.store import Guard, Job, Plan, Sharded, Store, Table
from anchorscope.store.table import Aside
from anchorscope.study.terms import ENOUGH_RIGHT

FEW = 5  # right answers from which no share is told
IsRight = Callable[[Question, Answer], bool]
"""Whether an answer is taken for right, for an early look."""


def answers_stage(
    answerer: Answerer, dataset: str, store: Store, right: IsRight | None = None, notice: Notice = nobody
) -> Sharded[Answer]:
    """The `answers` table of one model and dataset. A question on which the model fails is set aside, unanswered.

    After the first shard it says if right answers will be too few, where `right` says which are.
    """
    model = answerer.model
    questions = store.questions(dataset).table(QUESTIONS)
    if answerer.given is not None and dataset == store.study.datasets[0].name:
        _tell_unmatched(answerer.given, store, notice)
    table = _begin(answerer, dataset, store, questions.plan)
    looked_at: list[int] = []
    guard: Guard[Question] = Guard(table, lambda question: question.id)
    aside: dict[int, list[Aside]] = {}

    def answer(shard: int, advance: Advance) -> list[list[Answer]]:
        shard_questions = questions.read(shard)
        answers, aside[shard] = guard(shard, shard_questions, lambda rows: answerer(rows, advance))
        answered = {row.id: row for row in answers}
        rows = [answered.get(row.id) or answerer.unanswered(row) for row in shard_questions]
        if right is not None and not looked_at:
            looked_at.append(shard)
            warning = too_few(sum(map(right, shard_questions, rows)), len(rows), table.plan.rows)
            if warning:
                notice(f"{model.name}, {dataset}: {warning}")
        return [rows]

    return Sharded(f"{model.name}, {dataset}: answering", (table,), answer, aside=aside, guarded=True)


def _tell_unmatched(given: GivenAnswers, store: Store, notice: Notice) -> None:
    """Say how many answers of the file belong to no question of the study."""
    tables = [store.questions(dataset.name) for dataset in store.study.datasets]
    if all(cell.complete(QUESTIONS) for cell in tables):
        count = given.unmatched(row for cell in tables for row in cell.table(QUESTIONS))
        if count:
            notice(f"{store.study.answers.file}: {count:,} of {len(given):,} answers match no question of the study")


def too_few(correct: int, answered: int, total: int, wanted: int = ENOUGH_RIGHT) -> str | None:
    """Say early when a sample will not give probes enough right answers, and how large it would have to be."""
    expected = correct / answered * total
    if expected >= wanted:
        return None
    if correct < FEW:
        return (
            f"{correct:,} of {answered:,} answers right so far; probes want {wanted}. That is too few to say how many "
            "questions it would take."
        )
    rate = correct / answered
    return (
        f"{100 * correct / answered:.1f} % right so far, so {total:,} questions will give about {expected:,.0f} right "
        f"answers; probes want {wanted}. Sample about {wanted / rate:,.0f} questions."
    )


def _begin(answerer: Answerer, dataset: str, store: Store, plan: Plan) -> Table[Answer]:
    """Begin the table with all it is a function of."""
    spec = store.study.answers.model_dump(mode="json")
    if answerer.given is not None:
        spec["file"] = answerer.given.sha256
    dtype = next((m.dtype for m in store.study.models if m.name == answerer.model.name), answerer.model.spec.dtype)
    inputs = {
        "questions": store.questions(dataset).origin(QUESTIONS),
        "model": answerer.model.fingerprint,
        "prompt": answerer.prompter.describe(),
        "answers": spec,
    }
    facts = {
        "batch_plan": "rows of similar length, rows × (longest + max_new_tokens) ≤ batch_tokens, within a shard",
        "dtype": f"asked for {dtype}, taken {answerer.model.fingerprint['dtype']}",
    }
    return store.results(answerer.model.name, dataset).begin(ANSWERS, plan, inputs, facts)


def stage_of(context: ModelContext, job: Job) -> Sharded[Answer]:
    answerer = context.resource(Answerer, job.model, "generation")
    return answers_stage(answerer, job.dataset, context.store, context.right, context.notice)
