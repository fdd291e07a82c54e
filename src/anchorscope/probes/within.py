"""Several answers to one question, read out by probes that were fitted on other questions' greedy answers.

Of the answers that were sampled to a question those that can be graded and read are kept, where some are right and some
are wrong: a few of each, drawn by a hash. Each is traced as a greedy answer is; the cuts are the same, as they lie in
the question. Probes are applied at once, those of the fold in which the question is tested, and only read-outs stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.record import SAMPLED, Answer, Sampled
from anchorscope.grades.judge import Case, grading_of
from anchorscope.grades.record import Grade, Graded
from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem
from anchorscope.probes.readouts import read_out_some
from anchorscope.probes.record import READOUTS, WITHIN, WithinReadout
from anchorscope.questions.record import QUESTIONS, Question
from anchorscope.spans.find import find_spans
from anchorscope.spans.record import Spans
from anchorscope.spans.samples import Sample
from anchorscope.store import Plan, Sharded
from anchorscope.study.terms import Condition, ReadPoint
from anchorscope.traces.activations import tensor_name
from anchorscope.traces.record import TRACES, Trace
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.models.prompts import Prompter
    from anchorscope.store import Store


CONDITIONS: tuple[Condition, ...] = ("clean", "knockout", "matched_question", "control_question", "answer_only")
"""What is read, as far as a study has it."""
ANSWERS_EACH = 128  # per shard


class Said(NamedTuple):
    """One of the answers to a question, graded."""

    question: Question
    """What was asked."""
    sampled: Sampled
    """All that was answered to it."""
    number: int
    """Which of the distinct answers it is."""
    text: str
    """What it says."""
    ids: list[int]
    """Its tokens."""
    logprobs: list[float]
    """Log-probability (natural) of each."""
    times: int
    """How many of the sampled answers say it."""
    grade: Grade
    """What is known of it."""
    spans: Spans
    """Which tokens are what."""


def asked_again(rows: Sequence[Trace], count: int, seed: int) -> list[str]:
    """Which traced questions are answered several times: the first by a hash of seed and id, in their order."""
    ranked = sorted(rows, key=lambda row: hashlib.blake2b(f"{seed}/within/{row.id}".encode(), digest_size=8).digest())
    drawn = {row.id for row in ranked[:count]}
    return [row.id for row in rows if row.id in drawn]


@dataclass(frozen=True)
class Reader:
    """Grades sampled answers and finds their exact tokens."""

    store: Store
    """The run."""
    prompter: Prompter
    """Puts questions to the model."""

    def __call__(self, model: str, dataset: str) -> Iterator[list[Said]]:
        """The answers to each question that can be graded and read, question by question."""
        study, cell = self.store.study, self.store.results(model, dataset)
        grade = grading_of(study.grades, self.store.root)
        questions = {row.id: row for row in self.store.questions(dataset).table(QUESTIONS)}
        for sampled in cell.table(SAMPLED):
            question = questions[sampled.id]
            prompt = self.prompter(question.question, sampled.context)
            grades = grade([Case(text, question.answers, question.question) for text in sampled.texts])
            said = []
            for number, ((text, ids, logprobs, times), each) in enumerate(zip(sampled.answers(), grades, strict=True)):
                spans = find_spans(
                    prompt,
                    ids,
                    text,
                    question,
                    self.prompter.tokenizer,
                    study.spans.exact_question,
                    study.spans.controls,
                    study.seed,
                )
                if each.correct is not None and spans.dropped is None:
                    said.append(Said(question, sampled, number, text, ids, logprobs, times, each, spans))
            yield said


def mixed(said: Sequence[Said], most: int, seed: int) -> list[Said]:
    """Of the answers to one question at most so many right and wrong ones each; none where all are alike."""
    kept: list[Said] = []
    for correct in (True, False):
        some = [each for each in said if each.grade.correct is correct]
        if not some:
            return []
        some.sort(key=lambda each: hashlib.blake2b(f"{seed}/{each.question.id}/{each.text}".encode()).digest())
        kept += some[:most]
    return sorted(kept, key=lambda each: each.number)


def within_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[WithinReadout]:
    """The `within` tables of one model and dataset, one for every read point, filled side by side."""
    study, cell = store.study, store.results(model.name, dataset)
    assert study.evidence is not None
    # 1. which answers
    rows = list(cell.table(TRACES))
    place = {row.id: i for i, row in enumerate(rows)}
    every = Reader(store, prompter)(model.name, dataset)
    answers = [each for said in every for each in mixed(said, study.evidence.distinct, study.seed)]
    # 2. who reads them out, and under which conditions
    folds = folds_of(rows, study.probes, study.seed)[2]
    points = study.traces.points
    probes = {point: load_probes(probes_stem(cell, point))[0] for point in points}
    conditions = [each for each in CONDITIONS if each in study.traces.conditions]
    spec = study.traces.model_copy(update={"conditions": conditions})
    tracer = Tracer(model, prompter.shared_ids, spec.sites)
    # 3. a table for every read point
    chosen = {"distinct": study.evidence.distinct, "conditions": conditions, "grades": study.grades.identity()}
    tables = tuple(
        cell.begin(
            WITHIN.at(point),
            Plan(len(answers), ANSWERS_EACH),
            {"readouts": cell.origin(READOUTS.at(point)), "sampled": cell.origin(SAMPLED), "within": chosen},
            {},
        )
        for point in points
    )

    def read(shard: int) -> list[list[WithinReadout]]:
        some = answers[shard * ANSWERS_EACH : (shard + 1) * ANSWERS_EACH]
        states = trace_samples(tracer, [_sample(each) for each in some], spec)
        members = np.array([place[each.question.id] for each in some])
        return [
            [*_records(some, read_states(states, point, conditions, probes[point], folds, members))] for point in points
        ]

    return Sharded(f"{model.name}, {dataset}: reading several answers", tables, read)


def read_states(
    states: dict[str, Any],
    point: ReadPoint,
    conditions: Sequence[Condition],
    probes: Sequence[LayerProbes],
    folds: Folds,
    members: NDArray[np.int64],
) -> NDArray[np.float32]:
    """(sample, condition, repeat, layer), by the whole probes, of states as `trace_samples` gives them.

    `members`: which of the traced samples lends each its fold.
    """
    by_layer = []
    for layer, each in enumerate(probes):
        x = np.stack([states[tensor_name(name, point)][layer].float().numpy() for name in conditions], axis=1)
        by_layer.append(read_out_some(each, x, folds, members)[:, 0])  # (repeat, sample, condition)
    return np.stack(by_layer, axis=-1).transpose(1, 2, 0, 3).astype(np.float32)


def _sample(said: Said) -> Sample:
    """As a greedy answer stands in the tables."""
    answer = Answer(
        id=said.question.id,
        context=said.sampled.context,
        prompt_ids=said.sampled.prompt_ids,
        answer_ids=said.ids,
        logprobs=said.logprobs,
        answer=said.text,
        ended=bool(said.sampled.ended[said.number]),
        answered=True,
        label=None,
    )
    grade = Graded(said.question.id, said.grade.judgement, None, None, None, None, None)
    return Sample(said.question, answer, grade, said.spans)


def _records(said: Sequence[Said], logits: Any) -> Iterator[WithinReadout]:
    for each, values in zip(said, logits, strict=True):
        yield WithinReadout(
            id=each.question.id,
            number=each.number,
            answer=each.text,
            correct=bool(each.grade.correct),
            times=each.times,
            logprob=float(sum(each.logprobs)),
            tokens=len(each.ids),
            logits=values,
        )
