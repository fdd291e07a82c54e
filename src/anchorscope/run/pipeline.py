"""A whole run, stage after stage. Each stage makes only what is missing.

The order is that of the list of stages (run/stages.py). The engine decides where stages run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anchorscope.errors import ProbeError, StudyError
from anchorscope.evidence.record import LEDGER
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.run.context import RunContext
from anchorscope.run.drawn import drawn, remember_drawn
from anchorscope.run.engine import Engine, Flow, InProcess
from anchorscope.run.preflight import check_address, preflight
from anchorscope.run.progress_file import ProgressFile
from anchorscope.run.stages import all_stages, rounds, stages_of, until
from anchorscope.store import Cell, Job, StageDef, Store
from anchorscope.store.rundir import versions
from anchorscope.store.stage import with_claims

Done = Callable[[str, str, str], None]
"""Called with the stage, model and dataset of what is complete. For stages that run in a chain, it is the first."""


def _tell_nobody(stage: str, model: str, dataset: str) -> None: ...


class Pipeline:
    """Runs a study. `times` sums the seconds that each stage took."""

    def __init__(
        self,
        store: Store,
        progress: Progress = silent,
        notice: Notice = nobody,
        done: Done = _tell_nobody,
        log: Path | None = None,
        ray_address: str | None = None,
    ) -> None:
        self.store, self.study = store, store.study
        self.file = ProgressFile(store.root, progress, notice, log)
        self.progress, self.notice, self.done = self.file.progress, self.file.notice, done
        self.times: dict[str, float] = {}
        self.context = RunContext(store, self.progress, self.notice)
        """What this process holds. A model is kept until another one is needed."""
        self.engine = self._engine(ray_address)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, last: str | None = None) -> list[Path]:
        """Run the study up to the stage `last`, or to its figures, and return the figures that were written."""
        stages = until(self.study, last) if last else stages_of(self.study)
        preflight(self.study, self.store.root, self.notice, stages)
        try:
            self.make(stages)
            return [] if last else self.figures()
        finally:
            self.close()

    def close(self) -> None:
        """Release models and workers. No stages follow."""
        self.engine.close()
        self.context.let_go()
        self.file.end()

    def make(
        self,
        stages: Sequence[StageDef],
        models: Sequence[str] | None = None,
        datasets: Sequence[str] | None = None,
        demand: Any = None,
    ) -> None:
        """Make what is missing of some stages, for these models and datasets or for all.

        A cell in which a stage cannot be made, such as one with too few right answers for probes, does not stop the
        others. The reason is reported, and stages that would read its tables are skipped. `demand`: settings of a
        command that are not in the study.
        """
        models = [model.name for model in self.study.models] if models is None else models
        datasets = [dataset.name for dataset in self.study.datasets] if datasets is None else datasets
        self._rounds([stage for stage in stages if stage.scope == "dataset"], [""], datasets, demand)
        for model in models:
            self._rounds([stage for stage in stages if stage.scope == "cell"], [model], datasets, demand)
        self._rounds([stage for stage in stages if stage.scope == "study"], models, datasets, demand)
        self._rounds([stage for stage in stages if stage.scope == "run"], [""], [""], demand)

    def _rounds(self, stages: Sequence[StageDef], models: Sequence[str], datasets: Sequence[str], demand: Any) -> None:
        """Run stages, round after round.

        Complete rounds are skipped, so that a finished run loads neither a model nor the libraries that compute. If
        something is missing that needs a model, the rounds before it are checked too, because a run must not be resumed
        with different weights. Never skipped are rounds that only read datasets, because the files may have changed,
        and rounds whose tables may grow.
        """
        complete: list[list[Flow]] = []
        for chains in rounds(stages):
            flows = [
                flow
                for chain in chains
                for model in models
                for dataset in datasets
                if (flow := self._flow(self._possible(chain, stages, model, dataset), model, dataset, demand))
            ]
            first = chains[0][0]
            grows = any(stage.grows for chain in chains for stage in chain)
            if first.scope != "dataset" and not grows and all(map(self._complete, flows)):
                complete.append(flows)
                continue
            if first.needs != "nothing":
                for before in complete:
                    self._run(before)
                complete = []
            self._run(flows)

    def _flow(self, chain: Sequence[StageDef], model: str, dataset: str, demand: Any) -> Flow:
        """The jobs of a chain in one cell."""
        return tuple(
            Job(stage, dataset, model, point, demand)
            for stage in chain
            for point in (self.study.traces.points if stage.per_point and stage.whole else [None])
        )

    def _complete(self, flow: Flow) -> bool:
        """Whether nothing is missing.

        A stage without a model must also have been checked by this very software. Where a command asks for it with
        settings of its own, these may be others than before.
        """
        return all(
            job.complete(self.store)
            and (job.stage.needs != "nothing" or (job.demand is None and self._known(job.cell(self.store))))
            for job in flow
        )

    def _known(self, cell: Cell) -> bool:
        manifest, now = cell.manifest(), versions()
        return now == manifest["versions"] or now in manifest["also_written_with"]

    def _possible(
        self, chain: Sequence[StageDef], stages: Sequence[StageDef], model: str, dataset: str
    ) -> list[StageDef]:
        """The stages of a chain whose inputs exist or are made by the chain itself.

        A stage reads those of its inputs that the study wants or that are requested together with it.
        """
        possible: list[StageDef] = []
        for stage in chain:
            read = [source for source in all_stages() if source.name in stage.after]
            if all(
                source in possible
                or Job(source, dataset, "" if source.scope == "dataset" else model).complete(self.store)
                for source in read
                if source.wanted(self.study) or source in stages
            ):
                possible.append(stage)
        return possible

    def _run(self, flows: Sequence[Flow]) -> None:
        def ended(flow: Flow) -> None:
            self.done(flow[0].stage.name, flow[0].model, flow[0].dataset)

        for flow, error in self.engine.run(flows, ended, (ProbeError,)).items():
            self.notice(f"{flow[0].model}, {flow[0].dataset}: {error.message}. {error.hint or ''}")

    def figures(self) -> list[Path]:
        """Write the ledger of claims, where there is evidence, and the figures, unless both are up to date."""
        if (files := drawn(self.store)) is not None:
            return [path for path in files if path.name != LEDGER]
        # imported late: it takes a second that a run until answers does not need
        from anchorscope.evidence.ledger import write_ledger
        from anchorscope.report.figures import write_figures

        with self._timed("figures"), self.progress("drawing", None):
            ledger = []
            if with_claims(self.study):
                write_ledger(self.store)
                ledger = [self.store.root / LEDGER]
            written = [path for point in self.study.traces.points for path in write_figures(self.store, point)]
        remember_drawn(self.store, [*ledger, *written])
        return written

    def _engine(self, ray_address: str | None) -> Engine:
        spec = self.study.engine
        if spec.kind == "ray":
            from anchorscope.evidence.experiments import registered
            from anchorscope.run.ray.engine import RayEngine

            if names := registered():
                raise StudyError(
                    f"the experiments {', '.join(names)} are registered in this process alone, so Ray cannot run them",
                    "Write engine: {kind: in_process} in the study.",
                )

            engine = RayEngine(self.store, spec, self.progress, self.notice, self._add, ray_address)
            self.file.counts = engine.counts
            return engine
        check_address(self.study, ray_address)
        return InProcess(self.context, self._add)

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
