"""An engine carries jobs out. This is the one in process, the default: a few thousand questions need no cluster.

Where jobs run is the engine's affair (run/ray_engine.py is the other one); what a shard holds is not: both carry it out
by `fill_shard`, and the files are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from anchorscope.errors import AnchorscopeError
from anchorscope.progress import Progress, silent
from anchorscope.run.jobs import Flow, Job
from anchorscope.store import Plan, Sharded, Table, Whole

if TYPE_CHECKING:
    from anchorscope.run.workshop import Workshop

R = TypeVar("R")

Ended = Callable[[Flow], None]
"""Told which flow is complete."""
Spared = tuple[type[AnchorscopeError], ...]
"""Errors that end their own flow and no other."""
Timed = Callable[[str, float], None]
"""Told how many seconds a stage took."""


class Engine(Protocol):
    """Who carries jobs out."""

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        """Carry flows out, each job after the one before it; flows do not depend on each other.

        Gives the flows that ended with an error that is spared. Any other error is raised.
        """

    def let_go(self) -> None:
        """No more jobs with this model for now."""

    def close(self) -> None:
        """No more jobs at all."""


class InProcess:
    """Carries out one job after the other, here."""

    def __init__(self, workshop: Workshop, timed: Timed) -> None:
        self.workshop, self.timed = workshop, timed

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        """Carry flows out, one after the other."""
        errors: dict[Flow, AnchorscopeError] = {}
        for flow in flows:
            try:
                for job in flow:
                    self._carry_out(job)
            except spared as error:
                errors[flow] = error
            ended(flow)
        return errors

    def _carry_out(self, job: Job) -> None:
        start = perf_counter()
        self.workshop.ready(job)
        loaded = perf_counter()
        if loaded - start > 0.05:
            self.timed("loading", loaded - start)
        try:
            carry_out(self.workshop, job)
        finally:
            self.timed(job.told_as, perf_counter() - loaded)

    def let_go(self) -> None:
        """Forget the model."""
        self.workshop.let_go()

    close = let_go


def carry_out(workshop: Workshop, job: Job) -> None:
    """All of a job, in this process."""
    stage = workshop.stage(job)
    if isinstance(stage, Sharded):
        fill(stage, workshop.progress, workshop.later(job))
    else:
        make(stage, workshop.progress)


def fill(stage: Sharded[R], progress: Progress = silent, later: Sequence[Table[Any]] = ()) -> list[int]:
    """Make the shards that are missing; which ones.

    Before a shard is written, what `later` tables made of its predecessor is removed.
    """
    missing, plan = stage.missing(), stage.plan
    if not missing:
        return []
    with progress(stage.title, plan.rows // stage.rows_each) as advance:
        for shard in range(plan.shards):
            if shard in missing:
                fill_shard(stage, shard, later)
            advance(len(plan.rows_of(shard)) // stage.rows_each)
    stage.check()
    return missing


def fill_shard(stage: Sharded[R], shard: int, later: Sequence[Table[Any]] = ()) -> None:
    """Make one shard."""
    made = stage.rows(shard)
    aside = stage.aside.pop(shard, [])
    for table in later:
        _outdate(table, shard, stage.plan)
    for table, rows in zip(stage.tables, made, strict=True):
        table.write(shard, rows, aside)


def _outdate(table: Table[Any], shard: int, plan: Plan) -> None:
    """Remove what a table made of a shard: the same shard where rows are dealt alike, else all."""
    for each in [shard] if table.plan == plan else range(table.plan.shards):
        table.remove(each)


def make(stage: Whole[R], progress: Progress = silent) -> Table[R]:
    """Make a whole table, unless that is done."""
    done = stage.cell.finished(stage.kind, stage.inputs)
    if done is not None:
        return done
    with progress(stage.title, stage.steps() if stage.steps else None) as advance:
        rows = stage.compute(advance)
    plan = Plan(len(rows), stage.shard_rows or max(1, len(rows)))
    table = stage.cell.begin(stage.kind, plan, stage.inputs, {})
    for shard in range(plan.shards):
        table.write(shard, [rows[i] for i in plan.rows_of(shard)])
    return table
