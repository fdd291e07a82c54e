"""One made-up cell (a model on a question set): time its probes and pathways, or write its activations to disk.

    python checks/helpers/probe_cell.py SAMPLES WIDTH LAYERS [--write FOLDER]

The package is whatever `anchorscope` is on the path, so that an older checkout can be measured. Without --write, the
last line is one JSON object: seconds by the clock and seconds of CPU time of each part.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

R = TypeVar("R")
Array = NDArray[np.float32]
RIGHT = 0.3  # share of right answers
SHARDS = 4


class MadeUpCell:
    """Activations that are drawn again whenever a layer is read: correlated features, a few of which know the label."""

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
        drawn: Array = (states * self.spread) @ self.mix * np.float32(10)
        return drawn


def cell(samples: int, width: int, layers: int) -> dict[str, list[float]]:
    """Seconds by the clock and of CPU time of each part of one cell."""
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
    made, spec, conditions = MadeUpCell(samples, width), ProbeSpec(), list(DEFAULT_CONDITIONS)
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
        """Make the rows as the stage does. An older checkout made its rows one by one."""
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


def write(folder: Path, samples: int, width: int, layers: int) -> None:
    """Write the files of a large cell. Layers beyond the second repeat the first two, since only the size counts."""
    import torch
    from safetensors.torch import save_file

    made = MadeUpCell(samples, width)
    drawn = [torch.from_numpy(made.layer(layer)).bfloat16() for layer in range(min(2, layers))]
    for shard, rows in enumerate(np.array_split(np.arange(samples), SHARDS)):
        states = torch.stack([drawn[layer % 2][rows[0] : rows[-1] + 1] for layer in range(layers)])
        save_file({"clean": states}, folder / f"part-{shard:06d}.safetensors")


def main() -> None:
    """Measure or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("samples", "width", "layers"):
        parser.add_argument(name, type=int, help=f"Number of {name}." if name != "width" else "Number of features.")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="Write the activations to FOLDER and stop.")
    options = parser.parse_args()
    shape = (options.samples, options.width, options.layers)
    if options.write:
        write(options.write, *shape)
    else:
        print(json.dumps(cell(*shape)))


if __name__ == "__main__":
    main()
