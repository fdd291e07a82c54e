"""A sample on which the model fails is set aside with its reason; what a shard holds depends on nothing else."""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from anchorscope.errors import DeviceError, ModelError, StoreError
from anchorscope.progress import Advance
from anchorscope.store import Cell, Guard, Kind, Plan, Sharded
from anchorscope.store.fill import fill
from anchorscope.store.guard import ALONE, CRASHED, TOGETHER, TRIES
from anchorscope.store.table import Aside


@dataclass(frozen=True)
class Row:
    id: str
    """a name"""


FORK = multiprocessing.get_context("fork")
ROWS = Kind("rows", Row)
NAMES = [f"n{i}" for i in range(10)]


class Model:
    """Fails on some samples, or for some time on all."""

    def __init__(self, poisoned=(), failing: int = 0, error: type[Exception] = RuntimeError) -> None:
        self.poisoned, self.failing, self.error, self.calls = set(poisoned), failing, error, []

    def __call__(self, samples):
        self.calls.append(list(samples))
        if self.failing:
            self.failing -= 1
            raise self.error("not now")
        for sample in samples:
            if sample in self.poisoned:
                raise self.error(f"cannot read {sample}\nat all")
        return [Row(each) for each in samples]


def stage(cell: Cell, model: Model) -> Sharded[Row]:
    table = cell.begin(ROWS, Plan(len(NAMES), 4), {}, {})
    guard: Guard[str] = Guard(table, lambda name: name)
    aside: dict[int, list[Aside]] = {}

    def rows(shard: int, advance: Advance) -> list[list[Row]]:
        made, aside[shard] = guard(shard, [NAMES[i] for i in table.plan.rows_of(shard)], model)
        return [made]

    return Sharded("reading", (table,), rows, aside=aside)


def test_what_never_fails_is_tried_once(tmp_path: Path):
    model = Model()
    fill(stage(Cell(tmp_path), model))
    assert model.calls == [NAMES[:4], NAMES[4:8], NAMES[8:]]
    assert not list((tmp_path / "rows").glob(".*"))


def test_a_poisoned_sample_is_set_aside_with_its_reason_and_the_others_go_through_together(tmp_path: Path):
    cell, model = Cell(tmp_path), Model(poisoned=["n5", "n6"])
    fill(stage(cell, model))
    table = cell.table(ROWS)
    assert [row.id for row in table] == [name for name in NAMES if name not in ("n5", "n6")]
    assert table.look(0).aside == []
    assert table.look(1).aside == [Aside("n5", "cannot read n5 at all"), Aside("n6", "cannot read n6 at all")]
    assert table.missing() == []
    of_second = [call for call in model.calls if set(call) & set(NAMES[4:8])]
    assert of_second == [NAMES[4:8]] * TRIES + [[name] for name in NAMES[4:8]] + [["n4", "n7"]]
    assert fill(stage(cell, model)) == []  # nothing is left to do


def test_what_fails_for_a_while_leaves_no_trace(tmp_path: Path):
    for name, model in (("calm", Model()), ("shaken", Model(failing=1))):
        fill(stage(Cell(tmp_path / name), model))
    written = [(tmp_path / name / "rows" / "part-000000.parquet").read_bytes() for name in ("calm", "shaken")]
    assert written[0] == written[1]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Model(poisoned=NAMES), "cannot read n0"),  # all of them: it is not the samples
        (Model(failing=TRIES), "not now"),  # none of them alone
        (Model(poisoned=["n1"], error=StoreError), "cannot read n1"),  # the disk, and no sample
    ],
)
def test_what_is_no_sample_s_fault_is_raised(tmp_path: Path, model: Model, message: str):
    with pytest.raises(model.error, match=message):
        fill(stage(Cell(tmp_path), model))
    assert not list((tmp_path / "rows").glob(".*"))


def test_an_error_a_person_can_mend_is_set_aside_too_where_others_do_well(tmp_path: Path):
    """One prompt of a million that is too long stops nothing."""
    cell = Cell(tmp_path)
    fill(stage(cell, Model(poisoned=["n9"], error=ModelError)))
    assert cell.table(ROWS).look(2).aside == [Aside("n9", "cannot read n9 at all")]


class Deadly(Model):
    """Kills its process where some samples come together."""

    def __init__(self, deadly) -> None:
        super().__init__()
        self.deadly = deadly

    def __call__(self, samples):
        if self.deadly(samples):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(samples)


def dies(folder: Path, deadly) -> bool:
    """Whether a process that goes on with the table is killed."""
    process = FORK.Process(target=lambda: fill(stage(Cell(folder), Deadly(deadly))))
    process.start()
    process.join(60)
    return process.exitcode == -signal.SIGKILL


def test_a_sample_that_kills_its_process_is_set_aside_after_a_bounded_number_of_deaths(tmp_path: Path):
    killed = [dies(tmp_path, lambda samples: "n6" in samples) for _ in range(CRASHED + ALONE + 1)]
    assert killed == [True] * (CRASHED + ALONE) + [False]
    table = Cell(tmp_path).table(ROWS)
    assert [row.id for row in table] == [name for name in NAMES if name != "n6"]
    assert table.look(1).aside == [Aside("n6", "the process died over it")]


def test_samples_that_kill_their_process_together_alone_stop_the_run_and_say_so(tmp_path: Path):
    """As where a batch does not fit into memory: none is set aside, and it is not tried for ever."""

    def together(samples) -> bool:
        return len(samples) > 1

    assert all(dies(tmp_path, together) for _ in range(CRASHED + TOGETHER))
    with pytest.raises(StoreError, match="samples work one by one but not together") as raised:
        fill(stage(Cell(tmp_path), Deadly(together)))
    assert "lower traces.memory" in raised.value.hint


class AcceleratorError(RuntimeError):
    """Named as torch's, after which nothing more is computed in that process."""


def test_a_lost_gpu_counts_as_a_death_and_its_sample_is_found(tmp_path: Path):
    cell = Cell(tmp_path)
    for _ in range(CRASHED + ALONE):  # processes, as it were: each ends
        with pytest.raises(DeviceError, match=r"stopped responding .*cannot read n5"):
            fill(stage(cell, Model(poisoned=["n5"], error=AcceleratorError)))
    fill(stage(cell, Model(poisoned=["n5"], error=AcceleratorError)))
    assert cell.table(ROWS).look(1).aside == [Aside("n5", "the process died over it")]
    assert not list((tmp_path / "rows").glob(".*"))
