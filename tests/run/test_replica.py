"""A replica counts who died before it over the same thing, and does not try for ever."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from anchorscope.errors import StoreError
from anchorscope.run.ray import engine as engine_module
from anchorscope.run.ray import replica as module
from anchorscope.run.ray.engine import _Shards
from anchorscope.run.ray.replica import CRASHES, Replica, Task
from anchorscope.run.stages import named
from anchorscope.store import Job, Sharded, Store
from tiny_study import write_study

SALIENCY = (Job(named("saliency"), "north", "one"),)
TRACES = (Job(named("traces"), "north", "one"),)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "study").mkdir()
    study = write_study(tmp_path / "study", {"one": "llama"}, {"north": (4, 4)}, name="s")
    with Store.writing(tmp_path / "runs" / "s", study) as made:
        return made


def dies(store: Store, while_loading: bool) -> int:
    """How a process ends that dies over a task, while it loads its model or afterwards."""

    class Deadly(Replica):
        def _stage(self, job):
            if while_loading:
                os._exit(9)
            return None

        def _carried_out(self, job, stage, task):
            os._exit(9)

    def work() -> None:
        Deadly(store, 1)(Task(0, 3), SALIENCY)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    return process.exitcode or 0


@pytest.mark.parametrize(("while_loading", "said"), [(True, "loading saliency"), (False, "making saliency")])
def test_deaths_are_counted_beside_the_run_and_bounded(store: Store, while_loading: bool, said: str):
    assert [dies(store, while_loading) for _ in range(CRASHES)] == [9] * CRASHES
    left = [path.name for path in store.root.rglob(".*.tmp")]
    assert len(left) == 1

    class Well(Replica):
        def _stage(self, job):
            return None

        def _carried_out(self, job, stage, task):
            return 7

    report = Well(store, 1)(Task(0, 3), SALIENCY)
    assert isinstance(report.error, StoreError)
    assert f"one, north: {CRASHES} processes crashed while {said}" in str(report.error)
    # said once: the same command tries again from the start
    assert Well(store, 1)(Task(0, 3), SALIENCY).rows == 7
    assert not list(store.root.rglob(".*.tmp"))


def test_who_goes_through_leaves_no_count(store: Store, monkeypatch):
    counted: list[str] = []
    monkeypatch.setattr(
        module,
        "write_text",
        lambda path, text: (
            counted.append(path.name),
            path.parent.mkdir(parents=True, exist_ok=True),
            path.write_text(text),
        ),
    )

    class Well(Replica):
        def _carried_out(self, job, stage, task):
            return 7

    replica = Well(store, 1)
    replica._stages[SALIENCY[0]] = None  # loaded before
    assert replica(Task(0, 3), SALIENCY).error is None
    assert counted == [".making-saliency-000003.tmp"]
    replica._stages[TRACES[0]] = Sharded("tracing", (), lambda shard, advance: [], guarded=True)
    counted.clear()
    assert replica(Task(0, 3), TRACES).error is None
    assert counted == []  # its guard counts


def test_samples_of_shards_under_way_are_counted_and_none_of_them_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_module, "BEAT", 0.01)
    doing: list[tuple[int, int, int]] = []
    said: list[int] = []

    def waits_for(total: int) -> None:
        until = time.monotonic() + 20
        while sum(said) != total:
            assert time.monotonic() < until, said
            time.sleep(0.01)

    with _Shards({(0, 0): 10, (0, 1): 10, (1, 0): 4}, said.append, lambda: list(doing)) as shards:
        doing[:] = [(0, 0, 3), (0, 1, 2)]
        waits_for(5)
        doing[:] = [(0, 0, 8), (0, 1, 1)]  # the second one crashed, and is made again
        waits_for(9)
        shards.end(0, 0)  # though its last heartbeat is still there
        waits_for(11)
        doing[:] = [(0, 1, 30), (1, 0, 1)]  # counted again after a failure: never more than it has
        waits_for(21)
        shards.end(0, 1)
        shards.end(1, 0)
    assert sum(said) == 24
    assert all(count > 0 for count in said)
