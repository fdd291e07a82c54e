"""Does a run on Ray write the same files as a run in one process, at what cost, and whatever crashes?

    python checks/ray_against_one_process.py --data DIR --models DIR

Steps: `identical` compares the files of 1, 2 and 4 replicas with those of one process; `speed` times tracing with
SmolLM2-135M; `faults` kills a worker, a node and the driver in each of several runs; `disk` fills the disk in the
middle of a run (needs root, to mount a small tmpfs); `poison` gives the model a prompt that is too long for it. Ray,
its processes and the signals are real. All steps but `speed` and `identical_real` use a
small model with random weights. Every process has one thread. The driver's memory: checks/peak_memory.py ray.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.runs import (
    ONE_THREAD,
    carried_out,
    content,
    different,
    finish,
    given_study,
    real_model,
    small_model,
    started,
    write,
)
from helpers.steps import SETS, Check, Figures, Options
from weights import TITLES

check = Check(__doc__)

MASS = {"attention_samples": 8}


def small_study(options: Options, work: Path, each: int, sets: Sequence[str], **fields: Any) -> dict[str, Any]:
    """A study of a small model with random weights."""
    return given_study(work, each, [small_model(work, options.models)], options.data, sets, **fields)


@check.step("data", "models")
def identical(options: Options, work: Path) -> Figures:
    """Compare the files of a small model on four sets."""
    return _compared(small_study(options, work, options.each, SETS, shard_rows=16, traces=MASS), work)


@check.step("data", "models", by_default=False)
def identical_real(options: Options, work: Path) -> Figures:
    """Compare the files of two real models on four sets (an hour)."""
    models = [real_model(name, options.models, title, "float32") for name, title in TITLES.items()]
    study = given_study(work, options.each, models, options.data, shard_rows=16, traces=MASS)
    return _compared(study, work)


def _compared(study: dict[str, Any], work: Path) -> Figures:
    plain = carried_out(write(work, study, "plain"), work / "plain")
    figures: Figures = {"files": len(content(work / "plain")), "seconds in process": round(plain["seconds"])}
    for replicas in (1, 2, 4):
        name = f"ray-{replicas}"
        report = carried_out(write(work, study, name, {"kind": "ray", "replicas": replicas}), work / name)
        figures[name] = {"different": different(work / "plain", work / name), "seconds": round(report["seconds"])}
        print(name, figures[name], flush=True)
    return figures


@check.step("data", "models")
def speed(options: Options, work: Path) -> Figures:
    """Time tracing in one process, on Ray with one replica, and with two; start-up is not counted."""
    model = real_model("smollm2-135m", options.models, "SmolLM2-135M", "float32")
    fields: dict[str, Any] = {"shard_rows": 4, "traces": {"attention_samples": 0}}
    study = given_study(work, options.traced, [model], options.data, ("triviaqa",), **fields)
    kinds: dict[str, dict[str, Any] | None] = {
        "in process": None,
        "one replica": {"kind": "ray", "replicas": 1},
        "two replicas": {"kind": "ray", "replicas": 2},
    }
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, engine in kinds.items():
            path = write(work, study, name.replace(" ", "-"), engine)
            times = carried_out(path, work / path.stem)["times"]
            seconds[name].append(times["traces"])
            print(name, {stage: round(value, 1) for stage, value in times.items()}, flush=True)
    unlike = {name: different(work / "in-process", work / name) for name in ("one-replica", "two-replicas")}
    ratios = [b / a for a, b in zip(seconds["in process"], seconds["one replica"], strict=True)]
    gains = [b / a for a, b in zip(seconds["two replicas"], seconds["one replica"], strict=True)]
    return {
        "seconds of tracing": seconds,
        "different": unlike,
        "one replica / in process": statistics.median(ratios),
        "one replica / two replicas": statistics.median(gains),
    }


@contextmanager
def cluster(nodes: int = 3) -> Iterator[Any]:
    """A Ray cluster on this machine that runs join: a head and some nodes with two cores each."""
    os.environ.update(ONE_THREAD)
    from ray.cluster_utils import Cluster

    local = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(nodes):
        local.add_node(num_cpus=2)
    os.environ["ANCHORSCOPE_RAY_ADDRESS"] = local.address
    try:
        yield local
    finally:
        del os.environ["ANCHORSCOPE_RAY_ADDRESS"]
        local.shutdown()


def pids(words: str) -> list[int]:
    """The processes whose command line contains these words."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if words in line]


