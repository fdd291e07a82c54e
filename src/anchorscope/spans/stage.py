"""From answers to the `spans` table.

A sample without valid spans is dropped with its reason; what the table holds says how many each reason took.
"""

from __future__ import annotations

from collections.abc import Sequence

from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.errors import StoreError
from anchorscope.models.context import ModelContext
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.record import SPANS, Spans
from anchorscope.store import Job, Sharded, Store


def spans_stage(model: Model, dataset: str, store: Store) -> Sharded[Spans]:
    """The `spans` table of one model and dataset."""
    study, cell = store.study, store.results(model.name, dataset)
    questions, answers = store.questions(dataset).table(QUESTIONS), cell.table(ANSWERS)
    begun = cell.entry(ANSWERS)
    assert begun is not None
    inputs = {"answers": begun["inputs"], "spans": study.spans.model_dump(mode="json"), "seed": study.seed}
    table = cell.begin(SPANS, answers.plan, inputs, {})
    maker = SampleMaker.of(Prompter(model.tokenizer, study.prompt_for(model.spec), model.wants_bos), study)
    return Sharded(
        f"{model.name}, {dataset}: finding exact tokens",
        (table,),
        lambda shard, _: [_spans(questions.read(shard), answers.read(shard), maker)],
    )


def _spans(questions: Sequence[Question], answers: Sequence[Answer], maker: SampleMaker) -> list[Spans]:
    """The spans of some samples, in prompts made again and compared with those that were answered."""
    spans = []
    prompts = maker.prompter.many([(q.question, a.context) for q, a in zip(questions, answers, strict=True)])
    for question, answer, prompt in zip(questions, answers, prompts, strict=True):
        if prompt.ids != maker.prompter.shared_ids + answer.prompt_ids:
            raise StoreError(f"the prompt of question '{question.id}' differs from the one that was answered")
        spans.append(maker.spans(question, prompt, answer.answer_ids, answer.answer))
    return spans


def stage_of(context: ModelContext, job: Job) -> Sharded[Spans]:
    return spans_stage(context.model(job.model, "tokenizer"), job.dataset, context.store)
