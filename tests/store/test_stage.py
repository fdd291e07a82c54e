"""A stage is a value; the engine fills it, and does only what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from anchorscope.errors import ProbeError, StoreError
from anchorscope.progress import Advance
from anchorscope.store import Cell, Forward, Kind, Parts, Plan, Sharded, Whole
from anchorscope.store.fill import carry_out, fill, make


@dataclass(frozen=True)
class Row:
    number: int
    """a number"""


NUMBERS, DOUBLES = Kind("numbers", Row), Kind("doubles", Row)


class Counted:
    """Tells how far a stage is, for a test to look at."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int | None, int]] = []

    def __call__(self, title, total):
        self.title, self.total, self.count = title, total, 0
        return self

    def __enter__(self):
        return self.advance

    def __exit__(self, *_):
        self.said.append((self.title, self.total, self.count))

    def advance(self, count: int) -> None:
        self.count += count


def numbers(cell: Cell, made: list[int], rows: int = 10, **more) -> Sharded[Row]:
    table = cell.begin(NUMBERS, Plan(rows, 4), {}, {})

    def of(shard: int, advance: Advance) -> list[list[Row]]:
        made.append(shard)
        return [[Row(i) for i in table.plan.rows_of(shard)]]

    return Sharded("counting", (table,), of, **more)


def test_only_missing_shards_are_made_and_all_are_counted(tmp_path: Path):
    cell, made, progress = Cell(tmp_path), [], Counted()
    assert fill(numbers(cell, made), progress) == [0, 1, 2]
    assert fill(numbers(cell, made), progress) == []
    cell.table(NUMBERS).remove(1)
    assert fill(numbers(cell, made), progress) == [1]
    assert made == [0, 1, 2, 1]
    assert list(cell.table(NUMBERS)) == [Row(i) for i in range(10)]
    assert progress.said == [("counting", 10, 10), ("counting", 10, 10)]  # nothing is said where nothing is done


def test_what_was_made_from_a_shard_goes_before_it_is_made_again(tmp_path: Path):
    cell, made = Cell(tmp_path), []
    fill(numbers(cell, made))
    alike, other = (cell.begin(Kind(name, Row), Plan(10, rows), {}, {}) for name, rows in (("alike", 4), ("other", 5)))
    for table in (alike, other):
        for shard in table.missing():
            table.write(shard, [Row(i) for i in table.plan.rows_of(shard)])
    cell.table(NUMBERS).remove(1)
    fill(numbers(cell, made), later=[alike, other])
    assert alike.missing() == [1]
    assert other.missing() == [0, 1]  # dealt otherwise: nobody knows what is still right


def test_tables_side_by_side_are_filled_together_and_samples_counted(tmp_path: Path):
    cell, progress = Cell(tmp_path), Counted()
    plan = Plan(9, 6)  # three rows a sample, two samples a shard
    tables = tuple(cell.begin(kind, plan, {}, {}) for kind in (NUMBERS, DOUBLES))

    def of(shard: int, advance: Advance) -> list[list[Row]]:
        return [[Row(factor * i) for i in plan.rows_of(shard)] for factor in (1, 2)]

    stage = Sharded("both", tables, of, rows_each=3)
    fill(stage, progress)
    tables[1].remove(0)
    assert stage.missing() == [0]
    fill(stage, progress)
    assert [row.number for row in cell.table(DOUBLES)] == [2 * i for i in range(9)]
    assert progress.said == [("both", 3, 3), ("both", 3, 3)]


def test_samples_are_counted_within_a_shard_and_never_twice(tmp_path: Path):
    cell, progress, seen = Cell(tmp_path), Counted(), []
    table = cell.begin(NUMBERS, Plan(10, 6), {}, {})

    def of(shard: int, advance: Advance) -> list[list[Row]]:
        for _ in range(3):  # of a batch that is tried again
            advance(2)
            seen.append(progress.count)
        if shard == 0:
            advance(5)
            seen.append(progress.count)
        return [[Row(i) for i in table.plan.rows_of(shard)]]

    fill(Sharded("batches", (table,), of), progress)
    assert seen == [2, 4, 6, 6, 8, 10, 10]
    assert progress.said == [("batches", 10, 10)]


def test_a_source_that_changed_is_refused_at_the_end(tmp_path: Path):
    def changed() -> None:
        raise ProbeError("it changed")

    with pytest.raises(ProbeError, match="changed"):
        fill(numbers(Cell(tmp_path), [], check=changed))
    assert fill(numbers(Cell(tmp_path), [], check=changed)) == []  # nothing was read, so nothing is checked


def test_a_whole_table_is_made_once_and_not_begun_when_it_fails(tmp_path: Path):
    cell, calls = Cell(tmp_path), []

    def stage(rows: int, inputs: dict[str, int]) -> Whole[Row]:
        def compute(advance) -> list[Row]:
            calls.append(rows)
            if rows < 0:
                raise ProbeError("too few")
            return [Row(i) for i in range(rows)]

        return Whole("all at once", cell, NUMBERS, inputs, compute, shard_rows=3)

    with pytest.raises(ProbeError):
        make(stage(-1, {"seed": 0}))
    assert cell.entry(NUMBERS) is None
    made = make(stage(7, {"seed": 0}))
    assert made.plan == Plan(7, 3)
    assert list(make(stage(8, {"seed": 0}))) == list(made) == [Row(i) for i in range(7)]
    assert calls == [-1, 7]


def test_a_stream_is_read_once_in_order_and_again_for_what_lies_behind():
    starts = []

    def start():
        starts.append(None)
        return iter(range(10))

    rows = Forward(Plan(10, 4), start)
    assert (rows(0), rows(2)) == ([0, 1, 2, 3], [8, 9])
    assert len(starts) == 1
    assert rows(1) == [4, 5, 6, 7]
    assert len(starts) == 2
    assert Forward(Plan(12, 4), start)(2) == [8, 9]  # shorter than planned: the stage must notice


def test_only_missing_parts_are_made_and_others_are_not_touched(tmp_path: Path):
    cell, made = Cell(tmp_path), []

    def parts(names: str, **inputs) -> Parts[Row]:
        def compute(missing, advance):
            made.append([kind.name for kind in missing])
            return {kind: [Row(len(made))] for kind in missing}

        return Parts("parts", cell, {NUMBERS.part(name): inputs for name in names}, compute, lambda: 1)

    carry_out(parts("ab"))
    before = cell.table(NUMBERS.part("b")).path(0).read_bytes()
    carry_out(parts("bc"))
    carry_out(parts("abc"))
    assert made == [["numbers-a", "numbers-b"], ["numbers-c"]]
    assert cell.table(NUMBERS.part("b")).path(0).read_bytes() == before
    with pytest.raises(StoreError, match="created from different inputs"):
        carry_out(parts("ab", seed=1))


def test_a_summary_is_made_anew_when_its_inputs_change(tmp_path: Path):
    cell, made = Cell(tmp_path), []

    def summary(rows: int, **inputs) -> Whole[Row]:
        def compute(advance):
            made.append(inputs)
            return [Row(i) for i in range(rows)]

        return Whole("summary", cell, NUMBERS, inputs, compute, shard_rows=2, renewed=True)

    for rows, of in ((5, "a"), (5, "a"), (2, "b")):
        make(summary(rows, of=of))
        assert [row.number for row in cell.table(NUMBERS)] == list(range(rows))
    assert made == [{"of": "a"}, {"of": "b"}]
    assert len(list((tmp_path / "numbers").iterdir())) == 1
