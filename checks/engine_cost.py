"""The cost model against real runs: `calibrate` fits its constants to one run, `check` predicts another one; `plan`.

    python checks/engine_cost.py calibrate --data ../shared/data/qa --runs /tmp/cost --constants /tmp/cost.json
    python checks/engine_cost.py check --data ../shared/data/qa --runs /tmp/cost --constants /tmp/cost.json

What is measured are CPU seconds of one thread, not time on the wall: they are the same on a machine that does other
work beside, but for what cores take from each other's caches and memory. `--clock wall` measures that instead, on a
quiet one. Both runs are carried out in process, by transformers in float32. `plan` prints what a million questions cost
with Qwen3-32B on 8 and on 64 GPUs (docs/scale.md), and runs nothing. The last line is one JSON object.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded

import argparse
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorscope.answers.record import ANSWERS
from anchorscope.cost.machine import Machine, Rates, Shares, elsewhere, this_machine
from anchorscope.cost.model_shape import ModelShape, shape_of
from anchorscope.cost.stages import StageCost, costs_of
from anchorscope.cost.workload import Workload, asked_of
from anchorscope.models.load import load_config
from anchorscope.models.source import find_model
from anchorscope.progress import printed
from anchorscope.run import engine
from anchorscope.run.pipeline import Pipeline
from anchorscope.run.stages import until
from anchorscope.spans.samples import read_samples
from anchorscope.store import Store
from anchorscope.study import Study
from anchorscope.traces.passes import Passes
from anchorscope.traces.record import TRACES
from weights import unpacked

WEIGHTS = Path("~/.cache/anchorscope-checks").expanduser()
CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}
SEEN = {"model": "smollm2-135m", "sets": ["triviaqa"], "questions": 450, "wrong": 120, "repeats": 2}
SPEEDS = ("passes", "decoding", "bandwidth", "fitting")  # of a machine: what products tell
UNSEEN = {"model": "gemma-3-270m", "sets": ["hotpotqa"], "questions": 350, "wrong": 150, "repeats": 3}

QWEN3_32B = ModelShape(64, 5120, 25_600, 64 * 128, 8 * 128, 151_936, 2)
PRICE = 2.5  # dollars a GPU and hour: assumed
# tokens of the four sets as SmolLM2's tokenizer counts them, with evidence: shared, own, answer, slots, cut, within
TOKENS = {
    "popqa": (69, 13.6, 4.1, 134.9, 11.2, 57.4),
    "triviaqa": (69, 24.2, 5.6, 258.1, 23.5, 106.2),
    "hotpotqa": (69, 26.9, 5.1, 287.9, 26.6, 117.2),
    "nq": (69, 16.1, 5.5, 181.3, 15.7, 75.6),
}


@dataclass(frozen=True)
class Measured:
    """A run that was carried out, and what was known before it."""

    study: Study
    """What was asked."""
    shape: ModelShape
    """Of its model."""
    asked: list[Workload]
    """What was expected of each set."""
    machine: Machine
    """As products were tried beside the run: of their speed all, not a share."""
    seconds: dict[str, float]
    """Of each stage."""
    found: dict[str, Any]
    """What came out that was not known before: traced samples, tokens of an answer."""


def study_of(name: str, data: Path, what: dict[str, Any]) -> Study:
    """A study of one model on some sets, small enough for minutes."""
    folder = unpacked(what["model"], WEIGHTS)
    fields = {
        "name": name,
        "models": [{"id": str(folder), "name": what["model"], "dtype": "float32", "device": "cpu"}],
        "datasets": [{"set": each, "sample": what["questions"]} for each in what["sets"]],
        "traces": {"wrong": what["wrong"], "mass": 30},
        "probes": {"repeats": what["repeats"], "resamples": 300},
    }
    return Study.model_validate(fields).with_data(data)


def carried_out(study: Study, runs: Path, clock: Callable[[], float]) -> Measured:
    """Count what there is to do, then do it, with the seconds of each stage."""
    torch.set_num_threads(1)
    spec = study.models[0]
    # 1. what is known before
    shape = shape_of(load_config(spec, find_model(spec, study.base)), 4)
    asked = [asked_of(study, spec, dataset, shape.layers) for dataset in study.datasets]
    machine = this_machine(shape, "float32", "cpu", clock, Shares(1.0, 1.0, 1.0))
    # 2. the run, anew
    shutil.rmtree(runs / study.name, ignore_errors=True)
    vars(engine)["perf_counter"] = clock  # by which stages are timed
    with Store.writing(runs / study.name, study) as store:
        pipeline = Pipeline(store, printed)
        pipeline.make(until(study, "pathways"))
        start = clock()
        pipeline.figures()
        pipeline.times["figures"] = clock() - start
        # 3. what came out, and products again: both speeds are of the same minutes
        cells = [store.results(spec.name, dataset.name) for dataset in study.datasets]
        tokens = [len(row.answer_ids) + 1 for cell in cells for row in cell.table(ANSWERS)]
        begin = clock()
        samples = [each for dataset in study.datasets for each in read_samples(store, spec.name, dataset.name)]
        reading = clock() - begin
        passes = Passes(study.traces, [0] * asked[0].shared, shape.layers)
        slots = [sum(len(s.ids) for s in passes.streams(each)) for each in samples if each.spans.dropped is None]
        traced = [cell.table(TRACES).plan.rows for cell in cells]
    again = this_machine(shape, "float32", "cpu", clock, Shares(1.0, 1.0, 1.0))
    best = {name: (getattr(machine, name) + getattr(again, name)) / 2 for name in SPEEDS}
    found = {
        "traced": traced,
        "answer tokens": float(np.mean(tokens)),
        "slots": float(np.mean(slots)),
        "samples a second": len(samples) / reading,
    }
    return Measured(study, shape, asked, replace(machine, **best), pipeline.times, found)


def predicted(run: Measured, shares: Shares, rates: Rates, start: float) -> list[StageCost]:
    """What the model says of a run, by the machine's products and the constants."""
    products = run.machine
    machine = replace(
        products,
        passes=shares.passes * products.passes,
        decoding=shares.decoding * products.decoding,
        fitting=shares.fitting * products.fitting,
        start=start,
    )
    return costs_of(run.study, run.shape, run.asked, machine, rates)


