"""What a run has and what is missing, read from its manifests and files alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anchorscope.questions.stage import TABLE as QUESTIONS
from anchorscope.store import Store, versions
from anchorscope.study import Study
from anchorscope.table import Plan


@dataclass(frozen=True)
class TableStatus:
    """How far one table is."""

    part: str
    table: str
    rows: int
    shards: int
    shards_done: int
    damaged: int
    size: int
    """bytes"""

    @property
    def state(self) -> str:
        """complete, partial, damaged, or not begun."""
        if self.damaged:
            return "damaged"
        if not self.shards:
            return "not begun"
        return "complete" if self.shards_done == self.shards else "partial"


@dataclass(frozen=True)
class RunStatus:
    """How far a run is."""

    study: Study
    tables: list[TableStatus]
    notes: list[str]

    @property
    def complete(self) -> bool:
        """Whether every table the study asks for is there."""
        return all(table.state == "complete" for table in self.tables)


def status_of(store: Store) -> RunStatus:
    """Look at every table: those of the manifests, and those the study asks for but that were not begun."""
    tables: dict[tuple[str, str], TableStatus] = {}
    for dataset in store.study.datasets:
        part = f"questions/{dataset.name}"
        tables[part, QUESTIONS] = TableStatus(part, QUESTIONS, 0, 0, 0, 0, 0)
    notes = []
    for cell in store.cells():
        part, manifest = cell.folder.relative_to(store.root).as_posix(), cell.manifest()
        for name, entry in manifest["tables"].items():
            tables[part, name] = _table_status(part, name, cell.folder / name, Plan(entry["rows"], entry["shard_rows"]))
        written = [manifest["versions"], *manifest["also_written_with"]]
        if len(written) > 1:
            notes.append(f"{part} was written with {len(written)} sets of versions: see its manifest.json")
        if versions() not in written:
            notes.append(f"{part} was written with other versions than are installed now: see its manifest.json")
    status = RunStatus(store.study, list(tables.values()), notes)
    if any(table.damaged for table in status.tables):
        notes.append("Delete the damaged files and run the stage again.")
    if not status.complete:
        notes.append("Go on with:  anchorscope questions STUDY  (it does only what is missing)")
    return status


def _table_status(part: str, name: str, folder: Path, plan: Plan) -> TableStatus:
    done = damaged = rows = size = 0
    for shard in range(plan.shards):
        path = folder / f"part-{shard:06d}.parquet"
        if not path.exists():
            continue
        size += path.stat().st_size
        try:
            count = pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError):
            count = -1
        if count == len(plan.rows_of(shard)):
            done, rows = done + 1, rows + count
        else:
            damaged += 1
    return TableStatus(part, name, rows, plan.shards, done, damaged, size)
