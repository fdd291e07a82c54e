"""The engine that runs stages on a Ray cluster. Ray Data sends shards to pools of replicas and restarts crashed ones.

Only the numbers of shards pass through Ray. A replica reads its input from the run and writes its shard there, complete
or not at all. So no data passes through this process, and a shard that is made twice is the same file again. Ray is
imported here and in cluster.py alone.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import groupby
from threading import Event, Lock, Thread
from time import perf_counter
from typing import Any

import numpy as np

from anchorscope.errors import AnchorscopeError, StoreError, StudyError, reason_of
from anchorscope.progress import Advance, Notice, Progress, nobody, silent
from anchorscope.run.context import begun_dtype
from anchorscope.run.engine import Ended, Flow, Spared, Timed
from anchorscope.run.ray.cluster import cluster_address, join_cluster
from anchorscope.run.ray.planner import Planned, Planner
from anchorscope.run.ray.replica import Replica, Report, Task
from anchorscope.run.ray.tally import BEAT, Doing, Tally, beat
from anchorscope.store import Job, Store
from anchorscope.store.files import check_held, is_local, remove_leftovers
from anchorscope.study import EngineSpec, ModelSpec

SPARE_CPUS = 4  # cores of a cluster started here in addition to the replicas': for planning, grading and Ray itself
LIGHT = 0.5  # cores of a replica that grades and finds tokens
PLANNED = 3  # number of times that planning is retried after its process crashed
LOOK = 15.0  # seconds after which the run's lease is checked if no task has ended


class RayEngine:
    """Runs flows on the nodes of a cluster."""

    def __init__(
        self,
        store: Store,
        spec: EngineSpec,
        progress: Progress = silent,
        notice: Notice = nobody,
        timed: Timed = lambda stage, seconds: None,
        address: str | None = None,
    ) -> None:
        # absolute, because processes on nodes start in another folder. Links stay, because a node may have other ones
        study = store.study.based_at(store.study.base.absolute())
        self.store, self.spec = Store(store.root.absolute() if is_local(store.root) else store.root, study), spec
        self.progress, self.notice, self.timed = progress, notice, timed
        self.address = cluster_address(address)
        self._planner: Any = None
        self._tally: Any = None
        self._started = False
        self._working = 0.0

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        if not flows:
            return {}
        self._start()
        start, self._working = perf_counter(), 0.0
        if all(job.stage.whole and not job.stage.heavy for flow in flows for job in flow):
            errors = self._tasks(flows, ended, spared)
        elif all(job.stage.scope == "dataset" for flow in flows for job in flow):
            errors = {}
            for flow in flows:  # a source is read from its start on, by one process
                for job in flow:
                    with self.progress(f"{job.dataset}: {job.stage.name}", None):
                        self._ask("carry_out", job)
                ended(flow)
        else:
            errors = self._stream(flows, ended, spared)
        took = perf_counter() - start
        working = self._working or took
        self.timed(flows[0][0].stage.title, working)
        self.timed("starting replicas", took - working)
        return errors

    def counts(self) -> dict[str, int]:
        """The number of replicas that are alive, and the number restarted after a crash."""
        import ray

        if self._tally is None:
            return {}
        return ray.get(self._tally.counts.remote(), timeout=5)

    def close(self) -> None:
        """Stop the cluster if it was started here."""
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

        gpus = min(1.0, self._gpus())
        carry: Any = ray.remote(num_cpus=self.spec.cpus_per_replica, num_gpus=gpus, max_retries=-1)(_carry_out_flow)
        waiting = {carry.remote(self.store, flow, self.spec.cpus_per_replica, gpus): flow for flow in flows}
        errors: dict[Flow, AnchorscopeError] = {}
        title = f"{flows[0][0].model or 'all'}: {', '.join(dict.fromkeys(job.stage.title for job in flows[0]))}"
        try:
            with self.progress(title, len(flows)) as advance:
                while waiting:
                    ready, _ = ray.wait(list(waiting), num_returns=1, timeout=LOOK)
                    check_held(self.store.root)
                    for done in ready:
                        flow, report = waiting.pop(done), ray.get(done)
                        self._tell(report.notices)
                        if isinstance(report.error, spared):
                            errors[flow] = report.error
                        elif report.error is not None:
                            raise report.error
                        advance(1)
                        ended(flow)
        finally:
            for task in waiting:
                ray.cancel(task, force=True)
        return errors

    # --- shards: Ray Data, a pool of replicas for each need

    def _stream(self, flows: Sequence[Flow], ended: Ended, spared: Spared) -> dict[Flow, AnchorscopeError]:
        """Send shards through pools of replicas, one after the other. A whole job that needs a model is one shard."""
        # 1. what is missing
        planned = {number: self._ask("plan", flow) for number, flow in enumerate(flows)}
        tasks = [Task(number, shard) for number, plan in planned.items() for shard in plan.missing]
        left = {number: len(plan.missing) for number, plan in planned.items()}
        for number, count in left.items():
            if count == 0:
                ended(flows[number])
        if not tasks:
            return {}
        # 2. the pools, and what comes out of the last one
        errors: dict[Flow, AnchorscopeError] = {}
        total = sum(sum(plan.sizes) for plan in planned.values())
        told_flows: set[str] = set()
        first, last = float("inf"), 0.0
        reports = self._reports(flows, tasks)
        with ExitStack() as stack:
            advance = stack.enter_context(self.progress(self._title(flows, planned), total))
            stack.enter_context(closing(reports))
            sizes = {(task.flow, task.shard): planned[task.flow].sizes[task.shard] for task in tasks}
            advance(total - sum(sizes.values()))
            done = stack.enter_context(_Shards(sizes, advance, self._under_way))
            for report in reports:
                check_held(self.store.root)
                self._tell(report.notices, told_flows, str(report.flow))
                if isinstance(report.error, spared):
                    errors[flows[report.flow]] = report.error
                elif report.error is not None:
                    raise report.error
                first, last = min(first, report.ended - report.seconds), max(last, report.ended)
                done.end(report.flow, report.shard)
                left[report.flow] -= 1
                if left[report.flow] == 0:
                    ended(flows[report.flow])
        self._working = last - first
        # 3. remove the files that killed replicas left behind
        remove_leftovers(self.store.root)
        return errors

    def _reports(self, flows: Sequence[Flow], tasks: Sequence[Task]) -> Generator[Report, None, None]:
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
        for heavy, group in groupby(range(len(flows[0])), key=lambda place: flows[0][place].stage.heavy):
            places = list(group)
            alike = all(flow[place].stage.heavy == heavy for flow in flows for place in places)
            assert alike, "flows that are not alike"
            dataset = dataset.map_batches(
                _Pool,
                fn_constructor_args=(
                    self.store,
                    tuple(flows),
                    places,
                    self.spec.cpus_per_replica if heavy else 1,
                    self._gpus() if heavy else 0.0,
                    self._tally if heavy else None,
                ),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(min_size=most if heavy else 1, max_size=most),
                num_cpus=self.spec.cpus_per_replica if heavy else LIGHT,
                num_gpus=self._gpus() if heavy else 0,
            )
        batches = iter(dataset.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0))
        try:
            for batch in batches:
                for content in batch["report"]:
                    yield Report.unpacked(content)
        finally:  # else replicas keep running for as long as the error that ended this is referenced
            getattr(batches, "close", lambda: None)()

    # --- the cluster

    def _start(self) -> None:
        import ray

        if not ray.is_initialized():
            join_cluster(self.address, self.spec.replicas * self.spec.cpus_per_replica + SPARE_CPUS)
            self._started = True
        if self._planner is None:
            self._check_room()
            planner: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=PLANNED)(_RemotePlanner)
            self._planner = planner.remote(self.store, self._dtypes())
            tally: Any = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Tally)
            self._tally = tally.remote()

    def _check_room(self) -> None:
        """Refuse a replica that fits on no node of a local cluster. On another cluster warn, because nodes can join."""
        import ray

        needed = {"CPU": float(self.spec.cpus_per_replica), "GPU": self._gpus()}
        there = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if any(all(node.get(name, 0.0) >= count for name, count in needed.items()) for node in there):
            return
        problem = f"no node has {needed['CPU']:g} cores and {needed['GPU']:g} GPUs for a replica"
        if self.address is None:
            raise StudyError(problem, "Lower engine.gpus_per_replica or engine.cpus_per_replica.")
        self.notice(
            f"{problem}. Waiting for such a node to join. If none will, stop this run and lower "
            "engine.gpus_per_replica or engine.cpus_per_replica."
        )

    def _dtypes(self) -> dict[str, str]:
        """The dtype that `auto` means on the replicas' nodes. The planner may be on a machine without a GPU."""
        import ray

        models = self.store.study.models
        unknown = [model for model in models if model.dtype == "auto" and begun_dtype(self.store, model.name) is None]
        if not unknown or (self.address is None and not self._gpus()):  # else all are this machine
            return {}
        find: Any = ray.remote(num_cpus=self.spec.cpus_per_replica, num_gpus=self._gpus())(_fast_dtypes)
        with self.progress("finding the fastest dtype", None):
            return ray.get(find.remote(unknown))

    def _under_way(self) -> list[Doing]:
        """What replicas have done of the shards that they are making."""
        import ray

        return ray.get(self._tally.under_way.remote(), timeout=5)

    def _gpus(self) -> float:
        import ray

        if self.spec.gpus_per_replica is not None:
            return self.spec.gpus_per_replica
        return 1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0

    def _ask(self, what: str, *about: Any) -> Any:
        """Call the planner, pass its warnings on, and raise its error if there is one."""
        import ray

        try:
            answer, notices, error = ray.get(getattr(self._planner, what).remote(*about))
        except ray.exceptions.RayActorError as dead:
            raise StoreError(
                f"the planning process crashed {PLANNED + 1} times ({reason_of(dead)})",
                "Its node probably has too little memory. Finished work is kept. Run the same command again to resume.",
            ) from None
        self._tell(notices)
        if error is not None:
            raise error
        return answer

    def _tell(self, notices: Sequence[str], told_flows: set[str] | None = None, key: str = "") -> None:
        """Pass warnings on. If several replicas run the same flow, pass on only those of the first."""
        if notices and told_flows is not None:
            if key in told_flows:
                return
            told_flows.add(key)
        for notice in notices:
            self.notice(notice)

    def _title(self, flows: Sequence[Flow], planned: dict[int, Planned]) -> str:
        if len(flows) == 1:
            return planned[0].title
        stages = ", ".join(dict.fromkeys(flow[0].stage.name for flow in flows))
        return f"{flows[0][0].model}: {stages} of {len({flow[0].dataset for flow in flows})} datasets"


