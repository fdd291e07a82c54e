"""Fill stages in this process, the default: one GPU and a few thousand questions need no cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from anchorscope.progress import Progress, silent
from anchorscope.store import Plan, Sharded, Table, Whole

R = TypeVar("R")


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
                made = stage.rows(shard)
                for table in later:
                    _outdate(table, shard, plan)
                for table, rows in zip(stage.tables, made, strict=True):
                    table.write(shard, rows)
                del made  # before the next ones are made
            advance(len(plan.rows_of(shard)) // stage.rows_each)
    stage.check()
    return missing


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
