"""Where stages are made from jobs: one process's hold on a run, and on one model at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from anchorscope.answers.record import ANSWERS, Answer
from anchorscope.answers.sampled import sampled_stage
from anchorscope.answers.stage import Answerer, answers_stage
from anchorscope.evidence.stage import evidence_stage
from anchorscope.grades.grading import grader
from anchorscope.grades.record import GRADES
from anchorscope.grades.stage import grades_stage
from anchorscope.models.load import Model, load_model
from anchorscope.pathways.layermap import mapstats_stage
from anchorscope.pathways.stage import pathways_stage
from anchorscope.probes.again import prompts_stage, saliency_stage
from anchorscope.probes.layermap import map_stage
from anchorscope.probes.stage import left_out_stage, readouts_stage, text_only_stage
from anchorscope.probes.within import asked_again, within_stage
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.questions.record import Question
from anchorscope.questions.stage import questions_stage
from anchorscope.run.jobs import Job, Needs, StageName
from anchorscope.spans import SPANS
from anchorscope.spans.stage import spans_stage
from anchorscope.store import Kind, Sharded, Store, Table, Whole
from anchorscope.study import ModelSpec
from anchorscope.study.terms import ReadPoint
from anchorscope.traces.doctor import require_health
from anchorscope.traces.record import TRACES
from anchorscope.traces.stage import mass_stage, traces_stage

Stage = Sharded[Any] | Whole[Any]

LATER: dict[StageName, tuple[Kind[Any], ...]] = {"answers": (GRADES, SPANS, TRACES), "grades": (TRACES,)}
"""What was made of a shard that is made again."""


class Workshop:
    """Makes the stages of a run. It loads what they need, keeps one model at a time, and examines it once.

    With `planning`, no weights are loaded: stages can be planned, not carried out. `dtypes`: what is fast where models
    are loaded, if that is elsewhere.
    """

    def __init__(
        self,
        store: Store,
        progress: Progress = silent,
        notice: Notice = nobody,
        planning: bool = False,
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.study, self.dtypes = store, store.study, dtypes or {}
        self.progress, self.notice, self.planning = progress, notice, planning
        self._model: Model | None = None
        self._answerer: Answerer | None = None
        self._healthy = False

    def stage(self, job: Job) -> Stage:
        """The stage of a job; its table is begun."""
        return self._makers[job.stage](job)

    def later(self, job: Job) -> list[Table[Any]]:
        """Tables that were begun and are outdated, shard by shard, when a job's are made again."""
        if job.model is None:
            return []
        cell = self.store.results(job.model, job.dataset)
        return [cell.table(kind) for kind in LATER.get(job.stage, ()) if cell.entry(kind) is not None]

    def ready(self, job: Job) -> None:
        """Load what a job computes with, and examine the model before its passes are believed."""
        if job.model is None or job.needs == "nothing":
            return
        model = self._loaded(job.model, job.needs)
        if job.needs == "weights" and not self.planning and not self._healthy:
            answerer = self._asking(model.name)
            answerer.close()  # its work is done, and what it holds is wanted
            with self.progress(f"{model.name}: examining", None):
                require_health(model, answerer.prompter)
            self._healthy = True

    def let_go(self) -> None:
        """Forget the model: what it held on a GPU is free afterwards."""
        if self._answerer is not None:
            self._answerer.close()
        self._model, self._answerer, self._healthy = None, None, False

    @property
    def _makers(self) -> dict[StageName, Callable[[Job], Stage]]:
        return {
            "questions": self._questions,
            "answers": self._answers,
            "grades": lambda job: grades_stage(self.store, job.model or "", job.dataset),
            "spans": lambda job: spans_stage(self._loaded(job.model or "", "nothing"), job.dataset, self.store),
            "traces": partial(self._passes, traces_stage),
            "mass": partial(self._passes, mass_stage),
            "text_only": lambda job: text_only_stage(self.store, job.model or "", job.dataset),
            "readouts": lambda job: readouts_stage(*self._where(job), self.notice),
            "left_out": lambda job: left_out_stage(*self._where(job)),
            "pathways": lambda job: pathways_stage(*self._where(job)),
            "map": partial(self._passes, map_stage),
            "mapstats": lambda job: mapstats_stage(*self._where(job)),
            "sampled": self._sampled,
            "within": self._within,
            "prompts": lambda job: prompts_stage(self._loaded(job.model or "", "weights"), job.dataset, self.store),
            "saliency": partial(self._passes, saliency_stage),
            "evidence": lambda job: evidence_stage(*self._where(job)),
        }

    def _questions(self, job: Job) -> Stage:
        spec = next(each for each in self.study.datasets if each.name == job.dataset)
        return questions_stage(spec, self.store, self.progress)

    def _answers(self, job: Job) -> Stage:
        answerer = self._asking(job.model or "", "generation")
        return answers_stage(answerer, job.dataset, self.store, self._right, self.notice)

    def _sampled(self, job: Job) -> Stage:
        evidence, cell = self.study.evidence, self.store.results(job.model or "", job.dataset)
        assert evidence is not None
        asked = asked_again(list(cell.table(TRACES)), evidence.questions, self.study.seed)
        return sampled_stage(self._asking(job.model or "", "generation"), job.dataset, self.store, asked)

    def _within(self, job: Job) -> Stage:
        model = self._loaded(job.model or "", "weights")
        return within_stage(model, self._asking(model.name).prompter, job.dataset, self.store)

    def _passes(self, make: Callable[..., Stage], job: Job) -> Stage:
        """A stage that takes a model and the tokens all its prompts share."""
        model = self._loaded(job.model or "", "weights")
        return make(model, self._asking(model.name).prompter.shared_ids, job.dataset, self.store)

    def _where(self, job: Job) -> tuple[Store, str, str, ReadPoint]:
        assert job.model is not None
        assert job.point is not None
        return self.store, job.model, job.dataset, job.point

    def _right(self, question: Question, answer: Answer) -> bool:
        """Whether an answer is right, for an early look: by rules where a judge would have to be asked."""
        grade = grader() if self.study.grades.judge else grader(self.study.grades.grader)
        judgement = grade(answer.answer, question.answers, question.question)
        return judgement.correct is True if answer.label is None else answer.label

    # --- the model

    def _loaded(self, name: str, needs: Needs) -> Model:
        """The model: with its weights where they are needed here, and not already in vLLM."""
        asked = self.study.answers
        by_engine = needs == "generation" and asked.source == "generate" and asked.backend == "vllm"
        weights = needs != "nothing" and not by_engine and not self.planning
        held = self._model
        if held is not None and held.name == name and (held.device.type != "meta" or not weights):
            return held
        self.let_go()
        spec = next(each for each in self.study.models if each.name == name)
        with self.progress(f"{name}: loading", None):
            self._model = load_model(self._as_begun(spec), self.study.base, weights=weights)
        return self._model

    def _asking(self, name: str, needs: Needs = "nothing") -> Answerer:
        """Who answers, and puts questions to the model."""
        model = self._loaded(name, needs)
        if self._answerer is None:
            self._answerer = Answerer(model, self.study)
        return self._answerer

    def _as_begun(self, spec: ModelSpec) -> ModelSpec:
        """With the dtype that the run was begun in: another machine may find another one fast."""
        if spec.dtype != "auto":
            return spec
        begun = begun_dtype(self.store, spec.name) or self.dtypes.get(spec.name)
        return spec if begun is None else spec.model_copy(update={"dtype": begun})


def begun_dtype(store: Store, model: str) -> str | None:
    """The dtype in which a model's answers were begun."""
    for dataset in store.study.datasets:
        begun = store.results(model, dataset.name).entry(ANSWERS)
        if begun is not None:
            return str(begun["inputs"]["model"]["dtype"])
    return None
