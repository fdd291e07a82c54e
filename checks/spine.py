"""What knockouts, traces, probes and the chart must show: `make verify-spine`. The last line is one JSON object.

Steps (all by default, or name some): doctor, bugs, oracle, peers, study, null, demo. `peers` needs a Python with
TransformerLens 4.3 and nnsight 0.8, given as --peers-python; without it the step is left out and says so.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorscope import ModelSpec, PromptSpec, load_study
from anchorscope.models.load import Model, load_model
from anchorscope.models.prompts import Prompter
from anchorscope.pathways.headline import headlines
from anchorscope.pathways.record import Key, Origin, Statistic
from anchorscope.pathways.statistics import pathways
from anchorscope.probes.fitter import ProbeFitter
from anchorscope.probes.folds import make_folds
from anchorscope.probes.readouts import Readouts
from anchorscope.progress import silent
from anchorscope.run.pipeline import Pipeline
from anchorscope.store import Store
from anchorscope.study.terms import SITES, Condition, Further, LayerRule, ReadPoint
from anchorscope.traces.activations import Activations
from anchorscope.traces.byhand import attention_by_hand
from anchorscope.traces.doctor import Doctor
from anchorscope.traces.knockout import Cut, Knockout
from anchorscope.traces.layout import clean_stream, cut_stream
from anchorscope.traces.tracer import Read, Tracer, read_plain
from weights import NAMES, unpacked

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from tiny import FAMILIES, load_tiny  # type: ignore[import-not-found]  # noqa: E402

POINT = ReadPoint("mlp", "answer_last")
SMALL = {"smollm2-135m": "SmolLM2-135M", "gemma-3-270m": "Gemma-3-270m"}  # as the panels are titled
RULES: tuple[tuple[LayerRule, int], ...] = (("cumulative", 1), ("window", 2), ("window", 3), ("single", 1))
SAMPLES = {"popqa": 7000, "triviaqa": 5500, "hotpotqa": 6000, "nq": 9000}  # enough for 300 right answers each


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, relative to the layer's largest activation. (layer, read, width) both."""
    scale = expected.abs().amax(dim=(1, 2), keepdim=True)
    return float(((found.double() - expected.double()).abs() / scale).max())


def doctor(folder: Path, work: Path) -> dict[str, Any]:
    """The self-test on three real models, in float32 and bfloat16, and on random tiny models of every family."""
    found: dict[str, Any] = {}
    for name in NAMES:
        for dtype in ("float32", "bfloat16"):
            model = load_model(
                ModelSpec.model_validate({"id": str(unpacked(name, folder)), "name": "m", "dtype": dtype})
            )
            found[f"{NAMES[name]}/{dtype}"] = examined(model)
    for family in FAMILIES:
        for dtype in ("float64", "float32", "bfloat16"):
            found[f"tiny {family}/{dtype}"] = examined(load_tiny(family, work / f"{family}-{dtype}", dtype))
    green = all(check["passed"] for checks in found.values() for check in checks)
    real = {name: {c["name"]: c["detail"] for c in checks} for name, checks in found.items() if "tiny" not in name}
    return {"green": green, "models": len(found), "real": real}


def examined(model: Model) -> list[dict[str, Any]]:
    """All checks of one model."""
    prompter = Prompter(model.tokenizer, PromptSpec(), model.wants_bos)
    return [asdict(check) for check in Doctor(model, prompter).examine()]