def calibrate(run: Measured) -> dict[str, Any]:
    """The constants by which the model says what was measured, knowing what came out."""
    asked = replace(
        run.asked[0],
        traced=run.found["traced"][0],
        answer=run.found["answer tokens"],
        slots=run.found["slots"],
    )
    run, seconds, rates = replace(run, asked=[asked]), run.seconds, Rates()
    # 1. what is counted one by one
    rates = replace(
        rates,
        reading=asked.available / seconds["questions"],
        sampling=run.found["samples a second"],
        grading=asked.questions / seconds["grades"],
        finding=asked.questions / seconds["spans"],
        figures=seconds["figures"],
    )
    start = seconds["loading"] - run.shape.weights / run.machine.storage
    # 2. shares of a product's speed, one after the other: each is the one by which its stage comes out
    shares = Shares(1.0, 1.0, 1.0)
    for name, stage in (("passes", "traces"), ("decoding", "answers"), ("fitting", "probes")):
        low, high = 0.02, 4.0
        for _ in range(40):
            share = (low * high) ** 0.5
            slow = _said(stage, predicted(run, replace(shares, **{name: share}), rates, start)) > seconds[stage]
            low, high = (share, high) if slow else (low, share)
        shares = replace(shares, **{name: low})
    # 3. the resamples: what samples take of it is known from larger ones
    lines = run.study.probes.resamples * run.shape.layers
    rates = replace(rates, lines=lines / (seconds["pathways"] - lines * asked.traced / rates.resampling))
    return {"shares": asdict(shares), "rates": asdict(rates), "start": start}


def _said(stage: str, costs: Sequence[StageCost]) -> float:
    """The seconds that are predicted of a stage."""
    return next(each.seconds for each in costs if each.stage == stage)


