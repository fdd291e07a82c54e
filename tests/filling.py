"""Stages carried out at once, as a run does it: each fills its table and gives it."""

from __future__ import annotations

from anchorscope.answers.answerer import Answerer
from anchorscope.answers.record import Answer
from anchorscope.answers.stage import answers_stage
from anchorscope.grades.record import Graded
from anchorscope.grades.stage import grades_stage
from anchorscope.models.load import Model
from anchorscope.models.prompts import Prompter
from anchorscope.probes.record import Readout
from anchorscope.probes.stage import readouts_stage
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.questions.record import Question
from anchorscope.questions.stage import questions_stage
from anchorscope.spans import Spans
from anchorscope.spans.stage import spans_stage
from anchorscope.store import Sharded, Store, Table
from anchorscope.store.fill import fill, make
from anchorscope.study import DatasetSpec
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.record import Trace
from anchorscope.traces.stage import traces_stage


def filled(stage: Sharded, progress: Progress = silent) -> Table:
    fill(stage, progress)
    return stage.tables[0]


def write_questions(
    spec: DatasetSpec, store: Store, progress: Progress = silent, notice: Notice = nobody
) -> Table[Question]:
    return filled(questions_stage(spec, store, progress, notice), progress)


def write_answers(answerer: Answerer, dataset: str, store: Store) -> Table[Answer]:
    return filled(answers_stage(answerer, dataset, store))


def write_grades(store: Store, model: str, dataset: str) -> Table[Graded]:
    return filled(grades_stage(store, model, dataset))


def write_spans(model: Model, dataset: str, store: Store) -> Table[Spans]:
    return filled(spans_stage(model, dataset, store))


def write_traces(model: Model, prompter: Prompter, dataset: str, store: Store) -> Table[Trace]:
    return filled(traces_stage(model, prompter, dataset, store))


def write_readouts(store: Store, model: str, dataset: str, point: ReadPoint) -> Table[Readout]:
    return make(readouts_stage(store, model, dataset, point))
