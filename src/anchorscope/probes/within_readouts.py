"""Several answers to one question, read out by probes that were fitted on other questions' greedy answers.

Of the answers that were sampled to a question those that can be graded and read are kept, where some are right and some
are wrong: a few of each, drawn by a hash. Each is traced as a greedy answer is; the cuts are the same, as they lie in
the question. Probes are applied at once, those of the fold in which the question is tested, and only read-outs stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.record import SAMPLED, Sampled
from anchorscope.grades.judge import Case, grading_of
from anchorscope.grades.record import Graded
from anchorscope.probes.folds import Folds, folds_of
from anchorscope.probes.probe import LayerProbes, load_probes, probes_stem
from anchorscope.probes.readouts import read_out_some
from anchorscope.probes.record import READOUTS, WITHIN, WithinReadout
from anchorscope.progress import Advance
from anchorscope.questions.record import QUESTIONS
from anchorscope.spans.make import SampleMaker
from anchorscope.spans.samples import Sample
from anchorscope.store import Plan, Sharded
from anchorscope.study.terms import SEVERAL, Condition, ReadPoint
from anchorscope.traces.activations import support_name, tensor_name
from anchorscope.traces.passes import Passes
from anchorscope.traces.record import TRACES, Trace
from anchorscope.traces.sweep import trace_samples
from anchorscope.traces.tracer import Tracer

if TYPE_CHECKING:
    from anchorscope.models.load import Model
    from anchorscope.models.prompts import Prompter
    from anchorscope.store import Store


ANSWERS_EACH = 128  # per shard
REMOVED: Condition = "answer_only"
"""The pass in which an answer has the log-probability that it has by itself."""


class SampledAnswer(NamedTuple):
    """One of several answers to a question, graded."""

    number: int
    """Its number among the distinct answers."""
    times: int
    """The number of sampled answers that say it."""
    sample: Sample
    """The question with this answer, as a greedy answer stands in the tables."""


def asked_again(rows: Sequence[Trace], count: int, seed: int) -> list[str]:
    """Which traced questions are answered several times: the first by a hash of seed and id, in their order."""
    ranked = sorted(rows, key=lambda row: hashlib.blake2b(f"{seed}/within/{row.id}".encode(), digest_size=8).digest())
    drawn = {row.id for row in ranked[:count]}
    return [row.id for row in rows if row.id in drawn]


def mixed_in_last_round(store: Store, dataset: str) -> Callable[[Sampled], bool]:
    """Whether the new answers of a question's last round are graded right in part and wrong in part."""
    grade = grading_of(store.study.grades, store.root)
    questions = {row.id: row for row in store.questions(dataset).table(QUESTIONS)}

    def is_mixed(sampled: Sampled) -> bool:
        question = questions[sampled.id]
        new = [text for text, compared in zip(sampled.texts, sampled.compared, strict=True) if compared and text]
        judged = grade([Case(text, question.answers, question.question) for text in new])
        return {"right", "wrong"} <= {verdict.judgement for verdict in judged}

    return is_mixed


def sampled_answers(store: Store, maker: SampleMaker, model: str, dataset: str) -> Iterator[list[SampledAnswer]]:
    """Question by question, the answers of its last round that can be graded and read."""
    study, cell = store.study, store.results(model, dataset)
    grade = grading_of(study.grades, store.root)
    questions = {row.id: row for row in store.questions(dataset).table(QUESTIONS)}
    for sampled in cell.table(SAMPLED):
        question = replace(questions[sampled.id], context=sampled.context)
        prompt = maker.prompter(question.question, question.context)
        grades = grade([Case(text, question.answers, question.question) for text in sampled.texts])
        answers = []
        for number, ((text, ids, logprobs, times), verdict) in enumerate(zip(sampled.answers(), grades, strict=True)):
            known = Graded(question.id, verdict.judgement)
            sample = maker(question, text, ids, logprobs, prompt, known, bool(sampled.ended[number]))
            if sampled.compared[number] and known.correct is not None and sample.spans.dropped is None:
                answers.append(SampledAnswer(number, times, sample))
        yield answers


