"""What stages on a Ray cluster must show: the same files, little lost to Ray, nothing lost to faults, a flat driver.

    python checks/engine.py identical speed faults disk poison memory share [--before CHECKOUT] [--work DIR]

Each part prints what it found; the last line is one JSON object. Real Ray, real processes, real signals; the model of
`speed` and `share` is SmolLM2-135M, the others are tiny ones of two families. One thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine_runs import (
    CACHE,
    ONE_THREAD,
    ROOT,
    SETS,
    SHARE,
    carried_out,
    content,
    different,
    real_study,
    started,
    tiny_study,
    write,
)


def identical(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Two models, four sets: the same files in process and on Ray with 1, 2 and 4 replicas."""
    if options.real:
        models = {"SmolLM2-135M": "smollm2-135m", "Gemma-3-270m": "gemma-3-270m"}
        study = real_study(work, options.each, models, SETS, shard_rows=16, traces={"mass": 8})
    else:
        sets = dict.fromkeys(SETS, (options.each // 2, options.each - options.each // 2))
        study = tiny_study(work, sets, {"one": "llama", "two": "gemma3_text"}, shard_rows=16, traces={"mass": 8})
    plain = carried_out(write(work, study, "plain"), work / "plain")
    found: dict[str, Any] = {"files": len(content(work / "plain")), "seconds in process": round(plain["seconds"])}
    for replicas in (1, 2, 4):
        name = f"ray-{replicas}"
        path = write(work, study, name, {"kind": "ray", "replicas": replicas})
        ran = carried_out(path, work / name)
        found[name] = {"different": different(work / "plain", work / name), "seconds": round(ran["seconds"])}
        print(name, found[name], flush=True)
    return found


def speed(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Tracing with SmolLM2: in process, on Ray with one replica, with two; one thread each, start-up aside."""
    study = real_study(
        work, options.traced, {"SmolLM2-135M": "smollm2-135m"}, ("triviaqa",), shard_rows=4, traces={"mass": 0}
    )
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
            print(name, {k: round(v, 1) for k, v in times.items()}, flush=True)
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
    """A head and some nodes, each with two cores to give."""
    os.environ.update(ONE_THREAD)
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(nodes):
        made.add_node(num_cpus=2)
    try:
        yield made
    finally:
        made.shutdown()


def pids(words: str) -> list[int]:
    """Processes whose command has these words."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if words in line]


def faults(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Whole runs of a small study, an actor, a node and the driver killed in each at random times."""
    sets = dict.fromkeys(("north", "south"), (60, 80))
    study = tiny_study(work, sets, {"one": "llama"}, shard_rows=8, traces={"mass": 4})
    carried_out(write(work, study, "plain"), work / "plain")
    rng = random.Random(options.seed)
    runs = []
    with cluster() as made:
        path = write(work, study, "ray", {"kind": "ray", "replicas": 2, "address": made.address})
        for number in range(options.runs):
            runs.append(_shaken(work, path, made, rng, number))
            print(runs[-1], flush=True)
    done = [kind for run in runs for kind, _ in run["faults"]]
    return {
        "faults": {kind: done.count(kind) for kind in ("actor", "node", "driver")},
        "different": sorted({name for run in runs for name in run["different"]}),
        "runs": runs,
    }


def _shaken(work: Path, study: Path, made: Any, rng: random.Random, number: int) -> dict[str, Any]:
    """One run with three faults. A fault waits until a replica works, so that it hits something."""
    root = work / f"shaken-{number}"
    shutil.rmtree(root, ignore_errors=True)
    process, _ = started(study, root)
    kinds = ["actor", "node", "driver"]
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
        if kind == "actor":
            victims = pids("ray::MapWorker")
            if victims:
                os.kill(rng.choice(victims), signal.SIGKILL)
        elif kind == "node":
            made.remove_node(rng.choice(list(made.worker_nodes)), allow_graceful=False)
            made.add_node(num_cpus=2)
        else:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process, _ = started(study, root)
        hit.append((kind, f"{time.time() - start:.0f} s"))
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(errors[-3000:])
    return {"faults": hit, "different": different(work / "plain", root), "seconds": round(time.time() - start)}


def disk(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The disk full in the middle of a run on Ray (a small tmpfs), then made larger: what is said, and the files."""
    study = tiny_study(work, {"north": (60, 80)}, {"one": "llama"}, shard_rows=8, traces={"mass": 4})
    carried_out(write(work, study, "plain"), work / "plain")
    place = work / "small"
    place.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    subprocess.run(mounted, check=True)
    try:
        path = write(work, study, "ray", {"kind": "ray", "replicas": 2})
        process, _ = started(path, place / "s")
        _, errors = process.communicate()
        said = [line for line in errors.splitlines() if "No space left" in line]
        subprocess.run(["mount", "-o", "remount,size=400m", str(place)], check=True)
        again, _ = started(path, place / "s")
        _, more = again.communicate()
        if again.returncode != 0:
            raise SystemExit(more[-3000:])
        gone = different(work / "plain", place / "s")
        return {"stopped with": process.returncode, "said": said[-1:], "different": gone}
    finally:
        subprocess.run(["umount", str(place)], check=False)


def poison(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A prompt that is longer than the model reads, and a sample that makes every pass raise: set aside on Ray."""
    from anchorscope.run.status import status_of
    from anchorscope.store import Store

    study = tiny_study(work, {"north": (60, 80)}, {"one": "llama"}, shard_rows=8, traces={"mass": 0})
    given = Path(study["answers"]["file"])
    rows = [json.loads(line) for line in given.read_text(encoding="utf-8").splitlines()]
    rows[33]["context"] = "The tower is old. " * 20000
    given.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    ran = carried_out(write(work, study, "ray", {"kind": "ray", "replicas": 2}), work / "run")
    status = status_of(Store.open(work / "run"))
    aside = [note for note in status.notes if "set aside" in note]
    return {"complete": status.complete, "set aside": aside, "seconds": round(ran["seconds"])}


def memory(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The peak of the process that begins a run on Ray, with few and with many questions."""
    found: dict[str, Any] = {}
    for count in options.questions:
        folder = work / f"questions-{count}"
        folder.mkdir(exist_ok=True)
        traces = {"mass": 0, "correct": 60, "wrong": 60}
        study = tiny_study(folder, {"north": (count // 4, count - count // 4)}, {"one": "llama"}, traces=traces)
        path = write(folder, study, "ray", {"kind": "ray", "replicas": 2})
        ran = carried_out(path, folder / "run")
        found[f"{count} questions"] = {"peak MB": round(ran["peak_mb"]), "seconds": round(ran["seconds"])}
        print(found, flush=True)
    return found


def share(work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """A whole run in process: how much of its CPU time is not spent in the model's own passes, before and after."""
    study = real_study(
        work, options.whole, {"SmolLM2-135M": "smollm2-135m"}, ("triviaqa",), probes={}, traces={"mass": 0}
    )
    path = write(work, study, "share")
    found: dict[str, Any] = {}
    for name, checkout in (("before", options.before), ("after", ROOT)):
        if checkout is None:
            continue
        ran = carried_out(path, work / f"share-{name}", SHARE, checkout)
        found[name] = {key: value if key == "by the clock" else round(value, 3) for key, value in ran.items()}
        print(name, found[name], flush=True)
    return found


PARTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "identical": identical,
    "speed": speed,
    "faults": faults,
    "disk": disk,
    "poison": poison,
    "memory": memory,
    "share": share,
}


def main() -> None:
    """Carry out the parts that are asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--work", type=Path, default=CACHE / "engine")
    parser.add_argument("--before", type=Path, help="an older checkout, for `share`")
    parser.add_argument("--real", action="store_true", help="real models in `identical` too: an hour")
    parser.add_argument("--each", type=int, default=48, help="questions of each set in `identical`")
    parser.add_argument("--traced", type=int, default=192, help="questions in `speed`")
    parser.add_argument("--rounds", type=int, default=2, help="of `speed`")
    parser.add_argument("--runs", type=int, default=4, help="with faults, three each")
    parser.add_argument("--seed", type=int, default=0, help="of the times of faults")
    parser.add_argument("--questions", type=int, nargs="+", default=[1000, 50000], help="of `memory`")
    parser.add_argument("--whole", type=int, default=120, help="questions in `share`")
    options = parser.parse_args()
    found = {}
    for name in options.parts:
        work = options.work / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        print(f"== {name}: {(PARTS[name].__doc__ or '').strip()}", flush=True)
        found[name] = PARTS[name](work, options)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
