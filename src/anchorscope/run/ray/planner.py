"""Find what is left to do in a flow without loading weights, for an engine whose replicas are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from anchorscope.errors import AnchorscopeError
from anchorscope.progress import silent
from anchorscope.run.context import RunContext
from anchorscope.run.engine import Flow
from anchorscope.store import Job, Parts, Sharded, Store, Whole
from anchorscope.store.fill import carry_out, missing_parts
from anchorscope.store.stage import Stage


class Planned(NamedTuple):
    """What is left to do in a flow."""

    title: str
    """Title for the progress line."""
    missing: list[int]
    """Shards that are missing from at least one of its tables."""
    sizes: list[int]
    """Number of samples in each shard. A whole job counts as one shard of 0."""


class Planner:
    """Plans flows without weights, in its own process, so that the one that starts a run holds no tables or models."""

    def __init__(self, store: Store, dtypes: Mapping[str, str]) -> None:
        self.notices: list[str] = []
        self.context = RunContext(store, silent, self.notices.append, planning=True, dtypes=dtypes)

    def plan(self, flow: Flow) -> Any:
        """Return what is left to do, the warnings, and the error if there was one."""
        return self._with_notices(lambda: self._plan(flow))

    def carry_out(self, job: Job) -> Any:
        """Run a job that needs no weights in this process."""
        return self._with_notices(lambda: carry_out(self.context.stage(job)))

    def _plan(self, flow: Flow) -> Planned:
        stages = [self.context.stage(job) for job in flow]
        first = stages[0]
        if isinstance(first, Sharded):
            sharded = [stage for stage in stages if isinstance(stage, Sharded)]
            missing = sorted({shard for stage in sharded for shard in stage.missing()})
            sizes = [len(first.plan.rows_of(shard)) // first.rows_each for shard in range(first.plan.shards)]
            return Planned(first.title, missing, sizes)
        return Planned(first.title, [] if all(map(_done, stages)) else [0], [0])

    def _with_notices(self, work: Callable[[], Any]) -> tuple[Any, list[str], AnchorscopeError | None]:
        answer, error = None, None
        try:
            answer = work()
        except AnchorscopeError as raised:
            error = raised
        notices, self.notices[:] = list(self.notices), []
        return answer, notices, error


def _done(stage: Stage) -> bool:
    """Whether nothing of a stage that is made at once is missing."""
    if isinstance(stage, Parts):
        return not missing_parts(stage)
    return isinstance(stage, Whole) and not stage.renewed and stage.cell.finished(stage.kind, stage.inputs) is not None
