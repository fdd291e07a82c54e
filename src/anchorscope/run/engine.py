"""The interface of an engine, which runs jobs, and the default engine, which runs them in this process.

The other engine is run/ray/engine.py. An engine decides where jobs run and not what a shard holds. Both make shards
with store/fill.py, so the files are byte-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Protocol

from anchorscope.errors import AnchorscopeError
from anchorscope.run.context import RunContext
from anchorscope.store import Job
from anchorscope.store.fill import carry_out

Flow = tuple[Job, ...]
"""Jobs of one dataset, or of one model on it, in order. Jobs made in shards have the same shards, so one shard can go
through all of them before the next is started."""
Ended = Callable[[Flow], None]
"""Called with each flow that is complete."""
Spared = tuple[type[AnchorscopeError], ...]
"""Errors that end their own flow but no other."""
Timed = Callable[[str, float], None]
"""Called with a stage and the seconds that it took."""


class Engine(Protocol):
    """An object that runs jobs."""

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        """Run the jobs of each flow in order. Flows do not depend on each other.

        Returns the flows that ended with a spared error. Any other error is raised.
        """

    def close(self) -> None:
        """Release everything. No jobs follow."""


class InProcess:
    """Runs one job after the other in this process."""

    def __init__(self, context: RunContext, timed: Timed) -> None:
        self.context, self.timed = context, timed

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        """Run flows one after the other."""
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
        start, loading = perf_counter(), self.context.loading
        try:
            stage = self.context.stage(job)
            carry_out(stage, self.context.progress, self.context.later(job))
        finally:
            loaded = self.context.loading - loading
            if loaded > 0.05:
                self.timed("loading", loaded)
            self.timed(job.stage.title, perf_counter() - start - loaded)

    def close(self) -> None:
        self.context.let_go()
