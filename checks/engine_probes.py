"""Probes and pathways: how fast beside an older checkout, and how much memory a large fit takes.

`python checks/engine_probes.py speed --before CHECKOUT` runs one made-up cell (as many samples, layers and features as
asked for; the default conditions and probes) by this checkout and by an older one in turns, each in a process of its
own, and prints seconds of wall clock and of CPU, and their ratios. `large` writes a made-up cell's activations in
bfloat16, a quarter of the samples a file, fits probes of some layers, and prints peak memory and seconds a layer. Both
end with one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

R = TypeVar("R")
Array = NDArray[np.float32]
RIGHT = 0.3  # share of right answers
SHARDS = 4


class Made:
    """Activations drawn anew whenever a layer is read: correlated features, of which a few know the label."""

    def __init__(self, samples: int, width: int) -> None:
        self.samples, self.width = samples, width
        self.labels = np.arange(samples) % 10 < 10 * RIGHT
        rng = np.random.default_rng(0)
        self.mix = (rng.normal(size=(width, width)) / np.sqrt(width)).astype(np.float32)
        self.spread = (np.arange(1, width + 1) ** -0.7).astype(np.float32)

    def layer(self, layer: int, condition: int = 0) -> Array:
        """(sample, width)"""
        states = np.random.default_rng([layer, 0]).standard_normal((self.samples, self.width), np.float32)
        if condition:
            noise = np.random.default_rng([layer, condition])
            states += np.float32(0.5) * noise.standard_normal(states.shape, np.float32)
        known = np.where(self.labels, 0.4, -0.4)[:, None] * (0.2 if condition == 1 else 1.0)
        states[:, 5:9] += known.astype(np.float32)
        made: Array = (states * self.spread) @ self.mix * np.float32(10)
        return made


def cell(samples: int, width: int, layers: int) -> dict[str, list[float]]:
    """Wall and CPU seconds of each step of one cell, by whatever `anchorscope` is on the path."""
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_limits

    from anchorscope.pathways import stage
    from anchorscope.pathways.record import Origin
    from anchorscope.pathways.widening import Family, widenings
    from anchorscope.probes.fitter import ProbeFitter
    from anchorscope.probes.folds import make_folds
    from anchorscope.probes.jackknife import jackknife_layer, jackknife_layers, make_groups
    from anchorscope.probes.readouts import Readouts
    from anchorscope.probes.recorded import LeftOut, Recorded
    from anchorscope.probes.text_only import text_only
    from anchorscope.study import ProbeSpec
    from anchorscope.study.terms import DEFAULT_CONDITIONS, ReadPoint

    # 1. the cell, all of it in memory: reading is not measured
    made, spec, conditions = Made(samples, width), ProbeSpec(), list(DEFAULT_CONDITIONS)
    states = {(c, layer): made.layer(layer, c) for c in range(len(conditions)) for layer in range(layers)}
    labels, clusters = made.labels, np.arange(samples)
    folds = make_folds(labels, clusters, spec.repeats, spec.folds, 0)
    rng = np.random.default_rng(1)
    words = [" ".join(f"w{each}" for each in row) for row in rng.integers(0, 800, (samples, 8))]
    spent: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], R]) -> R:
        clock, cpu = time.perf_counter(), time.process_time()
        done = work()
        spent[name] = [time.perf_counter() - clock, time.process_time() - cpu]
        return done

    def read(condition: Any, layer: int) -> Array:
        return states[conditions.index(condition), layer]

    # 2. probes
    fitter: Any = ProbeFitter(labels, clusters, folds, spec, 0)
    answer = timed("answer", lambda: fitter(read, layers, conditions))
    last = len(conditions) - 1
    question = timed("question", lambda: fitter(lambda _, layer: states[last, layer], layers, ["clean"], parts=1))
    refit: dict[str, Any] = timed(
        "refit", lambda: {c: fitter.refit(read, layers, c, answer.strength)[0][:, 0] for c in spec.refit}
    )
    groups, at = make_groups(labels, clusters, 0), jackknife_layers(layers)

    def left_out(layer: int) -> Array:
        both = [read(condition, layer) for condition in conditions[:2]]
        strength = float(answer.strength)
        return jackknife_layer(both, labels, clusters, folds, strength, answer.probes[layer], groups)

    def every_left_out() -> list[Array]:
        with threadpool_limits(1), ThreadPoolExecutor(2) as pool:
            return list(pool.map(left_out, at))

    left = timed("left_out", every_left_out)
    text = timed("text_only", lambda: text_only(words, words, labels, clusters, folds).astype(np.float32))
    # 3. pathways
    drift = answer.drift.copy()
    drift[0] = 0
    readouts = Readouts(
        labels, clusters, np.where(labels, 1.0, 0.3), tuple(conditions), answer.logits, drift, folds.fold
    )
    rows: Any = [SimpleNamespace(id=str(i), relation=None, kind="one") for i in range(samples)]
    recorded = Recorded(rows, readouts, question.logits[0][:, 0], text, refit, {}, {})
    without = LeftOut(groups, at, np.ascontiguousarray(np.stack(left).transpose(2, 1, 3, 4, 5, 0)))
    origin = Origin("made up", "made up", ReadPoint("mlp", "answer_last"))

    def pathways() -> int:
        """As the stage does it: an older checkout made its rows one by one."""
        widened = widenings(readouts, without)
        if not hasattr(stage, "every_part"):
            every = stage.every_series(recorded, spec.resamples, 0)
            return sum(len(list(one.rows(origin, widened.get(Family.of(one.key), 1.0)))) for one in every)
        from anchorscope.pathways.statistics import rows_of

        def rows(some: Any) -> list[Any]:
            return list(rows_of(some, origin, lambda key: widened.get(Family.of(key), 1.0)))

        return sum(len(made) for made in stage.every_part(recorded, spec.resamples, 0, rows))

    timed("pathways", pathways)
    return spent


def speed(args: argparse.Namespace) -> dict[str, Any]:
    """Both checkouts in turns; medians over turns."""
    here = Path(__file__).resolve().parents[1]
    runs: dict[str, list[dict[str, list[float]]]] = {"before": [], "now": []}
    for _ in range(args.turns):
        for name, checkout in (("before", args.before), ("now", here)):
            shape = [str(each) for each in (args.samples, args.width, args.layers)]
            environment = os.environ | {"PYTHONPATH": str(Path(checkout).resolve() / "src")}
            command = [sys.executable, str(Path(__file__).resolve()), "cell", *shape]
            out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            runs[name].append(json.loads(out.splitlines()[-1]))
            print(name, runs[name][-1], file=sys.stderr, flush=True)

    def seconds(name: str, steps: set[str], kind: int) -> float:
        return median(sum(one[step][kind] for step in steps) for one in runs[name])

    steps = set(runs["now"][0])
    parts = {"probes": steps - {"pathways"}, "pathways": {"pathways"}, "both": steps}
    found: dict[str, Any] = {"samples": args.samples, "width": args.width, "layers": args.layers, "turns": args.turns}
    for kind, unit in enumerate(("wall", "cpu")):
        for part, of in parts.items():
            before, now = seconds("before", of, kind), seconds("now", of, kind)
            found[f"{part}_{unit}"] = {
                "before": round(before, 1), "now": round(now, 1), "ratio": round(before / now, 2)
            }  # fmt: skip
    return found


def large(args: argparse.Namespace) -> dict[str, Any]:
    """Fit probes of some layers of a cell that lies on disk."""
    from safetensors import safe_open

    from anchorscope.probes.fitter import ProbeFitter
    from anchorscope.probes.folds import make_folds
    from anchorscope.study import ProbeSpec

    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        # 1. files of (layer, sample, width), as traces write them, by a process whose memory is not ours
        command = [sys.executable, str(Path(__file__).resolve()), "write", folder]
        shape = [str(each) for each in (args.samples, args.width, args.layers)]
        subprocess.run([*command, *shape], check=True)
        files = sorted(Path(folder).glob("*.safetensors"))
        size = sum(each.stat().st_size for each in files)

        def read(_: Any, layer: int) -> Array:
            parts = []
            for each in files:
                with safe_open(each, framework="pt") as file:
                    parts.append(file.get_slice("clean")[layer].float().numpy())
            return np.concatenate(parts)

        # 2. the fit
        labels, clusters = np.arange(args.samples) % 10 < 10 * RIGHT, np.arange(args.samples)
        spec = ProbeSpec(repeats=args.repeats)
        folds = make_folds(labels, clusters, spec.repeats, spec.folds, 0)
        count = min(args.fitted, args.layers)
        clock = time.perf_counter()
        fitted = ProbeFitter(labels, clusters, folds, spec, 0)(read, count, ["clean"])
        seconds = time.perf_counter() - clock
    assert np.isfinite(fitted.logits).all()
    return {
        "samples": args.samples, "width": args.width, "layers": args.layers, "gigabytes_on_disk": round(size / 1e9, 2),
        "repeats": args.repeats, "layers_fitted": count, "seconds_a_layer": round(seconds / count, 1),
        "strength": fitted.strength.value,
        "peak_gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
    }  # fmt: skip


def write(folder: Path, samples: int, width: int, layers: int) -> None:
    """The files of a large cell. Layers beyond the second repeat the first two: what counts is their size."""
    import torch
    from safetensors.torch import save_file

    made = Made(samples, width)
    drawn = [torch.from_numpy(made.layer(layer)).bfloat16() for layer in range(min(2, layers))]
    for shard, rows in enumerate(np.array_split(np.arange(samples), SHARDS)):
        states = torch.stack([drawn[layer % 2][rows[0] : rows[-1] + 1] for layer in range(layers)])
        save_file({"clean": states}, folder / f"part-{shard:06d}.safetensors")


def main() -> None:
    """Parse and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fast = commands.add_parser("speed")
    fast.add_argument("--before", required=True, help="an older checkout")
    fast.add_argument("--turns", type=int, default=3)
    for name, value in (("--samples", 1000), ("--width", 576), ("--layers", 8)):
        fast.add_argument(name, type=int, default=value)
    big = commands.add_parser("large")
    for name, value in (("--samples", 20_000), ("--layers", 2), ("--width", 5120), ("--fitted", 2), ("--repeats", 5)):
        big.add_argument(name, type=int, default=value)
    big.add_argument("--folder", help="where the files are written")
    one, drawn = commands.add_parser("cell"), commands.add_parser("write")
    drawn.add_argument("folder", type=Path)
    for each in (one, drawn):
        for name in ("samples", "width", "layers"):
            each.add_argument(name, type=int)
    args = parser.parse_args()
    if args.command == "write":
        write(args.folder, args.samples, args.width, args.layers)
    elif args.command == "cell":
        print(json.dumps(cell(args.samples, args.width, args.layers)))
    else:
        print(json.dumps(speed(args) if args.command == "speed" else large(args)))


if __name__ == "__main__":
    main()
