"""What one process holds while it runs stages: the run, and one loaded model at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, TypeVar

from anchorscope.answers.record import ANSWERS
from anchorscope.grades.grading import grader
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.run.stages import downstream
from anchorscope.store import Job, Store, Table
from anchorscope.store.stage import Needs, Stage
from anchorscope.study import ModelSpec, Study
from anchorscope.study.validation import build

K = TypeVar("K")


class RunContext:
    """Makes the stages of a run. It loads the models that they need, keeps one at a time, and tests it once.

    With `planning`, no weights are loaded, so stages can be planned but not run. `dtypes` gives, by model, the dtype
    that `auto` stands for on the machine that loads the model, if that is another one. `loading` counts the seconds
    spent on loading and testing models.
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
        self.loading = 0.0
        self._model: Model | None = None
        self._resources: dict[Any, Any] = {}
        self._healthy = False

    def stage(self, job: Job) -> Stage:
        """The stage of a job, ready to run. The model that it needs is loaded, and its tables are created."""
        return job.stage(self, job)

    def later(self, job: Job) -> list[Table[Any]]:
        """The tables made from a job's tables, if a shard that is made again may have different rows."""
        if job.stage.repeatable or not job.model:
            return []
        cell = job.cell(self.store)
        kinds = [kind for stage in downstream(job.stage) for kind in stage.kinds(self.study)]
        return [cell.table(kind) for kind in kinds if cell.entry(kind) is not None]

    def let_go(self) -> None:
        """Release the model and its memory."""
        self._close_resources()
        self._resources.clear()
        self._model, self._healthy = None, False

    # --- for stages

    def model(self, name: str, needs: Needs = "weights") -> Model:
        """The model with this name in the study, or with this id, loaded as far as `needs` says and tested if used."""
        start = perf_counter()
        answers = self.study.answers
        by_vllm = needs == "generation" and answers.source == "generate" and answers.backend == "vllm"
        weights = needs in ("generation", "weights") and not by_vllm and not self.planning
        current, meant = self._model, self._spec(name)
        usable = current is not None and (current.name, current.spec.id) == (meant.name, meant.id)
        if current is not None and usable:
            loaded = current.device.type != "meta"
            usable = loaded or not weights
            usable = usable and not (by_vllm and loaded)  # vLLM loads its own, and needs the memory
        if current is None or not usable:
            self.let_go()
            spec = self._as_begun(meant)
            with self.progress(f"{spec.name}: loading", None):
                current = self._model = load_model(spec, self.study.base, weights, self.notice)
        if needs == "weights" and not self.planning:
            self._close_resources()  # what generates has done its work, and holds memory
            self._examine(current)
        self.loading += perf_counter() - start
        return current

    def prompter(self, name: str, needs: Needs = "weights") -> Prompter:
        """The prompter that writes the study's prompts for the model."""
        return self.resource(_prompter, name, needs)

    def resource(self, kind: Callable[[Model, Study], K], name: str, needs: Needs = "weights") -> K:
        """An object made from the model once and kept as long as the model. Then its `close` is called."""
        model = self.model(name, needs)
        if kind not in self._resources:
            self._resources[kind] = kind(model, self.study)
        return self._resources[kind]

    def right(self, question: Any, answer: Any) -> bool:
        """Whether an answer counts as right in an early look, which uses rules instead of a judge."""
        if answer.label is not None:
            return bool(answer.label)
        grade = grader() if self.study.grades.judge else grader(self.study.grades.grader)
        return grade(answer.answer, question.answers, question.question).correct is True

    # --- the model

    def _examine(self, model: Model) -> None:
        """Test the model before its forward passes are used."""
        from anchorscope.traces.health import require_health

        if not self._healthy:
            with self.progress(f"{model.name}: self-test", None):
                require_health(model, _prompter(model, self.study))
            self._healthy = True

    def _close_resources(self) -> None:
        for kind in [kind for kind in self._resources if kind is not _prompter]:
            getattr(self._resources.pop(kind), "close", lambda: None)()

    def _spec(self, name: str) -> ModelSpec:
        known = [spec for spec in self.study.models if name in (spec.name, spec.id)]
        return known[0] if known else build(ModelSpec, id=name)

    def _as_begun(self, spec: ModelSpec) -> ModelSpec:
        """The spec with the dtype in which the run was started, because another machine may choose a different one."""
        if spec.dtype != "auto":
            return spec
        begun = begun_dtype(self.store, spec.name) or self.dtypes.get(spec.name)
        return spec if begun is None else spec.model_copy(update={"dtype": begun})


def _prompter(model: Model, study: Study) -> Prompter:
    return Prompter(model.tokenizer, study.prompt_for(model.spec), model.wants_bos)


def begun_dtype(store: Store, model: str) -> str | None:
    """The dtype in which a model's answers were started, or None if they were not."""
    for dataset in store.study.datasets:
        begun = store.results(model, dataset.name).entry(ANSWERS)
        if begun is not None:
            return str(begun["inputs"]["model"]["dtype"])
    return None
