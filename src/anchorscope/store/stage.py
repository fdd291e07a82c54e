"""What a stage is: declared once (`StageDef`), asked for (`Job`), and made (`Sharded`, `Whole` or `Parts`).

A room declares its stages at the end of its `record.py`; run/stages.py puts the declarations of all rooms into a list.
The pipeline, `status`, `Run.table`, the engines, invalidation, the cost model and `run --until` read that list, so a
stage is described in one place. A stage is dealt to shards where its rows come about some at a time, and made at once
where they depend on all samples together. An engine decides where that happens, and store/fill.py how; nothing in a
room loops over shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import islice
from typing import Any, Generic, Literal, Protocol, TypeVar

from anchorscope.progress import Advance, Notice, Progress
from anchorscope.store.rundir import Cell, Store
from anchorscope.store.table import Aside, Kind, Plan, Table
from anchorscope.study import Study
from anchorscope.study.terms import ReadPoint

R = TypeVar("R")

Needs = Literal["nothing", "tokenizer", "generation", "weights"]
"""What a stage computes with: no model, a model's tokenizer, what generates answers, or passes of the model."""

Scope = Literal["dataset", "cell", "study", "run"]
"""What one table of a stage is about: one dataset, whichever model; one model on one dataset (a cell); one cell, but
made from the tables of all cells, so that every model must have come this far; or the whole run."""


def always(study: Study) -> bool:
    """Every study wants the stage."""
    return True


def on_demand(study: Study) -> bool:
    """No study wants the stage by itself: a command asks for it."""
    return False


def with_evidence(study: Study) -> bool:
    """Studies with `evidence` want the stage."""
    return study.evidence is not None


def with_claims(study: Study) -> bool:
    """Studies with `evidence` or with crossed answers have a ledger of claims."""
    return with_evidence(study) or any(dataset.crossed for dataset in study.datasets)


class Context(Protocol):
    """What every stage is made with. Stages that need a model take a `ModelContext` (models/context.py)."""

    @property
    def store(self) -> Store: ...

    @property
    def progress(self) -> Progress:
        """Told how far a stage is."""

    @property
    def notice(self) -> Notice:
        """Told what a person should know."""


@dataclass(frozen=True)
class StageDef:
    """One stage of a run, declared by the room that owns it."""

    name: str
    """By which commands, times and other stages call it."""
    tables: tuple[Kind[Any], ...]
    """The kinds of tables it fills, side by side."""
    make: str | Callable[[Any, Job], Sharded[Any] | Whole[Any] | Parts[Any]]
    """From a context and a job to what is to be carried out: a function, or `module:function`, which is imported when
    it is first called, since what a run has can be listed without torch."""
    after: tuple[str, ...] = ()
    """The stages whose tables it reads. They come before it, and where they change, its tables are outdated."""
    needs: Needs = "nothing"
    scope: Scope = "cell"
    """What one of its tables is about."""
    whole: bool = False
    """Whether a table is made at once; else it is made shard by shard."""
    per_point: bool = False
    """Whether it has one table for each read point. A whole stage has one job for each, a sharded stage fills all."""
    parts: tuple[str, ...] = ()
    """The parts that it has a table for, such as detectors; empty: it has one table for all."""
    dealt_like: str = ""
    """A stage whose shards have the same rows: a shard can go through both before the next shard is begun."""
    repeatable: bool = True
    """Whether a shard that is made again has the same bytes. Where it may not, what was made of it is outdated."""
    grows: bool = False
    """Whether a finished table may get further rows, such as those of a new experiment. It is then always checked."""
    told_as: str = ""
    """The name under which its time is told; empty: its own."""
    wanted: Callable[[Study], bool] = always
    """Whether a run of a study makes it."""

    @property
    def heavy(self) -> bool:
        """Whether it computes with a model's weights, or with what generates answers."""
        return self.needs in ("generation", "weights")

    @property
    def title(self) -> str:
        """The name under which its time is told."""
        return self.told_as or self.name

    def __call__(self, context: Context, job: Job) -> Stage:
        """What is to be carried out of a job; the tables of a sharded stage are begun by this."""
        if not isinstance(self.make, str):
            return self.make(context, job)
        module, function = self.make.split(":")
        return getattr(import_module(module), function)(context, job)

    def kinds(self, study: Study) -> list[Kind[Any]]:
        """Its tables in one cell: one of each kind, or one of each kind for every read point."""
        if self.parts:
            return [kind.part(name) for name in self.parts for kind in self.tables]
        if not self.per_point:
            return list(self.tables)
        return [kind.at(point) for point in study.traces.points for kind in self.tables]


