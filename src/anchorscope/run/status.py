"""The status of a run: what it has and what is missing, read from its manifests and files alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from anchorscope.errors import ProbeError
from anchorscope.probes.record import TEXT_ONLY
from anchorscope.run.progress_file import process_of, remembered_command
from anchorscope.run.stages import stages_of
from anchorscope.store import Plan, Store, Table
from anchorscope.store.files import every
from anchorscope.store.rundir import versions
from anchorscope.store.table import Aside
from anchorscope.study import Study
from anchorscope.traces.record import TRACES

SHOWN = 3  # number of set-aside samples that are named per table


@dataclass(frozen=True)
class TableStatus:
    """The status of one table."""

    part: str
    """Folder of the table, relative to the run's."""
    table: str
    rows: int
    """Number of rows in complete shards."""
    shards: int
    """Number of shards that the table will have, or 0 before it is created."""
    shards_done: int
    damaged: list[str]
    size: int
    aside: list[Aside]
    """Samples that were set aside because the model failed on them."""
    unchecked: int = 0
    """Number of shards without checksums, which version 0.2.0 and older ones wrote."""
    too_few: bool = False
    """Whether the table was not created because there are too few right or wrong answers for probes."""

    @property
    def state(self) -> str:
        """complete, partial, damaged, too few, or not begun."""
        if self.damaged:
            return "damaged"
        if not self.shards:
            return "too few" if self.too_few else "not begun"
        return "complete" if self.shards_done == self.shards else "partial"


@dataclass(frozen=True)
class RunStatus:
    """The status of a run."""

    study: Study
    tables: list[TableStatus]
    """Every table that the study asks for or that exists."""
    notes: list[str]
    """Notes for the user, in sentences."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do, because every table that the study asks for exists or cannot be made."""
        wanted = set(expected(self.study))  # without tables made for detectors
        return all(t.state in ("complete", "too few") for t in self.tables if (t.part, t.table) in wanted)


def expected(study: Study) -> Iterator[tuple[str, str]]:
    """The part and name of every table that a complete run of the study has."""
    shared = [kind.name for stage in stages_of(study) if stage.scope == "dataset" for kind in stage.kinds(study)]
    of_cells = [kind.name for stage in stages_of(study) if stage.scope != "dataset" for kind in stage.kinds(study)]
    for part, names in (("questions", shared), *((model.name, of_cells) for model in study.models)):
        for dataset in study.datasets:
            for name in names:
                yield f"{part}/{dataset.name}", name


def status_of(store: Store) -> RunStatus:
    """Look at every table, both those in manifests and those that the study asks for but that do not exist yet."""
    tables = {(part, name): TableStatus(part, name, 0, 0, 0, [], 0, []) for part, name in expected(store.study)}
    notes = []
    for cell in store.cells():
        part, manifest = cell.folder.relative_to(store.root).as_posix(), cell.manifest()
        for name, entry in manifest["tables"].items():
            table: Table[Any] = Table(cell.folder / name, object, Plan(entry["rows"], entry["shard_rows"]))
            tables[part, name] = _table_status(part, name, table)
        written = [manifest["versions"], *manifest["also_written_with"]]
        if len(written) > 1:
            notes.append(
                f"{part} was written with {len(written)} different sets of package versions (see its manifest.json)"
            )
        if versions() not in written:
            notes.append(
                f"{part} was written with package versions that are not the installed ones (see its manifest.json)"
            )
    for part, why in _without_probes(store):
        notes.append(f"{part}: {why}")
        for key, line in tables.items():
            if key[0] == part and not line.shards:
                tables[key] = replace(line, too_few=True)
    status = RunStatus(store.study, list(tables.values()), notes)
    for row in status.tables:
        notes += [f"damaged file, which will be made again: {path}" for path in row.damaged]
        if row.aside:
            reasons = "; ".join(f"{one.id}: {one.reason}" for one in row.aside[:SHOWN])
            more = f" and {len(row.aside) - SHOWN:,} more" if len(row.aside) > SHOWN else ""
            notes.append(f"{row.part}, {row.table}: {len(row.aside):,} set aside ({reasons}{more})")
    if unchecked := sum(row.unchecked for row in status.tables):
        notes.append(f"{unchecked:,} shards have no checksums, because version 0.2.0 or an older one wrote them")
    process = process_of(store.root)
    if not status.complete and not (process is not None and process.alive):
        command = remembered_command(store.root) or "the command that started the run"
        notes.append(f"Resume with:  {command}   (it makes only what is missing)")
    return status


def _without_probes(store: Store) -> Iterator[tuple[str, str]]:
    """The models and datasets with too few traced answers for probes, and the reason."""
    for model in store.study.models:
        for dataset in store.study.datasets:
            cell = store.results(model.name, dataset.name)
            if not cell.complete(TRACES) or cell.entry(TEXT_ONLY) is not None:
                continue
            from anchorscope.probes.folds import folds_of  # scipy takes half a second, and is seldom needed here

            try:
                folds_of(list(cell.table(TRACES)), store.study.probes, store.study.seed)
            except ProbeError as error:
                yield f"{model.name}/{dataset.name}", error.message


def _table_status(part: str, name: str, table: Table[Any]) -> TableStatus:
    done = rows = 0
    damaged = []
    looks = {shard: look for shard, look in enumerate(table.looks()) if look.rows is not None}
    size = sum(every(lambda shard: table.path(shard).stat().st_size, looks, table.folder))
    for shard, look in looks.items():
        if look.whole:
            done, rows = done + 1, rows + (look.rows or 0)
        else:
            damaged.append(str(table.path(shard)))
    aside = [sample for look in looks.values() for sample in look.aside]
    unchecked = sum(not look.checksums for look in looks.values() if look.whole)
    few = table.plan.rows == 0
    return TableStatus(part, name, rows, table.plan.shards, done, damaged, size, aside, unchecked, too_few=few)
