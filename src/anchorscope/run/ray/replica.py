"""A replica, one of several processes that run the same stages on different shards.

It knows nothing of Ray. Errors are returned as values, so that the user reads them where the run was started.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from anchorscope import errors
from anchorscope.errors import AnchorscopeError, DeviceError, StoreError
from anchorscope.progress import Advance, counted, silent
from anchorscope.run.context import RunContext
from anchorscope.store import Job, Sharded, Store
from anchorscope.store.files import TEMPORARY, write_text
from anchorscope.store.fill import carry_out, fill_shard
from anchorscope.store.stage import Stage

CRASHES = 5  # number of processes that may crash on the same thing before the run stops


@dataclass(frozen=True)
class Task:
    """The work given to a replica: one shard of jobs that have the same shards, or a whole job."""

    flow: int
    shard: int
    """Number of the shard, or 0 for a whole job."""


@dataclass
class Report:
    """The result of a task."""

    flow: int
    shard: int
    rows: int = 0
    """Number of samples that are done."""
    seconds: float = 0.0
    """Seconds that the task took, without loading."""
    loading: float = 0.0
    """Seconds that the replica took to load and test its model."""
    ended: float = 0.0
    """Time at which it was done, in seconds since 1970."""
    notices: list[str] = field(default_factory=list)
    error: AnchorscopeError | None = None
    """Error that stopped the task, or None."""

    def packed(self) -> str:
        """The report as text, for sending."""
        error = self.error and (type(self.error).__name__, self.error.message, self.error.hint)
        return json.dumps({**vars(self), "error": error})

    @classmethod
    def unpacked(cls, text: str) -> Report:
        """Read a report that `packed` wrote."""
        about = json.loads(text)
        if about["error"] is not None:
            name, message, hint = about["error"]
            about["error"] = getattr(errors, name, ReplicaError)(message, hint)
        return cls(**about)


class ReplicaError(AnchorscopeError):
    """A bug on a replica. Its traceback is the message."""


class Replica:
    """Makes shards. It loads its model for the first one, and keeps it."""

    def __init__(self, store: Store, threads: int) -> None:
        _set_threads(threads)
        self.notices: list[str] = []
        self.context = RunContext(store, silent, self.notices.append)
        self._stages: dict[Job, Stage] = {}
        self.name = f"{os.getpid()} on {platform.node()}"
        self.doing: tuple[Task, int] | None = None
        """The task at hand, and the number of its samples that are done."""

    def __call__(self, task: Task, jobs: Sequence[Job]) -> Report:
        """Run one task. Shards that are complete are not made again."""
        report = Report(task.flow, task.shard)
        try:
            for job in jobs:
                start = perf_counter()
                with self._counted("loading", job, task, job not in self._stages):
                    stage = self._stage(job)
                loaded = perf_counter()
                report.loading += loaded - start
                guarded = isinstance(stage, Sharded) and stage.guarded  # which finds the sample itself
                with self._counted("making", job, task, not guarded):
                    report.rows = self._carried_out(job, stage, task) or report.rows
                report.seconds += perf_counter() - loaded
        except DeviceError:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # the restarted process gets a GPU that works
        except AnchorscopeError as error:
            report.error = error
        except Exception:  # noqa: BLE001 reported where the run was started
            report.error = ReplicaError(f"replica {self.name} failed:\n{traceback.format_exc()}")
        self.doing, report.ended = None, time.time()
        report.notices, self.notices[:] = list(self.notices), []
        return report

    def _carried_out(self, job: Job, stage: Stage, task: Task) -> int:
        """Make a shard or a whole table, and return its number of samples."""
        if not isinstance(stage, Sharded):
            carry_out(stage)
            return 0
        samples = len(stage.plan.rows_of(task.shard)) // stage.rows_each
        if not all(table.look(task.shard).whole for table in stage.tables):
            with counted(self._count(task), samples) as advance:
                fill_shard(stage, task.shard, self.context.later(job), advance)
        return samples

    def _count(self, task: Task) -> Advance:
        """Count the samples of a task, for heartbeats."""

        def advance(count: int) -> None:
            self.doing = task, count + (self.doing[1] if self.doing else 0)

        return advance

    @contextmanager
    def _counted(self, what: str, job: Job, task: Task, counted: bool) -> Iterator[None]:
        """Count in a file the processes that started something and did not finish it. A crashed one reports nothing."""
        if not counted or not job.model:
            yield
            return
        point = f"-{job.point}" if job.point else ""
        name = f".{what}-{job.stage.name}{point}-{task.shard:06d}{TEMPORARY}"
        path = job.cell(self.context.store).folder / name.replace(" ", "")
        before = int(path.read_text(encoding="utf-8")) if path.exists() else 0
        try:
            if before >= CRASHES:
                raise StoreError(
                    f"{job.model}, {job.dataset}: {before} processes crashed while {what} {job.stage.name}",
                    "They probably ran out of memory. Give each replica more, or lower traces.memory in the study.",
                )
            write_text(path, str(before + 1))
            yield
        finally:
            path.unlink(missing_ok=True)

    def _stage(self, job: Job) -> Stage:
        """The stage of a job, made once because, for example, choosing the traced samples reads all of them."""
        if job not in self._stages:
            self._stages[job] = self.context.stage(job)
        return self._stages[job]


def _set_threads(threads: int) -> None:
    """Set the number of threads for computations in this process."""
    import torch

    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)
