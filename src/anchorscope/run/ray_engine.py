"""Stages on a Ray cluster: Ray Data deals shards to pools of replicas, and restarts what dies.

What flows through Ray are numbers of shards. A replica reads its input from the run and writes its shard there, whole
or not at all, so nothing passes through this process, and a shard that is made twice is the same file again. Ray is
imported in this file alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from threading import Thread
from time import perf_counter
from typing import Any

import numpy as np

from anchorscope.errors import AnchorscopeError, StoreError
from anchorscope.progress import Notice, Progress, nobody, silent
from anchorscope.run.engine import Ended, Spared, Timed
from anchorscope.run.jobs import Flow, Job
from anchorscope.run.planner import Planned, Planner
from anchorscope.run.replica import Replica, Report, Task
from anchorscope.run.tally import Tally, beat
from anchorscope.store import Store
from anchorscope.store.files import remove_leftovers
from anchorscope.study import EngineSpec

SPARE_CPUS = 4  # of a cluster that is started here, beside those of the replicas: for planning, grading and Ray itself
LIGHT = 0.5  # cores of a replica that grades and finds tokens


class RayEngine:
    """Carries flows out on the nodes of a cluster."""

    def __init__(
        self,
        store: Store,
        spec: EngineSpec,
        progress: Progress = silent,
        notice: Notice = nobody,
        timed: Timed = lambda stage, seconds: None,
    ) -> None:
        self.store, self.spec = store, spec
        self.progress, self.notice, self.timed = progress, notice, timed
        self._planner: Any = None
        self._tally: Any = None
        self._started = False
        self._working = 0.0

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        """Carry flows out side by side."""
        if not flows:
            return {}
        self._start()
        start, self._working = perf_counter(), 0.0
        if all(job.whole and job.needs == "nothing" for flow in flows for job in flow):
            errors = self._tasks(flows, ended, spared)
        elif all(job.stage == "questions" for flow in flows for job in flow):
            errors = {}
            for flow in flows:  # a source is read from its start on, by one process
                for job in flow:
                    with self.progress(f"{job.dataset}: reading questions", None):
                        self._ask("carry_out", job)
                ended(flow)
        else:
            errors = self._stream(flows, ended, spared)
        took = perf_counter() - start
        working = self._working or took
        self.timed(flows[0][0].told_as, working)
        self.timed("starting replicas", took - working)
        return errors

    def counts(self) -> dict[str, int]:
        """How many replicas are alive, and how many were started again after a death."""
        import ray

        if self._tally is None:
            return {}
        counts: dict[str, int] = ray.get(self._tally.counts.remote(), timeout=5)
        return counts

    def let_go(self) -> None:
        """Replicas end with what they were made for."""

    def close(self) -> None:
        """Stop the cluster, where it was started here."""
        import ray

        for actor in (self._planner, self._tally):
            if actor is not None:
                ray.kill(actor)
        self._planner = self._tally = None
        if self._started:
            ray.shutdown()
            self._started = False

    # --- whole jobs: a Ray task for each flow

    def _tasks(self, flows: Sequence[Flow], ended: Ended, spared: Spared) -> dict[Flow, AnchorscopeError]:
        import ray

        takes = {"num_cpus": self.spec.cpus_per_replica, "num_gpus": min(1.0, self._gpus())}
        carry: Any = ray.remote(**takes, max_retries=-1)(_carry_out_flow)
        waiting = {carry.remote(self.store, flow, self.spec.cpus_per_replica): flow for flow in flows}
        errors: dict[Flow, AnchorscopeError] = {}
        title = f"{flows[0][0].model}: {', '.join(dict.fromkeys(job.told_as for job in flows[0]))}"
        with self.progress(title, len(flows)) as advance:
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                flow, report = waiting.pop(done), ray.get(done)
                self._tell(report.notices)
                if isinstance(report.error, spared):
                    errors[flow] = report.error
                elif report.error is not None:
                    for each in waiting:
                        ray.cancel(each, force=True)
                    raise report.error
                advance(1)
                ended(flow)
        return errors

    # --- shards: Ray Data, a pool of replicas for each need

    def _stream(self, flows: Sequence[Flow], ended: Ended, spared: Spared) -> dict[Flow, AnchorscopeError]:
        """Shards through pools of replicas, one pool behind the other; whole jobs that need a model as one shard."""
        # 1. what is missing
        planned = {number: self._ask("plan", flow) for number, flow in enumerate(flows)}
        tasks = [Task(number, shard) for number, each in planned.items() for shard in each.missing]
        left = {number: len(each.missing) for number, each in planned.items()}
        for number, count in left.items():
            if count == 0:
                ended(flows[number])
        if not tasks:
            return {}
        # 2. the pools, and what comes out of the last one
        errors: dict[Flow, AnchorscopeError] = {}
        total = sum(sum(each.sizes) for each in planned.values())
        told: set[str] = set()
        first, last = float("inf"), 0.0
        with self.progress(self._title(flows, planned), total) as advance:
            advance(total - sum(planned[task.flow].sizes[task.shard] for task in tasks))
            for report in self._reports(flows, tasks):
                self._tell(report.notices, told, str(report.flow))
                if isinstance(report.error, spared):
                    errors[flows[report.flow]] = report.error
                elif report.error is not None:
                    raise report.error
                first, last = min(first, report.ended - report.seconds), max(last, report.ended)
                advance(planned[report.flow].sizes[report.shard])
                left[report.flow] -= 1
                if left[report.flow] == 0:
                    ended(flows[report.flow])
        self._working = last - first
        # 3. what replicas that were killed left behind
        remove_leftovers(self.store.root)
        return errors

    def _reports(self, flows: Sequence[Flow], tasks: Sequence[Task]) -> Iterator[Report]:
        import ray
        import ray.data

        logging.getLogger("ray.data").setLevel(logging.ERROR)  # which importing it has set
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = False
        most = min(self.spec.replicas, len(tasks))
        ray.get(self._tally.expect.remote(most))
        rows = [{"flow": task.flow, "shard": task.shard, "report": ""} for task in tasks]
        dataset = ray.data.from_items(rows, override_num_blocks=len(rows))
        for needs, some in groupby(range(len(flows[0])), key=lambda place: flows[0][place].needs):
            places, heavy = list(some), needs != "nothing"
            assert all(flow[place].needs == needs for flow in flows for place in places), "flows that are not alike"
            dataset = dataset.map_batches(
                _Pool,
                fn_constructor_args=(
                    self.store,
                    tuple(flows),
                    places,
                    self.spec.cpus_per_replica if heavy else 1,
                    self._tally if heavy else None,
                ),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(min_size=most if heavy else 1, max_size=most),
                num_cpus=self.spec.cpus_per_replica if heavy else LIGHT,
                num_gpus=self._gpus() if heavy else 0,
            )
        for batch in dataset.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0):
            for content in batch["report"]:
                yield Report.unpacked(content)

    # --- the cluster

    def _start(self) -> None:
        import ray

        if not ray.is_initialized():
            _quiet()
            local = self.spec.address is None
            cpus = self.spec.replicas * self.spec.cpus_per_replica + SPARE_CPUS
            try:
                ray.init(
                    address=self.spec.address or "local",  # else Ray would join whatever cluster runs here
                    num_cpus=max(cpus, os.cpu_count() or 1) if local else None,
                    include_dashboard=False if local else None,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                )
            except ConnectionError as error:
                raise StoreError(
                    f"no Ray cluster at {self.spec.address} ({error})",
                    "Start one with: ray start --head  (or leave engine.address out).",
                ) from None
            self._started = True
        if self._planner is None:
            planner: Any = ray.remote(num_cpus=LIGHT, max_restarts=-1, max_task_retries=-1)(Planner)
            self._planner = planner.remote(self.store)
            tally: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Tally)
            self._tally = tally.remote()

    def _gpus(self) -> float:
        import ray

        if self.spec.gpus_per_replica is not None:
            return self.spec.gpus_per_replica
        return 1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0

    def _ask(self, what: str, *about: Any) -> Any:
        """Have the planner do something; what it has to say is told, and what it raises is raised."""
        import ray

        answer, notices, error = ray.get(getattr(self._planner, what).remote(*about))
        self._tell(notices)
        if error is not None:
            raise error
        return answer

    def _tell(self, notices: Sequence[str], told: set[str] | None = None, key: str = "") -> None:
        """Tell what a person should know; of several replicas with the same flow, only the first."""
        if notices and told is not None:
            if key in told:
                return
            told.add(key)
        for each in notices:
            self.notice(each)

    def _title(self, flows: Sequence[Flow], planned: dict[int, Planned]) -> str:
        if len(flows) == 1:
            return planned[0].title
        stages = ", ".join(dict.fromkeys(flow[0].stage for flow in flows))
        return f"{flows[0][0].model}: {stages} of {len({flow[0].dataset for flow in flows})} sets"


def _carry_out_flow(store: Store, flow: Flow, threads: int) -> Report:
    """A flow of whole jobs, in a Ray task."""
    return Replica(store, threads)(Task(0, 0), flow)


def _quiet() -> None:
    """Ray writes to its own log; a run tells by its own means."""
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it warns of what Ray Data does with actors
    os.environ.setdefault("RAY_worker_niceness", "0")  # else workers wait for everything else on a busy machine
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)


class _Pool:
    """A replica as Ray Data calls it: one task at a time."""

    def __init__(self, store: Store, flows: Sequence[Flow], places: Sequence[int], threads: int, tally: Any) -> None:
        self.flows, self.places = flows, places
        self.replica = Replica(store, threads)
        self.metrics = _Metrics()
        if tally is not None:
            Thread(target=beat, args=(tally, self.replica.name), daemon=True).start()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        made = []
        for flow, shard, before in zip(batch["flow"], batch["shard"], batch["report"], strict=True):
            earlier = Report.unpacked(before) if before else None
            if earlier is not None and earlier.error is not None:
                made.append(before)
                continue
            jobs = [self.flows[flow][place] for place in self.places]
            report = self.replica(Task(int(flow), int(shard)), jobs)
            self.metrics.add(jobs[0], report)
            if earlier is not None:
                report.notices = [*earlier.notices, *report.notices]
                report.seconds, report.loading = report.seconds + earlier.seconds, report.loading + earlier.loading
            made.append(report.packed())
        return {**batch, "report": np.array(made, dtype=object)}


class _Metrics:
    """What Ray's own exporter shows of a replica, for Prometheus."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter

        tags = ("model", "dataset", "stage")
        self._samples = Counter("anchorscope_samples", "Samples that are done.", tags)
        self._seconds = Counter("anchorscope_busy_seconds", "Seconds that a replica worked on them.", tags)
        self._loading = Counter("anchorscope_loading_seconds", "Seconds that a replica took to load models.", tags)
        self._failed = Counter("anchorscope_failed_shards", "Shards that could not be made.", tags)

    def add(self, job: Job, report: Report) -> None:
        """Count what became of a task."""
        about = {"model": job.model or "", "dataset": job.dataset, "stage": job.stage}
        for counter, value in (
            (self._samples, report.rows),
            (self._seconds, report.seconds),
            (self._loading, report.loading),
            (self._failed, int(report.error is not None)),
        ):
            if value > 0:
                counter.inc(value, about)
