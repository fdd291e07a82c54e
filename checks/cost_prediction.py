"""How near is the cost model of `anchorscope run --dry-run` to a real run?

    python checks/cost_prediction.py predict --data DIR --models DIR
    python checks/cost_prediction.py calibrate --data DIR --models DIR --constants FILE

Steps: `predict` predicts a run that the constants were not fitted to (Gemma-3-270m on HotpotQA) and carries it out;
`calibrate` fits the constants to another run (SmolLM2-135M on TriviaQA). Both runs are in process, by transformers in
float32, on one thread. The default measure is CPU seconds, which other work on the machine hardly changes;
`--clock wall` measures seconds by the clock, on a quiet machine.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from anchorscope.answers.record import ANSWERS
from anchorscope.cost.machine import Machine, Rates, Shares, this_machine
from anchorscope.cost.model_shape import ModelShape, shape_of
from anchorscope.cost.stages import StageCost, costs_of
from anchorscope.cost.workload import Workload, workload_of
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
from helpers.runs import real_model
from helpers.steps import Check, Figures, Options

check = Check(__doc__)

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}
SEEN = {"model": "smollm2-135m", "sets": ["triviaqa"], "questions": 450, "wrong": 120, "repeats": 2}
SPEEDS = ("passes", "decoding", "bandwidth", "fitting")  # of a machine: what products tell
UNSEEN = {"model": "gemma-3-270m", "sets": ["hotpotqa"], "questions": 350, "wrong": 150, "repeats": 3}


@dataclass(frozen=True)
class Measured:
    """A run that was carried out, and what was known before it."""

    study: Study
    """The study."""
    shape: ModelShape
    """The shape of its model."""
    asked: list[Workload]
    """The work that was expected of each set."""
    machine: Machine
    """The speed of matrix products, measured before and after the run; the whole of it, not a share."""
    seconds: dict[str, float]
    """The seconds that each stage took."""
    found: dict[str, Any]
    """What was not known before: number of traced samples, tokens of an answer."""


def study_of(name: str, options: Options, what: dict[str, Any]) -> Study:
    """A study of one model on some sets, small enough for minutes."""
    fields = {
        "name": name,
        "models": [{**real_model(what["model"], options.models, what["model"], "float32"), "device": "cpu"}],
        "datasets": [{"set": dataset, "sample": what["questions"]} for dataset in what["sets"]],
        "traces": {"max_wrong": what["wrong"], "attention_samples": 30},
        "probes": {"repeats": what["repeats"], "resamples": 300},
    }
    return Study.model_validate(fields).with_data(options.data)


def carried_out(study: Study, runs: Path, clock: Callable[[], float]) -> Measured:
    """Count the work of a study, then carry it out and time each stage."""
    torch.set_num_threads(1)
    spec = study.models[0]
    # 1. what is known before
    shape = shape_of(load_config(spec, find_model(spec, study.base)), 4)
    asked = [workload_of(study, spec, dataset, shape.layers) for dataset in study.datasets]
    machine = this_machine(shape, "float32", "cpu", clock, Shares(1.0, 1.0, 1.0))
    # 2. the run, anew
    shutil.rmtree(runs / study.name, ignore_errors=True)
    vars(engine)["perf_counter"] = clock  # by which stages are timed
    with Store.writing(runs / study.name, study) as store:
        pipeline = Pipeline(store, printed)
        pipeline.make(until(study, "numbers"))
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
    """The cost of a run by the cost model, given the speed of matrix products and the constants."""
    products = run.machine
    machine = replace(
        products,
        passes=shares.passes * products.passes,
        decoding=shares.decoding * products.decoding,
        fitting=shares.fitting * products.fitting,
        start=start,
    )
    return costs_of(run.study, run.shape, run.asked, machine, rates)


def fitted(run: Measured) -> Figures:
    """The constants with which the cost model gives the seconds that were measured."""
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
    rates = replace(rates, lines=lines / (seconds["numbers"] - lines * asked.traced / rates.resampling))
    return {"shares": asdict(shares), "rates": asdict(rates), "start": start}


def _said(stage: str, costs: Sequence[StageCost]) -> float:
    """The predicted seconds of a stage."""
    return next(each.seconds for each in costs if each.stage == stage)


def compared(run: Measured, constants: dict[str, Any]) -> Figures:
    """Predicted and measured seconds of each stage, and the error of their sum."""
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


def carried_out_by(options: Options, name: str, what: dict[str, Any], work: Path) -> Measured:
    """A run of one of the two studies."""
    with threadpool_limits(1):
        return carried_out(study_of(name, options, what), work, CLOCKS[options.clock])


@check.step("data", "models")
def predict(options: Options, work: Path) -> Figures:
    """Predict a run by the package's constants, or by those of a file, and carry it out."""
    run = carried_out_by(options, "predict", UNSEEN, work)
    constants = {"shares": asdict(Shares()), "rates": asdict(Rates()), "start": run.machine.start}
    if options.constants:
        constants = json.loads(options.constants.read_text(encoding="utf-8"))
    return {"clock": options.clock, "constants": constants, **compared(run, constants)}


@check.step("data", "models", by_default=False)
def calibrate(options: Options, work: Path) -> Figures:
    """Fit the constants to a run."""
    run = carried_out_by(options, "calibrate", SEEN, work)
    constants = fitted(run)
    if options.constants:
        options.constants.write_text(json.dumps(constants, indent=2), encoding="utf-8")
    return {"clock": options.clock, "constants": constants, **compared(run, constants)}


check.option(
    "--constants",
    "Read the constants from FILE instead of the package's (`calibrate`: write them)",
    type=Path,
    metavar="FILE",
)
check.option("--clock", "Measure this kind of seconds", "cpu", choices=sorted(CLOCKS))

if __name__ == "__main__":
    check()
