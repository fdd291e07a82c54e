"""How a stage is carried out in this process: the shards that are missing, or the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from anchorscope.progress import Progress, silent
from anchorscope.store.stage import Sharded, Whole
from anchorscope.store.table import Plan, Table

R = TypeVar("R")


def carry_out(stage: Sharded[Any] | Whole[Any], progress: Progress = silent, later: Sequence[Table[Any]] = ()) -> None:
    """Make what is missing of a stage."""
    if isinstance(stage, Sharded):
        fill(stage, progress, later)
    else:
        make(stage, progress)


def fill(stage: Sharded[R], progress: Progress = silent, later: Sequence[Table[Any]] = ()) -> list[int]:
    """Make the shards that are missing, and return which ones these were.

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
    by_table = stage.rows(shard)
    aside, beside = stage.aside.pop(shard, []), stage.beside.pop(shard, {})
    for table in later:
        _outdate(table, shard, stage.plan)
    for table, rows in zip(stage.tables, by_table, strict=True):
        table.write(shard, rows, aside, beside)


def _outdate(table: Table[Any], shard: int, plan: Plan) -> None:
    """Remove what a table made of a shard: the same shard where rows are dealt alike, else all of them."""
    for outdated in [shard] if table.plan == plan else range(table.plan.shards):
        table.remove(outdated)


def make(stage: Whole[R], progress: Progress = silent) -> Table[R]:
    """Make a whole table, unless it is there already."""
    finished = stage.cell.finished(stage.kind, stage.inputs, stage.grows_by)
    if finished is not None:
        return finished
    with progress(stage.title, stage.steps() if stage.steps else None) as advance:
        rows = stage.compute(advance)
    plan = Plan(len(rows), stage.shard_rows or max(1, len(rows)))
    table = stage.cell.begin(stage.kind, plan, stage.inputs, {}, stage.grows_by)
    for shard in range(plan.shards):
        table.write(shard, [rows[i] for i in plan.rows_of(shard)])
    return table