class _Shards:
    """Counts samples of shards: those of shards that have ended, and by heartbeats those of shards under way."""

    def __init__(
        self, sizes: Mapping[tuple[int, int], int], advance: Advance, under_way: Callable[[], list[Doing]]
    ) -> None:
        self._left, self._advance, self._under_way = dict(sizes), advance, under_way
        self._ended, self._told = 0, 0
        self._lock, self._stop = Lock(), Event()
        self._watcher = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Shards:
        self._watcher.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._watcher.join()

    def end(self, flow: int, shard: int) -> None:
        """Count a shard that has ended."""
        with self._lock:
            self._ended += self._left.pop((flow, shard), 0)
            self._tell(self._ended)

    def _watch(self) -> None:
        while not self._stop.wait(BEAT):
            with contextlib.suppress(Exception):  # a cluster that is shutting down hears nothing
                doing = self._under_way()
                with self._lock:
                    done = {(flow, shard): count for flow, shard, count in doing}
                    self._tell(self._ended + sum(min(done.get(task, 0), size) for task, size in self._left.items()))

    def _tell(self, done: int) -> None:
        """Count what is new. A shard whose replica crashed is counted once, though it is made again."""
        if done > self._told:
            self._advance(done - self._told)
            self._told = done


def _carry_out_flow(store: Store, flow: Flow, threads: int, gpus: float) -> Report:
    """Run a flow of whole jobs in a Ray task."""
    _show_gpus(gpus)
    return Replica(store, threads)(Task(0, 0), flow)