@check.step("data", "models")
def faults(options: Options, work: Path) -> Figures:
    """Kill a worker, a node and the driver at random moments of each of several runs."""
    study = small_study(options, work, 140, SETS[:2], shard_rows=8, traces={"attention_samples": 4})
    carried_out(write(work, study, "plain"), work / "plain")
    rng = random.Random(options.seed)
    runs = []
    with cluster() as local:
        path = write(work, study, "ray", {"kind": "ray", "replicas": 2})
        for number in range(options.runs):
            runs.append(_with_faults(work, path, local, rng, number))
            print(runs[-1], flush=True)
    kinds = [kind for run in runs for kind, _ in run["faults"]]
    return {
        "faults": {kind: kinds.count(kind) for kind in ("worker", "node", "driver")},
        "different": sorted({name for run in runs for name in run["different"]}),
        "runs": runs,
    }


def _with_faults(work: Path, study: Path, local: Any, rng: random.Random, number: int) -> Figures:
    """One run with three faults. A fault waits until a worker is busy, so that it hits something."""
    root = work / f"faults-{number}"
    shutil.rmtree(root, ignore_errors=True)
    process, _ = started(study, root)
    kinds = ["worker", "node", "driver"]
    rng.shuffle(kinds)
    hit: list[tuple[str, str]] = []
    start = time.time()
    for kind in kinds:
        time.sleep(rng.uniform(0, 12))
        while process.poll() is None and not pids("ray::MapWorker"):
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 8))
        if process.poll() is not None:
            break
        if kind == "worker":
            victims = pids("ray::MapWorker")
            if victims:
                os.kill(rng.choice(victims), signal.SIGKILL)
        elif kind == "node":
            local.remove_node(rng.choice(list(local.worker_nodes)), allow_graceful=False)
            local.add_node(num_cpus=2)
        else:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process, _ = started(study, root)
        hit.append((kind, f"{time.time() - start:.0f} s"))
    finish(process)
    return {"faults": hit, "different": different(work / "plain", root), "seconds": round(time.time() - start)}


@check.step("data", "models")
def disk(options: Options, work: Path) -> Figures:
    """Fill a small disk in the middle of a run, make it larger, and resume."""
    study = small_study(options, work, 140, SETS[:1], shard_rows=8, traces={"attention_samples": 4})
    carried_out(write(work, study, "plain"), work / "plain")
    place = work / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)], check=True)
    try:
        path = write(work, study, "ray", {"kind": "ray", "replicas": 2})
        process, _ = started(path, place / "s")
        _, errors = process.communicate()
        said = [line for line in errors.splitlines() if "No space left" in line]
        subprocess.run(["mount", "-o", "remount,size=400m", str(place)], check=True)
        finish(started(path, place / "s")[0])
        unlike = different(work / "plain", place / "s")
        return {"stopped with": process.returncode, "said": said[-1:], "different": unlike}
    finally:
        subprocess.run(["umount", str(place)], check=False)


@check.step("data", "models")
def poison(options: Options, work: Path) -> Figures:
    """Give the model a prompt that is longer than it can read: the sample is set aside and the run completes."""
    from anchorscope.run.status import status_of
    from anchorscope.store import Store

    study = small_study(options, work, 140, SETS[:1], shard_rows=8, traces={"attention_samples": 0})
    given = Path(study["answers"]["file"])
    rows = [json.loads(line) for line in given.read_text(encoding="utf-8").splitlines()]
    rows[33]["context"] = "The tower is old. " * 20000
    given.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    report = carried_out(write(work, study, "ray", {"kind": "ray", "replicas": 2}), work / "run")
    status = status_of(Store.open(work / "run"))
    aside = [note for note in status.notes if "set aside" in note]
    return {"complete": status.complete, "set aside": aside, "seconds": round(report["seconds"])}


check.option("--each", "Compare this many questions of each set", 48)
check.option("--traced", "Trace this many questions in `speed`", 192)
check.option("--rounds", "Time every kind of run this many times", 2)
check.option("--runs", "Disturb this many runs, by three faults each", 4)
check.option("--seed", "Draw the moments of the faults from this seed", 0)

if __name__ == "__main__":
    check()
