"""A whole run, stage after stage; each does only what is missing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from anchorscope.activations import TABLE as TRACES
from anchorscope.activations import Trace, write_traces
from anchorscope.answers.given import GivenAnswers
from anchorscope.answers.stage import TABLE as ANSWERS
from anchorscope.answers.stage import Answerer, write_answers
from anchorscope.chart import write_figures, write_pathways
from anchorscope.doctor import require_health
from anchorscope.errors import ProbeError
from anchorscope.layermap import MapReadout, map_name, write_map
from anchorscope.mapstats import write_mapstats
from anchorscope.models.load import Model, load_model
from anchorscope.probing import table_name, write_readouts
from anchorscope.progress import Notice, Progress
from anchorscope.prompts import Prompter
from anchorscope.questions import write_questions
from anchorscope.samples import write_spans
from anchorscope.store import Store
from anchorscope.study import ModelSpec

Done = Callable[[str, str, str], None]
"""Told which stage of which model and dataset is complete."""


class Run:
    """Carries a study out. `times` sums the seconds each stage took in this process."""

    def __init__(self, store: Store, progress: Progress, notice: Notice, done: Done) -> None:
        self.store, self.study = store, store.study
        self.progress, self.notice, self.done = progress, notice, done
        self.times: dict[str, float] = {}

    def questions(self) -> None:
        """Read and sample the questions of all datasets."""
        for dataset in self.study.datasets:
            with _Clock(self, "questions"):
                write_questions(dataset, self.store, self.progress)

    def answers(self, spec: ModelSpec) -> tuple[Model, Prompter]:
        """One model's answers to all datasets, and their spans."""
        backend = self.study.answers
        engine_loads_them = backend.source == "generate" and backend.backend == "vllm"
        with _Clock(self, "loading"), self.progress(f"{spec.name}: loading", None):
            model = load_model(spec, self.study.base, weights=not engine_loads_them)
            answerer = Answerer(model, self.study)
        for dataset in self.study.datasets:
            with _Clock(self, "answers"):
                write_answers(answerer, dataset.name, self.store, self.progress, self.notice)
            with _Clock(self, "spans"):
                write_spans(model, dataset.name, self.store, self.progress)
            self.done("answers", spec.name, dataset.name)
        answerer.close()
        return model, answerer.prompter

    def traces(self, spec: ModelSpec) -> None:
        """One model's answers and traces on all datasets; it is examined first, and let go at the end."""
        if all(self._traced(spec.name, dataset.name) for dataset in self.study.datasets):
            return
        model, prompter = self.answers(spec)
        if model.device.type == "meta":  # vLLM had the weights
            with _Clock(self, "loading"), self.progress(f"{spec.name}: loading", None):
                model = load_model(spec, self.study.base)
        with _Clock(self, "doctor"), self.progress(f"{spec.name}: examining", None):
            require_health(model, prompter)
        for dataset in self.study.datasets:
            with _Clock(self, "traces"):
                write_traces(model, prompter.shared_ids, dataset.name, self.store, self.progress)
            self.done("traces", spec.name, dataset.name)

    def _traced(self, model: str, dataset: str) -> bool:
        """Whether nothing of a model and dataset is left to compute that needs the model.

        It is then not loaded, so edited weights are not noticed; an edited file of answers is.
        """
        cell, file = self.store.results(model, dataset), self.study.answers.file
        answers = cell.plan(ANSWERS)
        if file is not None and answers is not None:
            given = GivenAnswers(self.study.base / file, len(self.study.datasets))
            if given.sha256 != answers["inputs"]["answers"]["file"]:
                return False
        return cell.plan(TRACES) is not None and not cell.table(TRACES, Trace).missing()

    def pathways(self, spec: ModelSpec) -> None:
        """One model's probes, read-outs and pathways."""
        for dataset in self.study.datasets:
            for site in self.study.traces.sites:
                for position in self.study.traces.positions:
                    where = (self.store, spec.name, dataset.name, site, position, self.progress)
                    try:
                        with _Clock(self, "probes"):
                            write_readouts(*where, self.notice)
                        with _Clock(self, "pathways"):
                            write_pathways(*where)
                    except ProbeError as error:  # one set with too few right answers does not stop the others
                        self.notice(f"{spec.name}, {dataset.name}: {error.message}. {error.hint or ''}")
            self.done("pathways", spec.name, dataset.name)

    def map(self, spec: ModelSpec) -> None:
        """One model's layer × layer maps, where the study asks for them and there are probes to read with."""
        places = [(site, position) for site in self.study.traces.sites for position in self.study.traces.positions]
        probed = [d.name for d in self.study.datasets if self._probed(spec.name, d.name)]
        if self.study.map is None or not probed:
            return
        if not all(self._mapped(spec.name, name) for name in probed):
            with _Clock(self, "loading"), self.progress(f"{spec.name}: loading", None):
                model = load_model(spec, self.study.base)
                prompter = Prompter(model.tokenizer, self.study.prompt_for(spec), model.wants_bos)
            with _Clock(self, "doctor"), self.progress(f"{spec.name}: examining", None):
                require_health(model, prompter)
            for name in probed:
                with _Clock(self, "map"):
                    write_map(model, prompter.shared_ids, name, self.store, self.progress)
        for name in probed:
            for site, position in places:
                with _Clock(self, "map's numbers"):
                    write_mapstats(self.store, spec.name, name, site, position, self.progress)
            self.done("map", spec.name, name)

    def _probed(self, model: str, dataset: str) -> bool:
        site, position = self.study.traces.sites[0], self.study.traces.positions[0]
        return self.store.results(model, dataset).plan(table_name(site, position)) is not None

    def _mapped(self, model: str, dataset: str) -> bool:
        """Whether the map's read-outs are all there; the model is then not loaded."""
        cell = self.store.results(model, dataset)
        names = [map_name(s, p) for s in self.study.traces.sites for p in self.study.traces.positions]
        return all(cell.plan(name) is not None and not cell.table(name, MapReadout).missing() for name in names)

    def figures(self) -> list[Path]:
        """The figures of every site and position."""
        written = []
        with _Clock(self, "figures"), self.progress("drawing", None):
            for site in self.study.traces.sites:
                for position in self.study.traces.positions:
                    written += write_figures(self.store, site, position)
        return written

    def __call__(self) -> list[Path]:
        """All of it."""
        self.questions()
        for spec in self.study.models:
            self.traces(spec)
            self.pathways(spec)
            self.map(spec)
        return self.figures()


class _Clock:
    """Adds the time of a block to a stage."""

    def __init__(self, run: Run, stage: str) -> None:
        self.run, self.stage = run, stage

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        taken = time.perf_counter() - self.start
        self.run.times[self.stage] = self.run.times.get(self.stage, 0.0) + taken
