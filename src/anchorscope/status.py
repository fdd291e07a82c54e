"""What a run has and what is missing, read from its manifests and files alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from anchorscope.questions.stage import TABLE as QUESTIONS
from anchorscope.store import Store, versions
from anchorscope.study import Study
from anchorscope.table import Plan, Table


@dataclass(frozen=True)
class TableStatus:
    """How far one table is."""

    part: str
    table: str
    rows: int
    shards: int
    shards_done: int
    damaged: list[str]
    """files that are not whole"""
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


def expected(study: Study) -> Iterator[tuple[str, str]]:
    """Every table a whole run of the study has: its part and its name.

    The names stand here once more because the stages that give them import torch, which takes seconds.
    """
    for dataset in study.datasets:
        yield f"questions/{dataset.name}", QUESTIONS
    places = [f"{site}-{position}" for site in study.traces.sites for position in study.traces.positions]
    for model in study.models:
        for dataset in study.datasets:
            for name in ("answers", "spans", "traces"):
                yield f"{model.name}/{dataset.name}", name
            for place in places:
                yield f"{model.name}/{dataset.name}", f"readouts-{place}"
                yield f"{model.name}/{dataset.name}", f"pathways-{place}"
                if study.map is not None:
                    yield f"{model.name}/{dataset.name}", f"map-{place}"
                    yield f"{model.name}/{dataset.name}", f"mapstats-{place}"


def status_of(store: Store) -> RunStatus:
    """Look at every table: those of the manifests, and those the study asks for but that were not begun."""
    tables = {(part, name): TableStatus(part, name, 0, 0, 0, [], 0) for part, name in expected(store.study)}
    notes = []
    for cell in store.cells():
        part, manifest = cell.folder.relative_to(store.root).as_posix(), cell.manifest()
        for name, entry in manifest["tables"].items():
            table: Table[Any] = Table(cell.folder / name, object, Plan(entry["rows"], entry["shard_rows"]))
            tables[part, name] = _table_status(part, name, table)
        written = [manifest["versions"], *manifest["also_written_with"]]
        if len(written) > 1:
            notes.append(f"{part} was written with {len(written)} sets of versions: see its manifest.json")
        if versions() not in written:
            notes.append(f"{part} was written with other versions than are installed now: see its manifest.json")
    status = RunStatus(store.study, list(tables.values()), notes)
    for each in status.tables:
        notes += [f"damaged, will be made again: {path}" for path in each.damaged]
    if not status.complete:
        notes.append("Go on with the command that began the run; it does only what is missing.")
    return status


def _table_status(part: str, name: str, table: Table[Any]) -> TableStatus:
    done = rows = size = 0
    damaged = []
    for shard in range(table.plan.shards):
        count = table.rows_in(shard)
        if count is None:
            continue
        size += table.path(shard).stat().st_size
        if count == len(table.plan.rows_of(shard)):
            done, rows = done + 1, rows + count
        else:
            damaged.append(str(table.path(shard)))
    return TableStatus(part, name, rows, table.plan.shards, done, damaged, size)
