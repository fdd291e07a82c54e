"""One of several processes that carry out the same stages, each some shards: what an engine puts on a node.

It knows nothing of Ray. What went wrong is handed back as a value, so that a person reads it where the run was begun.
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
from anchorscope.progress import silent
from anchorscope.run.context import RunContext
from anchorscope.store import Job, Sharded, Store
from anchorscope.store.files import TEMPORARY, write_text
from anchorscope.store.fill import fill_shard, make
from anchorscope.store.stage import Stage

CRASHES = 5  # processes that crashed over one and the same thing, and then the run stops


@dataclass(frozen=True)
class Task:
    """What a replica is asked for: one shard of some jobs that are dealt alike, or a whole job."""

    flow: int
    """Which flow it belongs to."""
    shard: int
    """Which shard; of a whole job 0."""


@dataclass
class Report:
    """What became of a task."""

    flow: int
    """Which flow it belongs to."""
    shard: int
    """Which shard."""
    rows: int = 0
    """Samples that are done."""
    seconds: float = 0.0
    """How long that took, loading aside."""
    loading: float = 0.0
    """How long the replica took to load and examine its model before it."""
    ended: float = 0.0
    """When it was done, in seconds since 1970."""
    notices: list[str] = field(default_factory=list)
    """What a person should know."""
    error: AnchorscopeError | None = None
    """Why it could not be done."""

    def packed(self) -> str:
        """As text, to be sent."""
        error = self.error and (type(self.error).__name__, self.error.message, self.error.hint)
        return json.dumps({**vars(self), "error": error})

    @classmethod
    def unpacked(cls, text: str) -> Report:
        """As it was sent."""
        about = json.loads(text)
        if about["error"] is not None:
            name, message, hint = about["error"]
            about["error"] = getattr(errors, name, ReplicaError)(message, hint)
        return cls(**about)


class ReplicaError(AnchorscopeError):
    """A mistake of ours on a replica; its traceback is the message."""


class Replica:
    """Carries out shards. It loads its model for the first of them, and keeps it."""

    def __init__(self, store: Store, threads: int) -> None:
        _set_threads(threads)
        self.notices: list[str] = []
        self.context = RunContext(store, silent, self.notices.append)
        self._stages: dict[Job, Stage] = {}
        self.name = f"{os.getpid()} on {platform.node()}"

    def __call__(self, task: Task, jobs: Sequence[Job]) -> Report:
        """Carry one task out. Shards that are there already, whole, are not made again."""
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
                    report.rows = self._carried_out(job, stage, task.shard) or report.rows
                report.seconds += perf_counter() - loaded
        except DeviceError:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)  # whoever restarts it gives it a GPU that computes
        except AnchorscopeError as error:
            report.error = error
        except Exception:  # noqa: BLE001 said where the run was begun
            report.error = ReplicaError(f"replica {self.name} failed:\n{traceback.format_exc()}")
        report.ended = time.time()
        report.notices, self.notices[:] = list(self.notices), []
        return report

    def _carried_out(self, job: Job, stage: Stage, shard: int) -> int:
        """Make a shard, or a whole table; how many samples it has."""
        if not isinstance(stage, Sharded):
            make(stage)
            return 0
        if not all(table.look(shard).whole for table in stage.tables):
            fill_shard(stage, shard, self.context.later(job))
        return len(stage.plan.rows_of(shard)) // stage.rows_each

    @contextmanager
    def _counted(self, what: str, job: Job, task: Task, counted: bool) -> Iterator[None]:
        """Count the processes that began something and did not end it, in a file: a crashed one reports nothing."""
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
                    "Likely they had too little memory: give a replica more, or lower traces.memory.",
                )
            write_text(path, str(before + 1))
            yield
        finally:
            path.unlink(missing_ok=True)

    def _stage(self, job: Job) -> Stage:
        """Made once: which samples are traced, say, takes a look at all of them."""
        if job not in self._stages:
            self._stages[job] = self.context.stage(job)
        return self._stages[job]


def _set_threads(threads: int) -> None:
    """So many threads, in what computes here."""
    import torch

    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)
