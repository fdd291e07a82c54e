"""An engine carries jobs out. This is the one in process, the default: a few thousand questions need no cluster.

Where jobs run is up to the engine (run/ray/engine.py is the other one); what a shard holds is not: both carry it out by
store/fill.py, and the files are the same to the byte.
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
"""Jobs of one dataset, or of one model on it, in order. Those made shard by shard are dealt alike, so a shard can go
through all of them before the next one is begun."""
Ended = Callable[[Flow], None]
"""Told which flow is complete."""
Spared = tuple[type[AnchorscopeError], ...]
"""Errors that end their own flow and no other."""
Timed = Callable[[str, float], None]
"""Told how many seconds a stage took."""


class Engine(Protocol):
    """What carries jobs out."""

    def run(self, flows: Sequence[Flow], ended: Ended, spared: Spared = ()) -> dict[Flow, AnchorscopeError]:
        """Carry flows out, each job after the one before it; flows do not depend on each other.

        Returns the flows that ended with an error that is spared. Any other error is raised.
        """

    def close(self) -> None:
        """No more jobs at all."""


class InProcess:
    """Carries out one job after the other, here."""

    def __init__(self, context: RunContext, timed: Timed) -> None:
        self.context, self.timed = context, timed

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
        """Forget the model."""
        self.context.let_go()
