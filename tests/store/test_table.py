from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope import AnchorscopeError
from anchorscope.store import Plan, Table
from anchorscope.store.files import write_whole
from anchorscope.store.table import Aside, as_arrays, schema_of


@dataclass(frozen=True)
class Row:
    name: str
    """a name"""
    numbers: list[int]
    """numbers"""
    score: float | None
    """a score"""


@dataclass(frozen=True)
class Other:
    name: str
    """a name"""


ROWS = [Row(f"r{i}", list(range(i)), None if i % 2 else i / 3) for i in range(10)]


def full(folder: Path) -> Table[Row]:
    table = Table(folder, Row, Plan(10, 4))
    for shard in table.missing():
        table.write(shard, [ROWS[i] for i in table.plan.rows_of(shard)])
    return table


def test_rows_come_back_as_they_were(tmp_path: Path):
    table = full(tmp_path)
    assert list(table) == ROWS
    assert [batch.num_rows for batch in table.batches(["name"])] == [4, 4, 2]


def test_columns_carry_their_documentation(tmp_path: Path):
    full(tmp_path)
    schema = pq.read_schema(tmp_path / "part-000000.parquet")
    assert schema.field("score").metadata == {b"doc": b"a score"}
    assert schema.field("score").nullable
    assert not schema.field("name").nullable


@given(st.integers(0, 500), st.integers(1, 60))
def test_a_plan_deals_every_row_to_one_shard(rows: int, shard_rows: int):
    plan = Plan(rows, shard_rows)
    dealt = [row for shard in range(plan.shards) for row in plan.rows_of(shard)]
    assert dealt == list(range(rows))


def test_an_incomplete_table_is_not_read(tmp_path: Path):
    table = full(tmp_path)
    table.path(1).unlink()
    with pytest.raises(AnchorscopeError, match="1 of 3 shards are missing"):
        list(table)
    assert table.missing() == [1]


def test_a_shard_of_the_wrong_length_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match="takes 4 rows, got 3"):
        Table(tmp_path, Row, Plan(10, 4)).write(0, ROWS[:3])


def test_a_damaged_shard_is_named(tmp_path: Path):
    table = full(tmp_path)
    table.path(1).write_bytes(table.path(1).read_bytes()[:-30])
    assert table.missing() == [1]
    with pytest.raises(AnchorscopeError, match="1 of 3 shards are missing"):
        list(table)
    content = bytearray(full(tmp_path).path(1).read_bytes())
    content[10:40] = bytes(30)  # the footer is whole, the rows are not
    table.path(1).write_bytes(content)
    with pytest.raises(AnchorscopeError, match=r"part-000001\.parquet is damaged"):
        list(table)


@pytest.mark.parametrize("aside", [(), (Aside("r2", "too long"),)])
def test_a_flipped_bit_never_changes_values(aside: tuple[Aside, ...], tmp_path: Path):
    table = Table(tmp_path, Row, Plan(10, 10))
    table.write(0, ROWS, aside, {"states/part-000000.safetensors": "ab" * 32})
    path, random = table.path(0), Random(1)
    whole, good = path.read_bytes(), (table.look(0), table.read(0))
    assert good[0].beside == {"states/part-000000.safetensors": "ab" * 32}
    noticed = 0
    for turn in range(600):
        damaged = bytearray(whole)
        damaged[random.randrange(len(whole))] ^= 1 << random.randrange(8)
        path.write_bytes(damaged)
        os.utime(path, ns=(turn, turn))  # a file that was written anew has another time, even within a clock's tick
        look = table.look(0)
        try:
            rows = table.read(0)
        except AnchorscopeError:
            noticed += 1
        else:  # a flip in what nobody reads, such as the first four bytes
            assert (look, rows) == good
    assert noticed > 590


def test_a_table_of_version_0_2_0_is_read(tmp_path: Path):
    table = full(tmp_path)
    for shard in range(3):
        old = pq.read_table(table.path(shard)).replace_schema_metadata(None)
        pq.write_table(old, table.path(shard), compression="zstd")
    assert list(table) == ROWS
    assert not any(look.checksums for look in table.looks())
    pq.write_table(pq.read_table(table.path(1)), table.path(1), compression="none")
    text = table.path(1).read_bytes()
    table.path(1).write_bytes(text.replace(b"r5", b"r\xff"))
    with pytest.raises(AnchorscopeError, match=r"part-000001\.parquet is damaged"):
        list(table)


@pytest.mark.parametrize("aside", ["{not json", '[["a"]]', "[1]", "{}", "[" * 100_000])
def test_a_shard_with_unreadable_metadata_is_made_again(aside: str, tmp_path: Path):
    table = full(tmp_path)
    pq.write_table(pq.read_table(table.path(1)).replace_schema_metadata({"set_aside": aside}), table.path(1))
    assert table.missing() == [1]


def test_a_shard_of_another_plan_or_record_is_refused(tmp_path: Path):
    full(tmp_path)
    assert Table(tmp_path, Row, Plan(10, 5)).missing() == [0, 1]
    with pytest.raises(AnchorscopeError, match="its columns differ"):
        list(Table(tmp_path, Other, Plan(10, 4)))
    assert schema_of(Other).names == ["name"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path):
    def fail(stream):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(AnchorscopeError, match="No space left on device"):
        write_whole(tmp_path / "a" / "f", fail)
    assert list((tmp_path / "a").iterdir()) == []


def test_a_file_is_never_seen_half_written(tmp_path: Path):
    target = tmp_path / "f"
    seen = []

    def write(stream):
        stream.write(b"half")
        stream.flush()
        seen.append(target.exists())
        stream.write(b"whole")

    write_whole(target, write)
    assert seen == [False]
    assert target.read_bytes() == b"halfwhole"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_a_readable_error(tmp_path: Path):
    tmp_path.chmod(0o500)
    with pytest.raises(AnchorscopeError, match="Permission denied"):
        write_whole(tmp_path / "f", lambda stream: None)


@dataclass(frozen=True)
class Nested:
    cube: list[list[list[np.float32]]]
    """(repeat, part, layer)"""


shapes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4)) | st.just((0, 0, 0))


@given(st.lists(shapes, min_size=1, max_size=8))
def test_arrays_of_any_shape_come_back_as_they_were(tmp_path_factory, shape_of):
    """Written from arrays, read as lists in lists and as arrays; a row may be empty, and rows may differ."""
    rng = np.random.default_rng(len(shape_of))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shape_of]
    table = Table(tmp_path_factory.mktemp("nested"), Nested, Plan(len(arrays), 3))
    for shard in range(table.plan.shards):
        table.write(shard, [Nested(arrays[i]) for i in table.plan.rows_of(shard)])
    assert [row.cube for row in table] == [array.tolist() for array in arrays]
    back = [array for batch in table.batches() for array in as_arrays(batch.column("cube"))]
    assert all(np.array_equal(one, other) for one, other in zip(back, arrays, strict=True))
