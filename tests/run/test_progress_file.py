"""How far a run is can be read by others: from the file beside it, and from lines of JSON."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anchorscope.errors import StoreError
from anchorscope.progress import silent
from anchorscope.run import progress_file as module
from anchorscope.run.progress_file import ProgressFile, Snapshot, process_of, snapshot_of
from anchorscope.store.files import HOLDER, PROGRESS, held


def watched(root: Path, monkeypatch, **more) -> ProgressFile:
    monkeypatch.setattr(module, "EVERY", 0.02)
    return ProgressFile(root, silent, lambda text: None, **more)


def heard(root: Path) -> Snapshot:
    for _ in range(200):
        if found := snapshot_of(root):
            return found
        time.sleep(0.02)
    raise AssertionError("nothing was said")


def test_who_asks_is_told_how_far_a_stage_is_and_nothing_stays(tmp_path: Path, monkeypatch):
    live = watched(tmp_path, monkeypatch)
    live.counts = lambda: {"replicas": 3, "restarted": 1}
    assert snapshot_of(tmp_path) is None
    with live.progress("tracing", 40) as advance:
        advance(10)
        seen = heard(tmp_path)
    assert (seen.title, seen.done, seen.total, seen.counts) == ("tracing", 10, 40, {"replicas": 3, "restarted": 1})
    assert seen.words().startswith("tracing: 10 of 40, ")
    assert "; 3 replicas alive, 1 restarted  (process " in seen.words()
    live.end()
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_killed_is_not_taken_for_one_that_goes_on(tmp_path: Path):
    old = Snapshot("tracing", 10, 40, 5.0, 2.0, time.time() - 90, "process 7 on host")
    assert "(process 7 on host, no sign of life for 90 s, it may have stopped)" in old.words()


def test_lines_of_json_say_what_happens_in_order(tmp_path: Path, monkeypatch):
    log = tmp_path / "log.jsonl"
    live = watched(tmp_path, monkeypatch, log=log)
    with live.progress("answering", 4) as advance:
        advance(4)
        live.notice("too few")
        time.sleep(0.1)
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line["event"] for line in lines if line["event"] != "progress"] == ["begin", "notice", "end"]
    assert lines[0] | {"time": 0} == {"time": 0, "event": "begin", "stage": "answering", "total": 4}
    assert any(line["event"] == "progress" and line["done"] == 4 for line in lines)
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_what_raises_in_a_stage_comes_through(tmp_path: Path, monkeypatch):
    live = watched(tmp_path, monkeypatch)
    with pytest.raises(ZeroDivisionError), live.progress("answering", 4):
        _ = 1 / 0


HOLDS = """
import json, os, platform, sys, time
from dataclasses import asdict
from pathlib import Path
from anchorscope.run.progress_file import Snapshot
from anchorscope.store.files import PROGRESS, held
root = Path(sys.argv[1])
with held(root):
    who = f"process {os.getpid()} on {platform.node()}"
    told = Snapshot("one, north: tracing", 40, 249, 5.0, 2.0, time.time() - 90, who)
    (root / PROGRESS).write_text(json.dumps(asdict(told)))
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_process_that_holds_the_run_is_alive_until_it_is_killed(tmp_path: Path):
    assert process_of(tmp_path) is None
    with subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        who = f"process {process.pid} on {platform.node()}"
        working = process_of(tmp_path)
        assert working is not None
        assert working.alive  # though it has not written for 90 s
        assert working.words == f"one, north: tracing: 40 of 249, 2.0/s, 0:01:44 left  ({who})"
        os.kill(process.pid, signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
        process.wait()
    killed = process_of(tmp_path)
    assert killed == (False, f"stopped at one, north: tracing, 40 of 249 done  ({who} has ended)")
    with held(tmp_path):  # the next one, which has not said anything yet
        now = process_of(tmp_path)
        assert now is not None
        assert now.alive
        assert f"its start  (process {os.getpid()} on " in now.words
        with pytest.raises(StoreError, match="is being written by process"), held(tmp_path):
            pass  # that was looked at took the lock from nobody


def test_a_process_on_another_machine_is_alive_while_it_writes_snapshots(tmp_path: Path):
    who = "process 7 on elsewhere"
    (tmp_path / HOLDER).write_text(who)
    for age, alive in ((5, True), (90, False)):
        told = Snapshot("tracing", 10, 40, 5.0, 2.0, time.time() - age, who)
        (tmp_path / PROGRESS).write_text(json.dumps(told.__dict__))
        found = process_of(tmp_path)
        assert found is not None
        assert found.alive == alive
        assert ("it may have stopped" in found.words) == (not alive)
