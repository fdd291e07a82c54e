"""Does peak memory stay flat when the number of questions, or of samples, grows?

    python checks/peak_memory.py --data DIR --models DIR

Steps: `questions` reads 1,000 and 20,000 rows of each file format (with --million also a file of a million rows);
`answers` answers 1,000 and 14,000 questions with SmolLM2-135M; `ray` measures the process that starts a run on Ray;
`fit` fits probes of one layer of a made-up cell on disk: 20,000 samples of 5,120 features in 64 layers (13 GB; set
TMPDIR to a folder with that much room).
"""

from __future__ import annotations

import itertools
import json
import resource
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.formats import ENCODERS
from helpers.runs import carried_out, given_study, measured, real_model, small_model, study_on_files, write
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

ROWS = (1_000, 20_000)
FEW, MANY = 250, 12_500  # questions of each of three sets in the run on Ray
CELL = [20_000, 5_120, 64]  # samples, features and layers of the made-up cell
RIGHT = 0.3  # share of right answers in the made-up cell


@check.step("data")
def questions(options: Options, work: Path) -> Figures:
    """Peak memory of reading small and large files; the largest of three readings."""
    lines = (options.data / "triviaqa.jsonl").read_bytes().split(b"\n")[:-1]
    rows = [json.loads(line) for line in lines]
    peaks: Figures = {}
    for size, ending in itertools.product(ROWS, ENCODERS):
        path = work / f"rows-{size}{ending}"
        path.write_bytes(ENCODERS[ending](rows[:size]))
        turns = [_reading(path, work, f"{size}{ending}-{turn}") for turn in range(3)]
        peaks[f"{size}{ending}"] = {"peak_mb": max(t["peak_mb"] for t in turns), "seconds": turns[0]["seconds"]}
    if options.million:
        path = work / "million.jsonl"
        with path.open("w", encoding="utf-8") as stream:
            for i, row in enumerate(itertools.islice(itertools.cycle(rows), 1_000_000)):
                stream.write(json.dumps({**row, "id": f"{i}"}, ensure_ascii=False) + "\n")
        peaks["1000000.jsonl"] = _reading(path, work, "million")
    return peaks


def _reading(path: Path, work: Path, name: str) -> dict[str, float]:
    datasets = [{"set": "triviaqa", "path": str(path)}]
    study = write(work, {"name": name, "models": ["org/model"], "datasets": datasets}, name)
    return measured("run", str(study), "--until", "questions", "--runs", str(work / "runs"))


@check.step("data", "models")
def answers(options: Options, work: Path) -> Figures:
    """Peak memory of answering few and many questions."""
    models = [real_model("smollm2-135m", options.models, "SmolLM2-135M")]
    peaks = {}
    for count in (1_000, 14_000):
        study = study_on_files(work / f"memory-{count}.yaml", models, options.data, {"popqa": count})
        peaks[f"{count}"] = measured("run", study, "--until", "answers", "--runs", str(work))
    return peaks


@check.step("data", "models")
def ray(options: Options, work: Path) -> Figures:
    """Peak memory of the process that starts a run on Ray, with few and with many questions."""
    peaks: Figures = {}
    for count in (FEW, MANY):
        folder = work / f"questions-{count}"
        folder.mkdir()
        traces = {"attention_samples": 0, "max_right": 60, "max_wrong": 60}
        model, sets = small_model(folder, options.models), ("popqa", "triviaqa", "nq")
        study = given_study(folder, count, [model], options.data, sets, traces=traces)
        report = carried_out(write(folder, study, "ray", {"kind": "ray", "replicas": 2}), folder / "run")
        peaks[f"{len(sets) * count} questions"] = {
            "peak MB": round(report["peak_mb"]),
            "seconds": round(report["seconds"]),
        }
    return peaks


@check.step()
def fit(options: Options, work: Path) -> Figures:
    """Peak memory and seconds of fitting the probes of one layer, with one repeat."""
    from safetensors import safe_open

    from anchorscope.probes.fitter import ProbeFitter
    from anchorscope.probes.folds import make_folds
    from anchorscope.study import ProbeSpec

    samples, width, layers = options.cell
    # 1. files of (layer, sample, width), as traces write them, by a process whose memory is not ours
    writing = get_context("spawn").Process(target=write_cell, args=(work, *options.cell))
    writing.start()
    writing.join()
    files = sorted(work.glob("*.safetensors"))
    size = sum(each.stat().st_size for each in files)

    def read(_: Any, layer: int) -> NDArray[np.float32]:
        parts = []
        for each in files:
            with safe_open(each, framework="pt") as file:
                parts.append(file.get_slice("clean")[layer].float().numpy())
        return np.concatenate(parts)

    # 2. the fit
    labels, clusters = np.arange(samples) % 10 < 10 * RIGHT, np.arange(samples)
    spec = ProbeSpec(repeats=1)
    folds = make_folds(labels, clusters, spec.repeats, spec.folds, 0)
    start = time.perf_counter()
    fitted = ProbeFitter(labels, clusters, folds, spec, 0)(read, 1, ["clean"])
    seconds = time.perf_counter() - start
    assert np.isfinite(fitted.logits).all()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {
        "samples": samples, "width": width, "layers": layers, "gigabytes_on_disk": round(size / 1e9, 2),
        "seconds_a_layer": round(seconds, 1), "strength": fitted.strength.value, "peak_gigabytes": round(peak, 2),
    }  # fmt: skip


def write_cell(folder: Path, samples: int, width: int, layers: int) -> None:
    """Write activations in which a few features know the label; all layers are the same, since only the size counts."""
    import torch
    from safetensors.torch import save_file

    states = np.random.default_rng(0).standard_normal((samples, width), np.float32)
    states[:, 5:9] += np.where(np.arange(samples) % 10 < 10 * RIGHT, 0.4, -0.4)[:, None].astype(np.float32)
    layer = torch.from_numpy(states).bfloat16()
    for shard, rows in enumerate(np.array_split(np.arange(samples), 4)):
        part = layer[rows[0] : rows[-1] + 1].expand(layers, -1, -1).contiguous()
        save_file({"clean": part}, folder / f"part-{shard:06d}.safetensors")


@check.judge
def judge(figures: Figures) -> None:
    """Stop when memory grows with the rows of a file."""
    for ending in ENCODERS if "questions" in figures else ():
        small, large = (figures["questions"][f"{size}{ending}"]["peak_mb"] for size in ROWS)
        limit = 1.4 if ending == ".parquet" else 1.2
        assert large < limit * small, f"memory grows with the rows of a {ending} file"


check.option("--million", "Also read a file of a million questions (2 minutes)", action="store_true")
check.option("--cell", "Fit a cell of this many samples, features and layers", CELL, nargs=3, metavar="N")

if __name__ == "__main__":
    check()