@dataclass(frozen=True)
class Job:
    """One stage of one dataset, or of one model on it."""

    stage: StageDef
    dataset: str
    """The name of the dataset."""
    model: str = ""
    """The name of the model; empty where no model takes part."""
    point: ReadPoint | None = None
    """The read point, where a whole stage has one table for each."""
    demand: Any = None
    """What the command that asks for the stage says beyond the study; None for stages that the study wants."""

    def __str__(self) -> str:
        parts = (self.model, self.dataset, self.stage.name, self.point)
        return ", ".join(str(part) for part in parts if part)

    @property
    def read_point(self) -> ReadPoint:
        """The read point of a job that has one."""
        assert self.point is not None, f"{self.stage.name} is asked for without a read point"
        return self.point

    def cell(self, store: Store) -> Cell:
        if self.stage.scope == "run":
            return store.together()
        return store.results(self.model, self.dataset) if self.model else store.questions(self.dataset)

    def complete(self, store: Store) -> bool:
        """Whether no table of the stage is missing in its cell, whichever read point the job is of."""
        return all(self.cell(store).complete(kind) for kind in self.stage.kinds(store.study))


@dataclass(frozen=True)
class Sharded(Generic[R]):
    """A stage whose shards can be made one by one, in any order, anywhere."""

    title: str
    tables: tuple[Table[R], ...]
    """What it fills, side by side; all have the same plan."""
    rows: Callable[[int, Advance], Sequence[Sequence[R]]]
    """From the number of a shard to its rows in each table. What belongs beside them is written before it returns.

    It counts its samples as they are done, where a shard takes long.
    """
    rows_each: int = 1
    """Rows of one sample: progress counts samples."""
    check: Callable[[], None] = lambda: None
    """Called when all shards are there and some are new; raises where what they were read from has changed."""
    aside: dict[int, list[Aside]] = field(default_factory=dict)
    """Of shards whose rows were just made: what was set aside. `rows` puts it here, who writes them takes it out."""
    beside: dict[int, dict[str, str]] = field(default_factory=dict)
    """Likewise: the SHA-256 of each file that was written beside the rows, by the file's path from the cell."""
    guarded: bool = False
    """Whether `rows` itself finds the sample over which processes crash, and sets it aside (store/guard.py)."""

    @property
    def plan(self) -> Plan:
        """How rows are dealt to shards."""
        return self.tables[0].plan

    def missing(self) -> list[int]:
        """The shards that some table lacks."""
        return sorted({shard for table in self.tables for shard in table.missing()})


@dataclass(frozen=True)
class Whole(Generic[R]):
    """A stage that needs all samples at once: probes, and numbers with intervals."""

    title: str
    cell: Cell
    kind: Kind[R]
    inputs: dict[str, Any]
    """What the table is a function of."""
    compute: Callable[[Advance], Sequence[R]]
    steps: Callable[[], int] | None = None
    """The number of steps that progress counts; None where there is nothing to count."""
    shard_rows: int | None = None
    """Rows per shard; None: one shard holds all."""
    renewed: bool = False
    """Whether a table that was made from other inputs is made anew; else it is refused. `compute` may take rows over
    from it."""


@dataclass(frozen=True)
class Parts(Generic[R]):
    """A stage made at once whose table has parts. Parts that are there stay as they are."""

    title: str
    """What progress calls it."""
    cell: Cell
    """Where its tables go."""
    inputs: dict[Kind[R], dict[str, Any]]
    """What the table of each part is a function of."""
    compute: Callable[[Sequence[Kind[R]], Advance], Mapping[Kind[R], Sequence[R]]]
    """From the parts that are missing to their rows."""
    steps: Callable[[], int]
    """The number of steps that progress counts."""


Stage = Sharded[Any] | Whole[Any] | Parts[Any]
"""What is to be carried out."""


class Forward(Generic[R]):
    """The rows of a shard, out of a stream that can only be read from its start.

    Read in order, the stream is read once; for a shard before the last one asked for, once more from the start.
    """

    def __init__(self, plan: Plan, start: Callable[[], Iterator[R]]) -> None:
        self._plan, self._start = plan, start
        self._stream, self._next = start(), 0

    def __call__(self, shard: int) -> list[R]:
        """The shard's rows: fewer than planned where the stream ends early."""
        if shard < self._next:
            self._stream, self._next = self._start(), 0
        for skipped in range(self._next, shard):
            for _ in islice(self._stream, len(self._plan.rows_of(skipped))):
                pass
        self._next = shard + 1
        return list(islice(self._stream, len(self._plan.rows_of(shard))))
