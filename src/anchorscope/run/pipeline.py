"""A whole run, stage after stage; each does only what is missing.

This is the one place that knows the order of the stages. Where they are carried out is the engine's affair.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchorscope.answers.record import ANSWERS
from anchorscope.errors import AnchorscopeError, ProbeError
from anchorscope.probes.record import MAPS, PROMPTS, READOUTS, SALIENCY, WITHIN
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.questions.file_rows import FileRows
from anchorscope.report.figures import write_figures
from anchorscope.run.claims import write_ledger
from anchorscope.run.engine import Engine, InProcess
from anchorscope.run.jobs import Flow, Job, StageName
from anchorscope.run.live import Live
from anchorscope.run.preflight import preflight
from anchorscope.run.workshop import Workshop
from anchorscope.store import Cell, Kind, Store
from anchorscope.study import ModelSpec
from anchorscope.traces.record import MASS, TRACES

Done = Callable[[str, str, str], None]
"""Told which stage of which model and dataset is complete."""


def _tell_nobody(stage: str, model: str, dataset: str) -> None:
    """Tell nobody."""


class Pipeline:
    """Carries a study out. `times` sums the seconds each stage took."""

    def __init__(
        self,
        store: Store,
        progress: Progress = silent,
        notice: Notice = nobody,
        done: Done = _tell_nobody,
        log: Path | None = None,
    ) -> None:
        self.store, self.study = store, store.study
        self.live = Live(store.root, progress, notice, log)
        self.progress, self.notice, self.done = self.live.progress, self.live.notice, done
        self.times: dict[str, float] = {}
        self.engine = self._engine()

    def __call__(self) -> list[Path]:
        """All of it: the figures that were written."""
        preflight(self.study, self.store.root, self.notice)
        try:
            self.questions()
            for spec in self.study.models:
                self.traces(spec)
                self.pathways(spec)
                self.map(spec)
                self.asked_again(spec)
            self.evidence()
            return self.figures()
        finally:
            self.close()

    def close(self) -> None:
        """No more stages: let go of models and replicas."""
        self.engine.close()
        self.live.end()

    def questions(self) -> None:
        """Read and sample the questions of all datasets."""
        self._run([(Job("questions", dataset.name),) for dataset in self.study.datasets])

    def answers(self, spec: ModelSpec) -> None:
        """One model's answers to all datasets, their grades and spans."""
        self._run(
            [
                (Job("answers", name, spec.name), Job("grades", name, spec.name), Job("spans", name, spec.name))
                for name in self._sets
            ],
            "answers",
        )

    def traces(self, spec: ModelSpec) -> None:
        """One model's answers and traces on all datasets; it is examined first, and let go at the end."""
        if all(self._traced(spec.name, name) for name in self._sets):
            return
        self.answers(spec)
        cells = {name: self.store.results(spec.name, name) for name in self._sets}
        flows: list[Flow] = [
            (Job("traces", name, spec.name),) for name, cell in cells.items() if not cell.complete(TRACES)
        ]
        if self.study.traces.mass:
            flows += [(Job("mass", name, spec.name),) for name in cells]
        self._run(flows, "traces")
        self.engine.let_go()

    def _traced(self, model: str, dataset: str) -> bool:
        """Whether nothing of a model and dataset is left to compute that needs the model.

        It is then not loaded, so edited weights are not noticed; an edited file of answers is.
        """
        cell, file = self.store.results(model, dataset), self.study.answers.file
        answers = cell.entry(ANSWERS)
        if file is not None and answers is not None:
            given = FileRows(self.study.base / file).identity()["sha256"]  # the answers themselves stay on disk
            if given != answers["inputs"]["answers"]["file"]:
                return False
        return cell.complete(TRACES) and (not self.study.traces.mass or cell.complete(MASS))

    def pathways(self, spec: ModelSpec) -> None:
        """One model's probes, read-outs and pathways. A set with too few right answers does not stop the others."""
        flows: list[Flow] = []
        for name in self._sets:
            stages: tuple[StageName, ...] = ("readouts", "left_out", "pathways")
            read = [Job(stage, name, spec.name, point) for point in self.study.traces.points for stage in stages]
            flows.append((Job("text_only", name, spec.name), *read))
        for flow, error in self._run(flows, "pathways", spared=(ProbeError,)).items():
            self.notice(f"{spec.name}, {flow[0].dataset}: {error.message}. {error.hint or ''}")

    def map(self, spec: ModelSpec) -> None:
        """One model's layer × layer maps, where the study asks for them and there are probes to read with."""
        points, probed = self.study.traces.points, self._probed(spec.name)
        if self.study.map is None or not probed:
            return
        if not all(cell.complete(MAPS.at(point)) for cell in probed.values() for point in points):
            self._run([(Job("map", name, spec.name),) for name in probed])
            self.engine.let_go()
        self._run([tuple(Job("mapstats", name, spec.name, point) for point in points) for name in probed], "map")

    def asked_again(self, spec: ModelSpec) -> None:
        """What evidence needs a model for once there are probes: several answers, other shots, saliency."""
        point, probed = self.study.traces.points[0], self._probed(spec.name)
        kinds: list[Kind[Any]] = [WITHIN.at(point), PROMPTS.at(point), SALIENCY.at(point)]
        done = all(cell.complete(kind) for cell in probed.values() for kind in kinds)
        if self.study.evidence is None or done:
            return
        self._run([(Job("sampled", name, spec.name),) for name in probed])
        stages: tuple[StageName, ...] = ("within", "prompts", "saliency")
        self._run([(Job(stage, name, spec.name),) for name in probed for stage in stages])
        self.engine.let_go()
        for name in probed:
            self.done("asked again", spec.name, name)

    def evidence(self) -> None:
        """The experiments of every model and set, and the ledger of claims."""
        if self.study.evidence is None:
            return
        self._run(
            [
                tuple(Job("evidence", name, model.name, point) for point in self.study.traces.points)
                for model in self.study.models
                for name in self._probed(model.name)
            ]
        )
        write_ledger(self.store)

    def figures(self) -> list[Path]:
        """The figures of every read point."""
        with self._timed("figures"), self.progress("drawing", None):
            return [path for point in self.study.traces.points for path in write_figures(self.store, point)]

    @property
    def _sets(self) -> list[str]:
        return [dataset.name for dataset in self.study.datasets]

    def _probed(self, model: str) -> dict[str, Cell]:
        """The sets on which a model has probes."""
        cells = {name: self.store.results(model, name) for name in self._sets}
        first = READOUTS.at(self.study.traces.points[0])
        return {name: cell for name, cell in cells.items() if cell.entry(first) is not None}

    def _engine(self) -> Engine:
        spec = self.study.engine
        if spec.kind == "ray":
            from anchorscope.run.ray_engine import RayEngine

            engine = RayEngine(self.store, spec, self.progress, self.notice, self._add)
            self.live.counts = engine.counts
            return engine
        return InProcess(Workshop(self.store, self.progress, self.notice), self._add)

    def _run(
        self, flows: list[Flow], told: str | None = None, spared: tuple[type[AnchorscopeError], ...] = ()
    ) -> dict[Flow, AnchorscopeError]:
        """Carry flows out; with `told`, each is told of under that name when it has ended."""

        def ended(flow: Flow) -> None:
            if told is not None and flow[0].model is not None and flow[0].stage != "mass":
                self.done(told, flow[0].model, flow[0].dataset)

        return self.engine.run(flows, ended, spared)

    def _add(self, stage: str, seconds: float) -> None:
        self.times[stage] = self.times.get(stage, 0.0) + seconds

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        """Add the time of a block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(stage, time.perf_counter() - start)