def mixed(answers: Sequence[SampledAnswer], most: int, seed: int) -> list[SampledAnswer]:
    """Of the answers to one question at most so many right and wrong ones each; none where all are alike."""
    kept: list[SampledAnswer] = []
    for correct in (True, False):
        alike = [answer for answer in answers if answer.sample.grade.correct is correct]
        if not alike:
            return []
        alike.sort(key=lambda answer: _drawn(answer.sample, seed))
        kept += alike[:most]
    return sorted(kept, key=lambda answer: answer.number)


def answers_within(store: Store, prompter: Prompter, model: str, dataset: str) -> list[SampledAnswer]:
    """Right and wrong answers to the questions that have both, as the study chooses them."""
    study = store.study
    assert study.evidence is not None
    every = sampled_answers(store, SampleMaker.of(prompter, study), model, dataset)
    return [answer for drawn in every for answer in mixed(drawn, study.evidence.distinct, study.seed)]


def _drawn(sample: Sample, seed: int) -> bytes:
    return hashlib.blake2b(f"{seed}/{sample.question.id}/{sample.answer.answer}".encode()).digest()


def within_stage(model: Model, prompter: Prompter, dataset: str, store: Store) -> Sharded[WithinReadout]:
    """The `within` tables of one model and dataset, one for every read point, filled side by side."""
    study, cell = store.study, store.results(model.name, dataset)
    assert study.evidence is not None
    # 1. which answers
    rows = list(cell.table(TRACES))
    place = {row.id: i for i, row in enumerate(rows)}
    answers = answers_within(store, prompter, model.name, dataset)
    # 2. who reads them out, and under which conditions
    folds = folds_of(rows, study.probes, study.seed)[2]
    points = study.traces.points
    probes = {point: load_probes(probes_stem(cell, point))[0] for point in points}
    conditions = [condition for condition in SEVERAL if condition in study.traces.conditions]
    spec = study.traces.model_copy(update={"conditions": conditions})
    tracer = Tracer(model, prompter.shared_ids, spec.sites)
    passes = Passes(spec, tracer.shared_ids, tracer.layers, said_under=(REMOVED,) if REMOVED in conditions else ())
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

    def read(shard: int, advance: Advance) -> list[list[WithinReadout]]:
        of_shard = answers[shard * ANSWERS_EACH : (shard + 1) * ANSWERS_EACH]
        states = trace_samples(tracer, [answer.sample for answer in of_shard], spec, passes, advance)
        known = states.get(support_name(REMOVED))
        removed = [float("nan")] * len(of_shard) if known is None else known.double().tolist()
        members = np.array([place[answer.sample.question.id] for answer in of_shard])
        return [
            [*_records(of_shard, removed, read_states(states, point, conditions, probes[point], folds, members))]
            for point in points
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
    for layer, layer_probes in enumerate(probes):
        x = np.stack([states[tensor_name(name, point)][layer].float().numpy() for name in conditions], axis=1)
        by_layer.append(read_out_some(layer_probes, x, folds, members)[:, 0])  # (repeat, sample, condition)
    return np.stack(by_layer, axis=-1).transpose(1, 2, 0, 3).astype(np.float32)


def _records(answers: Sequence[SampledAnswer], removed: Sequence[float], logits: Any) -> Iterator[WithinReadout]:
    """`removed` (answer): log-probability of the tokens up to the last exact one, without the question."""
    for sampled, without, values in zip(answers, removed, logits, strict=True):
        answer, spans = sampled.sample.answer, sampled.sample.spans
        first = spans.answer[0]
        yield WithinReadout(
            id=answer.id,
            number=sampled.number,
            answer=answer.answer,
            correct=bool(sampled.sample.grade.correct),
            times=sampled.times,
            logprob=float(sum(answer.logprobs)),
            min_logprob=float(min(answer.logprobs, default=0.0)),
            exact_logprob=float(sum(answer.logprobs[place - first] for place in spans.exact_answer)),
            pmi=float(sum(answer.logprobs[: spans.answer_last - first + 1])) - without,
            tokens=len(answer.answer_ids),
            logits=values,
        )