def _fast_dtypes(models: Sequence[ModelSpec]) -> dict[str, str]:
    """The fastest dtype on this machine for each model."""
    from anchorscope.models.load import dtype_of

    return {model.name: str(dtype_of(model)).removeprefix("torch.") for model in models}


def _show_gpus(gpus: float) -> None:
    """Hide a node's GPUs from a process that was given none. Ray itself would show all of them."""
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


class _RemotePlanner(Planner):
    """A planner in its own process, without a GPU."""

    def __init__(self, store: Store, dtypes: dict[str, str]) -> None:
        _show_gpus(0)
        super().__init__(store, dtypes)


class _Pool:
    """A replica that Ray Data calls with one task at a time."""

    def __init__(
        self, store: Store, flows: Sequence[Flow], places: Sequence[int], threads: int, gpus: float, tally: Any
    ) -> None:
        _show_gpus(gpus)
        self.flows, self.places = flows, places
        self.replica = Replica(store, threads)
        self.metrics = _Metrics()
        if tally is not None:
            Thread(target=beat, args=(tally, self.replica.name, self._doing), daemon=True).start()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        reports = []
        for flow, shard, before in zip(batch["flow"], batch["shard"], batch["report"], strict=True):
            earlier = Report.unpacked(before) if before else None
            if earlier is not None and earlier.error is not None:
                reports.append(before)
                continue
            jobs = [self.flows[flow][place] for place in self.places]
            report = self.replica(Task(int(flow), int(shard)), jobs)
            self.metrics.add(jobs[0], report)
            if earlier is not None:
                report.notices = [*earlier.notices, *report.notices]
                report.seconds, report.loading = report.seconds + earlier.seconds, report.loading + earlier.loading
            reports.append(report.packed())
        return {**batch, "report": np.array(reports, dtype=object)}

    def _doing(self) -> Doing | None:
        doing = self.replica.doing
        return None if doing is None else (doing[0].flow, doing[0].shard, doing[1])

    def __del__(self) -> None:
        """Stop the processes that vLLM started."""
        if hasattr(self, "replica"):
            self.replica.context.let_go()


class _Metrics:
    """The metrics of a replica that Ray exports for Prometheus."""

    def __init__(self) -> None:
        from ray.util.metrics import Counter

        tags = ("model", "dataset", "stage")
        self._samples = Counter("anchorscope_samples", "Number of samples done.", tags)
        self._seconds = Counter("anchorscope_busy_seconds", "Seconds that replicas worked on samples.", tags)
        self._loading = Counter("anchorscope_loading_seconds", "Seconds that replicas took to load models.", tags)
        self._failed = Counter("anchorscope_failed_shards", "Number of shards that could not be made.", tags)

    def add(self, job: Job, report: Report) -> None:
        """Count the result of a task."""
        about = {"model": job.model, "dataset": job.dataset, "stage": job.stage.name}
        for counter, value in (
            (self._samples, report.rows),
            (self._seconds, report.seconds),
            (self._loading, report.loading),
            (self._failed, int(report.error is not None)),
        ):
            if value > 0:
                counter.inc(value, about)
