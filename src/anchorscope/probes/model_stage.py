"""The stages of probes that need a model: several answers to a question, and saliency."""

from __future__ import annotations

from anchorscope.answers.answerer import Answerer
from anchorscope.answers.record import Sampled
from anchorscope.answers.sampled import sampled_stage
from anchorscope.models.context import ModelContext
from anchorscope.probes.record import Salient, WithinReadout
from anchorscope.probes.saliency_readouts import saliency_stage
from anchorscope.probes.within_readouts import asked_again, mixed_in_last_round, within_stage
from anchorscope.questions.record import QUESTIONS
from anchorscope.store import Job, Sharded
from anchorscope.traces.record import TRACES


def sampled_of(context: ModelContext, job: Job) -> Sharded[Sampled]:
    store, cell = context.store, job.cell(context.store)
    evidence = store.study.evidence
    assert evidence is not None
    questions = asked_again(list(cell.table(TRACES)), evidence.questions, store.study.seed)
    if all(row.given is not None for row in store.questions(job.dataset).table(QUESTIONS)):
        questions = []  # nobody is asked where answers are given
    answerer = context.resource(Answerer, job.model, "generation")
    return sampled_stage(answerer, job.dataset, store, questions, mixed_in_last_round(store, job.dataset))


def within_of(context: ModelContext, job: Job) -> Sharded[WithinReadout]:
    return within_stage(context.model(job.model), context.prompter(job.model), job.dataset, context.store)


def saliency_of(context: ModelContext, job: Job) -> Sharded[Salient]:
    return saliency_stage(context.model(job.model), context.prompter(job.model).shared_ids, job.dataset, context.store)