def bugs() -> dict[str, Any]:
    """Each bug put in by tests/traces/test_doctor.py, and the check that caught it, alone."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "tests/traces/test_doctor.py",
        "-k",
        "caught",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    # test ids end in [<bug>-<check>]
    outcomes = re.findall(r"caught_by_its_check_alone\[(\w+)-(\w+)\] (PASSED|FAILED)", done.stdout)
    return {bug: check if outcome == "PASSED" else "NOT CAUGHT" for bug, check, outcome in outcomes}


def oracle(work: Path) -> dict[str, Any]:
    """Largest difference from attention written out by hand: float64, sdpa, every family × into × layers."""
    found: dict[str, float] = {}
    random = np.random.default_rng(0)
    for family in FAMILIES:
        model = load_tiny(family, work / f"oracle-{family}", "float64")
        prefix = random.integers(3, 250, 8).tolist()
        tracer = Tracer(model, prefix, SITES)
        for rule, width in RULES:
            for into in ("after", "answer"):
                layers = Knockout(layers=rule, width=width).variants(tracer.layers)
                worst = max(against_hand(tracer, model, prefix, into, layers, random) for _ in range(2))
                found[f"{family}/{into}/{rule}" + (f"({width})" if rule == "window" else "")] = worst
    return {"largest": max(found.values()), "cases": len(found), "by_case": found}


def against_hand(
    tracer: Tracer, model: Model, prefix: list[int], into: str, variants: list[range], random: np.random.Generator
) -> float:
    """A batch of three random samples, all variants in one pass, against each by hand."""
    rows, reads, wanted = [], [], []
    for i in range(3):
        ids = prefix + random.integers(3, 250, int(random.integers(10, 60))).tolist()
        answer = len(ids) - 3
        keys = sorted(random.choice(np.arange(len(prefix), answer), 4, replace=False).tolist())
        cut = Cut(tuple(keys), tuple(max(key + 1, answer if into == "answer" else 0) for key in keys))
        rows.append([clean_stream(ids, len(prefix))] + [cut_stream(ids, len(prefix), cut, each) for each in variants])
        for s, layers in enumerate(variants, start=1):
            reads.append(Read(i, s, len(ids) - 1))
            wanted.append((ids, cut, layers))
    found = tracer(rows, reads)
    worst = 0.0
    for j, (ids, cut, layers) in enumerate(wanted):
        with attention_by_hand(model, cut, layers):
            expected = read_plain(model, ids, [len(ids) - 1], SITES)
        worst = max(worst, *(difference(found[site][:, j : j + 1], expected[site]) for site in SITES))
    return worst


def peers(folder: Path, work: Path, python: str | None) -> dict[str, Any]:
    """SmolLM2 in float32, our packed pass against TransformerLens and nnsight, all layers and sites."""
    if python is None:
        return {"left out": "no --peers-python was given"}
    from safetensors.torch import load_file

    place = unpacked("smollm2-135m", folder)
    model = load_model(ModelSpec.model_validate({"id": str(place), "name": "m", "dtype": "float32"}))
    examinee = Doctor(model, Prompter(model.tokenizer, PromptSpec(), model.wants_bos))
    shared = examinee.prompter.shared_ids
    tracer = Tracer(model, shared, SITES)
    cases, rows, reads = [], [], []
    for i, (ids, spans) in enumerate(zip(examinee.ids, examinee.spans, strict=True)):
        row = [clean_stream(ids, len(shared))]
        for span in ("exact_question", "control_question", "matched_question"):
            for into in ("after", "answer"):
                cut = Knockout(span, into).cut(spans)
                for layers in (range(tracer.layers), range(9, 10)):
                    reads += [Read(i, len(row), len(ids) - 2), Read(i, len(row), len(ids) - 1)]
                    row.append(cut_stream(ids, len(shared), cut, layers))
                    cuts = [list(pair) for pair in zip(cut.keys, cut.first_queries, strict=True)]
                    cases.append(
                        {"ids": ids, "cuts": cuts, "layers": list(layers), "reads": [len(ids) - 2, len(ids) - 1]}
                    )
        rows.append(row)
    ours = tracer(rows, reads)
    (work / "cases.json").write_text(json.dumps(cases))
    found: dict[str, Any] = {"cases": len(cases)}
    for tool in ("transformer_lens", "nnsight"):
        out = work / f"{tool}.safetensors"
        script = Path(__file__).with_name("peers.py")
        subprocess.run([python, str(script), tool, str(place), str(work / "cases.json"), str(out)], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        theirs = load_file(out)
        found[tool] = {
            site: max(difference(ours[site][:, 2 * j : 2 * j + 2], theirs[f"{j}.{site}"]) for j in range(len(cases)))
            for site in SITES
        }
    return found


def study(data: Path, folder: Path, runs: Path) -> dict[str, Any]:
    """Both models on all four sets, from questions to figures: the first numbers, and each stage's time."""
    (runs / "spine.yaml").write_text(json.dumps({
        "name": "spine",
        "models": [{"id": str(unpacked(name, folder)), "name": SMALL[name], "dtype": "bfloat16"} for name in SMALL],
        "datasets": [{"set": s, "path": str(data / f"{s}.jsonl"), "sample": n} for s, n in SAMPLES.items()],
    }))  # fmt: skip
    with Store.writing(runs / "spine", load_study(str(runs / "spine.yaml"))) as store:
        run = Pipeline(store, silent, lambda text: print(text, flush=True), lambda *what: print(*what, flush=True))
        figures = run()
        found = {f"{h.model}/{h.dataset}": {"n": h.n, "right": h.right, **h.numbers, **h.curves} for h in
                 headlines(store, POINT)}  # fmt: skip
    return {"cells": found, "figures": len(figures), "seconds": {k: round(v) for k, v in run.times.items()}}


