"""A stage as a value: which tables it makes, and how their rows come about. An engine decides where that happens.

A stage is dealt to shards where rows come about some at a time, and made at once where they depend on all samples
together. Rooms say what their stages are; nothing in a room loops over shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from anchorscope.progress import Advance
from anchorscope.store.rundir import Cell
from anchorscope.store.table import Aside, Kind, Plan, Table

R = TypeVar("R")


@dataclass(frozen=True)
class Sharded(Generic[R]):
    """A stage whose shards can be made one by one, in any order, anywhere."""

    title: str
    """What progress calls it."""
    tables: tuple[Table[R], ...]
    """What it fills, side by side; all have the same plan."""
    rows: Callable[[int], Sequence[Sequence[R]]]
    """From the number of a shard to its rows in each table. What belongs beside them is written before it returns."""
    rows_each: int = 1
    """Rows of one sample: progress counts samples."""
    check: Callable[[], None] = lambda: None
    """Called when all shards are there and some are new; raises where what they were read from has changed."""
    aside: dict[int, list[Aside]] = field(default_factory=dict)
    """Of shards whose rows were just made: what was set aside. `rows` puts it here, who writes them takes it out."""

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
    """What progress calls it."""
    cell: Cell
    """Where its table goes."""
    kind: Kind[R]
    """What it makes."""
    inputs: dict[str, Any]
    """What the table is a function of."""
    compute: Callable[[Advance], Sequence[R]]
    """All rows."""
    steps: Callable[[], int] | None = None
    """How many steps progress counts; None where there is nothing to count."""
    shard_rows: int | None = None
    """Rows per shard; None: one shard holds all."""


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