def compared(run: Measured, constants: dict[str, Any]) -> dict[str, Any]:
    """Predicted and measured seconds of each stage, and how far off the whole is."""
    shares, rates = Shares(**constants["shares"]), Rates(**constants["rates"])
    said = {each.stage: each.seconds for each in predicted(run, shares, rates, constants["start"])}
    stages = {
        name: {"predicted": round(said[name], 2), "measured": round(run.seconds.get(name, 0.0), 2)} for name in said
    }
    totals = sum(said.values()), sum(run.seconds.values())
    return {
        "model": run.study.models[0].name,
        "sets": [dataset.name for dataset in run.study.datasets],
        "products": {name: float(f"{value:.3g}") for name, value in asdict(run.machine).items() if name in SPEEDS},
        "expected": [{"traced": a.traced, "answer tokens": round(a.answer, 2)} for a in run.asked],
        "found": run.found,
        "stages": stages,
        "predicted": round(totals[0], 1),
        "measured": round(totals[1], 1),
        "error_percent": round(100 * (totals[0] / totals[1] - 1), 1),
    }


def plan(questions: int = 1_000_000) -> dict[str, Any]:
    """Qwen3-32B on a million questions, a quarter of them of each set, with a map and evidence; two GPUs a replica."""
    made: dict[str, Any] = {}
    for gpus in (8, 64):
        fields = {
            "name": "plan",
            "models": ["Qwen/Qwen3-32B"],
            "datasets": list(TOKENS),
            "answers": {"backend": "vllm"},
            "map": {},
            "evidence": {},
            "engine": {
                "kind": "ray",
                "address": "auto",
                "replicas": gpus // 2,
                "gpus_per_replica": 2,
                "cpus_per_replica": 8,
            },
        }
        study = Study.model_validate(fields)
        each = questions // len(TOKENS)
        asked = [Workload("Qwen3-32B", name, each, each, *some[:3], 2000, *some[3:]) for name, some in TOKENS.items()]
        costs = costs_of(study, QWEN3_32B, asked, elsewhere("h100", study.engine, vllm=True))
        hours = sum(cost.seconds for cost in costs) / 3600
        for cost in costs:
            work = f"{cost.tokens / 1e6:9.1f} M tokens {cost.flops / 1e15:9.1f} PFLOP"
            size = f"{cost.written / 1e9:7.2f} GB written {cost.memory / 1e9:6.1f} GB memory"
            print(f"{gpus:2} GPUs  {cost.stage:10} {cost.seconds / 60:8.1f} min {work} {size}")
        made[f"{gpus} GPUs"] = {"hours": round(hours, 2), "dollars": round(PRICE * gpus * hours)}
        made["written_gb"] = round(sum(cost.written for cost in costs) / 1e9, 1)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("calibrate", "check", "plan"))
    parser.add_argument("--data", type=Path, default=Path("../shared/data/qa"), help="the folder of the question sets")
    parser.add_argument("--runs", type=Path, default=WEIGHTS / "cost", help="where the runs are made, anew")
    parser.add_argument("--constants", type=Path, help="where the constants are kept; check: else the package's own")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="cpu", help="CPU seconds, or those on the wall")
    given = parser.parse_args(arguments)
    if given.what == "plan":
        print(json.dumps(plan()))
        return
    clock, seen = CLOCKS[given.clock], given.what == "calibrate"
    run = carried_out(study_of(given.what, given.data, SEEN if seen else UNSEEN), given.runs, clock)
    if seen:
        constants = calibrate(run)
        if given.constants:
            given.constants.write_text(json.dumps(constants, indent=2), encoding="utf-8")
    elif given.constants:
        constants = json.loads(given.constants.read_text(encoding="utf-8"))
    else:
        constants = {"shares": asdict(Shares()), "rates": asdict(Rates()), "start": run.machine.start}
    print(json.dumps({"clock": given.clock, "constants": constants, **compared(run, constants)}))


if __name__ == "__main__":
    main()