def null(runs: Path) -> dict[str, Any]:
    """Labels shuffled, and activations replaced by noise: is there an effect left in the controlled chart?"""
    store = Store.open(runs / "spine")
    conditions: list[Condition] = ["clean", "knockout", "control_question", "matched_question"]
    found = {}
    for model in store.study.models:
        cell = store.results(model.name, "triviaqa")
        activations = Activations(cell)
        rows = list(activations.table)
        labels, clusters = np.array([r.correct for r in rows]), np.array([r.cluster for r in rows])
        layers = activations.layers(POINT)
        real = activations.reader(POINT)
        shuffled = np.random.default_rng(7).permutation(labels)

        def noise(condition: Condition | Further, layer: int, shape: tuple[int, ...] = real("clean", 0).shape) -> Any:
            seed = [layer, *condition.encode()]
            return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

        for name, target, read in (("real", labels, real), ("shuffled", shuffled, real), ("noise", labels, noise)):
            folds = make_folds(target, clusters, 5, 5, 0)
            fitted = ProbeFitter(target, clusters, folds, store.study.probes, 0)(read, layers, conditions)
            share = np.array([r.probability for r in rows])
            readouts = Readouts(target, clusters, share, tuple(conditions), fitted.logits, fitted.drift)
            rows_of = pathways(readouts, Origin(model.name, "triviaqa", POINT), 500)
            found[f"{model.name}/{name}"] = effects(rows_of)
    return found


def effects(rows: list[Statistic]) -> dict[str, Any]:
    """What the controlled chart shows: how many layers' intervals leave zero out, and the largest effect."""
    found = {}
    for name, where in {
        "published_q": {"split": "layer", "group": "Q"},
        "halves_q": {"split": "anchor_half", "anchor": "best", "group": "Q"},
        "halves_q_by_layer": {"split": "layer_half", "group": "Q"},
        "q_minus_placebo": {
            "condition": "matched_question-control_question", "split": "anchor_half", "anchor": "best", "group": "Q"
        },
        "all": {"split": "layer_half", "group": "all"},
        "delta_auroc": {"statistic": "delta_auroc"},
    }.items():  # fmt: skip
        key = Key(**{"statistic": "delta_p", "condition": "knockout", **where})
        line = [row for row in rows if row.key == key and row.value is not None]
        outside = [row.layer for row in line if row.low is not None and row.high is not None and row.low * row.high > 0]
        values = [row.value for row in line if row.value is not None]
        extreme = [round(min(values), 3), round(max(values), 3)] if values else None
        found[name] = {"layers": len(line), "interval_without_zero": len(outside), "range": extreme}
    return found


def demo(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    """How long a first chart takes, weights and all."""
    found = {}
    for name in SMALL:
        start = time.perf_counter()
        command = [sys.executable, "-m", "anchorscope.cli", "demo", "--model", str(unpacked(name, folder))]
        subprocess.run([*command, "--data", str(data), "--runs", str(work / "demo")], check=True)
        found[NAMES[name]] = {"seconds": round(time.perf_counter() - start)}
    return found


def main() -> None:
    """Run the steps and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help="which steps; default all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/qa")
    parser.add_argument("--models", type=Path, default=Path.home() / ".cache" / "anchorscope-checks")
    parser.add_argument("--runs", type=Path, help="where the study's run is kept, so that it goes on where it stopped")
    parser.add_argument("--peers-python", help="a Python with TransformerLens and nnsight")
    options = parser.parse_args()
    data, folder = options.data.resolve(), options.models
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        runs = options.runs or work
        runs.mkdir(parents=True, exist_ok=True)
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "doctor": lambda: doctor(folder, work),
            "bugs": bugs,
            "oracle": lambda: oracle(work),
            "peers": lambda: peers(folder, work, options.peers_python),
            "study": lambda: study(data, folder, runs),
            "null": lambda: null(runs),
            "demo": lambda: demo(data, folder, work),
        }
        figures = {}
        for name in options.steps or steps:
            start = time.perf_counter()
            figures[name] = {**steps[name](), "took_seconds": round(time.perf_counter() - start)}
            print(f"{name}: {json.dumps(figures[name])}", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
