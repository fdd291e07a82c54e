"""How a stage is carried out in this process: the shards that are missing, or the whole table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from anchorscope.progress import Advance, Progress, counted, silent, uncounted
from anchorscope.store.rundir import Cell
from anchorscope.store.stage import Parts, Sharded, Stage, Whole
from anchorscope.store.table import Kind, Plan, Table

R = TypeVar("R")


def carry_out(stage: Stage, progress: Progress = silent, later: Sequence[Table[Any]] = ()) -> None:
    """Make what is missing of a stage."""
    if isinstance(stage, Sharded):
        fill(stage, progress, later)
    elif isinstance(stage, Parts):
        make_parts(stage, progress)
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
            with counted(advance, len(plan.rows_of(shard)) // stage.rows_each) as of_shard:
                if shard in missing:
                    fill_shard(stage, shard, later, of_shard)
    stage.check()
    return missing


def fill_shard(stage: Sharded[R], shard: int, later: Sequence[Table[Any]] = (), advance: Advance = uncounted) -> None:
    by_table = stage.rows(shard, advance)
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
    outdated = stage.renewed and stage.cell.outdated(stage.kind, stage.inputs)
    finished = None if outdated else stage.cell.finished(stage.kind, stage.inputs)
    if finished is not None:
        return finished
    with progress(stage.title, stage.steps() if stage.steps else None) as advance:
        rows = stage.compute(advance)
    if outdated:
        stage.cell.forget(stage.kind)
    return _write(stage.cell, stage.kind, stage.inputs, rows, stage.shard_rows)


def make_parts(stage: Parts[R], progress: Progress = silent) -> None:
    """Make the parts of a table that are missing."""
    missing = missing_parts(stage)
    if missing:
        with progress(stage.title, stage.steps()) as advance:
            rows = stage.compute(missing, advance)
        for kind in missing:
            _write(stage.cell, kind, stage.inputs[kind], rows[kind])


def missing_parts(stage: Parts[R]) -> list[Kind[R]]:
    """The parts that are not there; refused where one was made from other inputs."""
    return [kind for kind, inputs in stage.inputs.items() if stage.cell.finished(kind, inputs) is None]


def _write(
    cell: Cell, kind: Kind[R], inputs: dict[str, Any], rows: Sequence[R], shard_rows: int | None = None
) -> Table[R]:
    plan = Plan(len(rows), shard_rows or max(1, len(rows)))
    table = cell.begin(kind, plan, inputs, {})
    for shard in range(plan.shards):
        table.write(shard, [rows[i] for i in plan.rows_of(shard)])
    return table
