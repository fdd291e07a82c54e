"""A whole run, stage after stage; each does only what is missing.

This is the one place that knows the order of the stages, and so which tables are outdated when an earlier one is made
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchorscope.answers.given import GivenAnswers
from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.answers.sampled import sampled_stage
from anchorscope.answers.stage import Answerer, answers_stage
from anchorscope.errors import ProbeError
from anchorscope.evidence.stage import evidence_stage
from anchorscope.grades.grading import grader
from anchorscope.grades.record import GRADES
from anchorscope.grades.stage import grades_stage
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.pathways.layermap import mapstats_stage
from anchorscope.pathways.stage import pathways_stage
from anchorscope.probes.again import prompts_stage, saliency_stage
from anchorscope.probes.layermap import map_stage
from anchorscope.probes.record import MAPS, PROMPTS, READOUTS, SALIENCY, WITHIN
from anchorscope.probes.stage import left_out_stage, readouts_stage, text_only_stage
from anchorscope.probes.within import asked_again, within_stage
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.questions.record import Question
from anchorscope.questions.stage import questions_stage
from anchorscope.report.figures import write_figures
from anchorscope.run.claims import write_ledger
from anchorscope.run.engine import fill, make
from anchorscope.run.preflight import preflight
from anchorscope.spans import SPANS
from anchorscope.spans.stage import spans_stage
from anchorscope.store import Cell, Kind, Store, Table
from anchorscope.study import ModelSpec
from anchorscope.traces.doctor import require_health
from anchorscope.traces.record import MASS, TRACES
from anchorscope.traces.stage import mass_stage, traces_stage

Done = Callable[[str, str, str], None]
"""Told which stage of which model and dataset is complete."""


def _tell_nobody(stage: str, model: str, dataset: str) -> None:
    """Tell nobody."""


def _begun(cell: Cell, *kinds: Kind[Any]) -> list[Table[Any]]:
    """Those of these tables that were begun."""
    return [cell.table(kind) for kind in kinds if cell.entry(kind) is not None]


class Pipeline:
    """Carries a study out. `times` sums the seconds each stage took in this process."""

    def __init__(
        self, store: Store, progress: Progress = silent, notice: Notice = nobody, done: Done = _tell_nobody
    ) -> None:
        self.store, self.study = store, store.study
        self.progress, self.notice, self.done = progress, notice, done
        self.times: dict[str, float] = {}

    def __call__(self) -> list[Path]:
        """All of it: the figures that were written."""
        preflight(self.study, self.store.root, self.notice)
        self.questions()
        for spec in self.study.models:
            self.traces(spec)
            self.pathways(spec)
            self.map(spec)
            self.asked_again(spec)
        self.evidence()
        return self.figures()

    def questions(self) -> None:
        """Read and sample the questions of all datasets."""
        for dataset in self.study.datasets:
            with self._timed("questions"):
                fill(questions_stage(dataset, self.store, self.progress), self.progress)

    def answers(self, spec: ModelSpec) -> tuple[Model, Prompter]:
        """One model's answers to all datasets, their grades and spans."""
        asked = self.study.answers
        engine_loads_them = asked.source == "generate" and asked.backend == "vllm"
        with self._timed("loading"), self.progress(f"{spec.name}: loading", None):
            model = load_model(self._as_begun(spec), self.study.base, weights=not engine_loads_them)
            answerer = Answerer(model, self.study)
        for dataset in self.study.datasets:
            cell = self.store.results(spec.name, dataset.name)
            with self._timed("answers"):
                stage = answers_stage(answerer, dataset.name, self.store, self._right, self.notice)
                fill(stage, self.progress, _begun(cell, GRADES, SPANS, TRACES))
            with self._timed("grades"):
                fill(grades_stage(self.store, spec.name, dataset.name), self.progress, _begun(cell, TRACES))
            with self._timed("spans"):
                fill(spans_stage(model, dataset.name, self.store), self.progress)
            self.done("answers", spec.name, dataset.name)
        answerer.close()
        return model, answerer.prompter

    def _right(self, question: Question, answer: Answer) -> bool:
        """Whether an answer is right, for an early look: by rules where a judge would have to be asked."""
        grade = grader() if self.study.grades.judge else grader(self.study.grades.grader)
        judgement = grade(answer.answer, question.answers, question.question)
        return judgement.correct is True if answer.label is None else answer.label

    def traces(self, spec: ModelSpec) -> None:
        """One model's answers and traces on all datasets; it is examined first, and let go at the end."""
        if all(self._traced(spec.name, dataset.name) for dataset in self.study.datasets):
            return
        model, prompter = self.answers(spec)
        if model.device.type == "meta":  # vLLM had the weights
            model, prompter = self._loaded(spec)
        self._examine(model, prompter)
        for dataset in self.study.datasets:
            with self._timed("traces"):
                if not self.store.results(spec.name, dataset.name).complete(TRACES):
                    fill(traces_stage(model, prompter.shared_ids, dataset.name, self.store), self.progress)
                if self.study.traces.mass:
                    make(mass_stage(model, prompter.shared_ids, dataset.name, self.store), self.progress)
            self.done("traces", spec.name, dataset.name)

    def _traced(self, model: str, dataset: str) -> bool:
        """Whether nothing of a model and dataset is left to compute that needs the model.

        It is then not loaded, so edited weights are not noticed; an edited file of answers is.
        """
        cell, file = self.store.results(model, dataset), self.study.answers.file
        answers = cell.entry(ANSWERS)
        if file is not None and answers is not None:
            given = GivenAnswers(self.study.base / file, len(self.study.datasets))
            if given.sha256 != answers["inputs"]["answers"]["file"]:
                return False
        return cell.complete(TRACES) and (not self.study.traces.mass or cell.complete(MASS))

    def pathways(self, spec: ModelSpec) -> None:
        """One model's probes, read-outs and pathways."""
        for dataset in self.study.datasets:
            try:
                with self._timed("probes"):
                    make(text_only_stage(self.store, spec.name, dataset.name), self.progress)
                for point in self.study.traces.points:
                    where = (self.store, spec.name, dataset.name, point)
                    with self._timed("probes"):
                        make(readouts_stage(*where, self.notice), self.progress)
                        make(left_out_stage(*where), self.progress)
                    with self._timed("pathways"):
                        make(pathways_stage(*where), self.progress)
            except ProbeError as error:  # one set with too few right answers does not stop the others
                self.notice(f"{spec.name}, {dataset.name}: {error.message}. {error.hint or ''}")
            self.done("pathways", spec.name, dataset.name)

    def map(self, spec: ModelSpec) -> None:
        """One model's layer × layer maps, where the study asks for them and there are probes to read with."""
        points = self.study.traces.points
        cells = {dataset.name: self.store.results(spec.name, dataset.name) for dataset in self.study.datasets}
        probed = [name for name, cell in cells.items() if cell.entry(READOUTS.at(points[0])) is not None]
        if self.study.map is None or not probed:
            return
        if not all(cells[name].complete(MAPS.at(point)) for name in probed for point in points):
            model, prompter = self._loaded(spec)
            self._examine(model, prompter)
            for name in probed:
                with self._timed("map"):
                    fill(map_stage(model, prompter.shared_ids, name, self.store), self.progress)
        for name in probed:
            for point in points:
                with self._timed("map's numbers"):
                    make(mapstats_stage(self.store, spec.name, name, point), self.progress)
            self.done("map", spec.name, name)

    def asked_again(self, spec: ModelSpec) -> None:
        """What evidence needs a model for once there are probes: several answers, other shots, saliency."""
        evidence, point = self.study.evidence, self.study.traces.points[0]
        cells = {dataset.name: self.store.results(spec.name, dataset.name) for dataset in self.study.datasets}
        probed = [name for name, cell in cells.items() if cell.entry(READOUTS.at(point)) is not None]
        kinds: list[Kind[Any]] = [WITHIN.at(point), PROMPTS.at(point), SALIENCY.at(point)]
        if evidence is None or all(cells[name].complete(kind) for name in probed for kind in kinds):
            return
        model, prompter = self._loaded(spec, self.study.answers.backend != "vllm")
        answerer = Answerer(model, self.study)
        for name in probed:
            with self._timed("sampling"):
                asked = asked_again(list(cells[name].table(TRACES)), evidence.questions, self.study.seed)
                fill(sampled_stage(answerer, name, self.store, asked), self.progress)
        answerer.close()
        if model.device.type == "meta":  # vLLM had the weights
            model, prompter = self._loaded(spec)
        self._examine(model, prompter)
        for name in probed:
            with self._timed("evidence"):
                fill(within_stage(model, prompter, name, self.store), self.progress)
                fill(prompts_stage(model, name, self.store), self.progress)
                fill(saliency_stage(model, prompter.shared_ids, name, self.store), self.progress)
            self.done("asked again", spec.name, name)

    def evidence(self) -> None:
        """The experiments of every model and set, and the ledger of claims."""
        if self.study.evidence is None:
            return
        for point in self.study.traces.points:
            for model in self.study.models:
                for dataset in self.study.datasets:
                    if self.store.results(model.name, dataset.name).entry(READOUTS.at(point)) is not None:
                        with self._timed("evidence"):
                            make(evidence_stage(self.store, model.name, dataset.name, point), self.progress)
        write_ledger(self.store)

    def figures(self) -> list[Path]:
        """The figures of every read point."""
        with self._timed("figures"), self.progress("drawing", None):
            return [path for point in self.study.traces.points for path in write_figures(self.store, point)]

    def _loaded(self, spec: ModelSpec, weights: bool = True) -> tuple[Model, Prompter]:
        with self._timed("loading"), self.progress(f"{spec.name}: loading", None):
            model = load_model(self._as_begun(spec), self.study.base, weights=weights)
            return model, Prompter(model.tokenizer, self.study.prompt_for(spec), model.wants_bos)

    def _as_begun(self, spec: ModelSpec) -> ModelSpec:
        """With the dtype that the run was begun in: another machine may find another one fast."""
        for dataset in self.study.datasets:
            begun = self.store.results(spec.name, dataset.name).entry(ANSWERS)
            if spec.dtype == "auto" and begun is not None:
                return spec.model_copy(update={"dtype": begun["inputs"]["model"]["dtype"]})
        return spec

    def _examine(self, model: Model, prompter: Prompter) -> None:
        with self._timed("doctor"), self.progress(f"{model.name}: examining", None):
            require_health(model, prompter)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.times[stage] = self.times.get(stage, 0.0) + time.perf_counter() - start
